"""GET /shared/{token}: one shared conversation, for anyone who has its link. Nothing else can be reached by it."""

from __future__ import annotations

import json
import time

from starlette.requests import Request
from starlette.responses import Response

from app.policy.current_rights import principal_named
from app.storage.library.shares import ShareRow
from app.transcript.run_request import NotFound
from routes import page
from routes.access.rate_limits import client_network
from routes.access.request_rates import SHARED
from routes.access.token_text import fingerprint
from routes.http.attachments import media_type_of
from routes.http.library.shares import labels_of, may_share
from routes.protocol.errors import ASCIIResponse, TooSoon
from routes.protocol.file_answer import SANDBOXED
from routes.protocol.route import Route, tagged
from routes.services import Services, services_of

PER_MINUTE = 120  # requests from one client
LONGEST_TOKEN = 100
GONE = "This link does not exist, has expired, or was revoked. Ask for a new one."
HEADERS = {"X-Robots-Tag": "noindex, nofollow, noarchive"}


async def show_shared(request: Request) -> Response:
    """A shared conversation, or its page for a browser.

    A page for browsers, else JSON; 404 once the [link](#shared-conversations) has expired or was revoked.
    """
    if not page.wants_page(request.headers):
        row = await _shared(request)
        content = json.loads(row.content)
        fields = {"title": row.title, "updated": row.updated, "expires_at": row.expires}
        answer = fields | {"runs": content["runs"], "earlier": content["earlier"]}
        return ASCIIResponse(services_of(request).redactor.redact_value(answer), headers=HEADERS | {"Vary": "Accept"})
    try:
        await _shared(request)
    except NotFound:
        return await page.shared(request, HEADERS, 404)
    return await page.shared(request, HEADERS)


async def shared_file(request: Request) -> Response:
    """A file that a shared conversation shows. If its files are shared."""
    row, sha256 = await _shared(request), request.path_params["sha256"]
    data = None
    if sha256 in json.loads(row.content)["files"]:
        data = await services_of(request).store.file(sha256, row.session)
    if data is None:
        raise NotFound(GONE)
    media_type = media_type_of(data)
    how = "inline" if media_type.startswith("image/") else "attachment"
    headers = {"Content-Disposition": f'{how}; filename="{sha256[:16]}"'} | SANDBOXED | HEADERS
    return Response(data, media_type=media_type, headers=headers)


async def _shared(request: Request) -> ShareRow:
    """Raises NotFound, in one wording for all that is not there, and TooSoon."""
    services, now = services_of(request), time.time()
    client = client_network(request.client.host if request.client else None)
    times, reset = await services.rates.count(SHARED, client, now)
    if times > PER_MINUTE:
        raise TooSoon(
            "too_many_requests", f"Shared pages may be read {PER_MINUTE} times per minute. Try again later.", reset
        )
    token = request.path_params["token"][:LONGEST_TOKEN]
    row = await services.store.share_of(fingerprint(token))
    if row is None or (row.expires is not None and row.expires <= now) or not await _is_allowed(services, row):
        raise NotFound(GONE)
    return row


async def _is_allowed(services: Services, row: ShareRow) -> bool:
    """Its owner may still share, and the conversation has got no label since."""
    try:
        owner = await principal_named(services.store, row.principal)
    except NotFound:
        return False
    return may_share(services, owner) and not await labels_of(services, row.session)


ROUTES = tagged(
    "Sessions",
    Route(
        "GET /shared/{token}",
        show_shared,
        rights="open",
        answer={
            "title": "text",
            "updated": "number",
            "expires_at": "number?",
            "runs": ["object"],
            "earlier": "boolean",
        },
        errors=(429,),
    ),
    Route(
        "GET /shared/{token}/files/{sha256}",
        shared_file,
        rights="open",
        errors=(429,),
        media=("application/octet-stream",),
    ),
)
