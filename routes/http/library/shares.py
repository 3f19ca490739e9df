"""/shares: links that show a conversation, as it was when it was shared, to anyone who has them."""

from __future__ import annotations

import asyncio
import json
import time
from secrets import token_hex
from typing import Any

from msgspec.structs import asdict, replace
from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response

from app.core.strict_model import StrictModel
from app.runs.branching.forking import TEMPORARY_ENDS
from app.storage.audit import AuditRow
from app.storage.library.shares import ShareEntry, ShareRemoved, ShareRow, SharesExpired, ShareUpdated
from app.storage.principals import Principal
from app.storage.sessions import SessionRow
from app.transcript.run_request import NotFound
from routes.access.token_text import fingerprint, new_token
from routes.http.library.snapshot import ShareOptions, snapshot
from routes.protocol.errors import ASCIIResponse, Refused
from routes.protocol.redaction_middleware import SHOWN_ONCE
from routes.protocol.requests import read_fields
from routes.protocol.route import Body, Query, Route, tagged
from routes.services import Services, current_principal, services_of
from tools.base.rights import Role

MOST_SHARES = 200  # links of one principal
LISTED = 1_000  # that admins see at once
SOONEST_S, LATEST_S = 60.0, 366 * 86_400.0
MOST_BYTES = 16 * 1024
PATH = "/shared/"
ALLOWED = {"off": frozenset[Role](), "admins": frozenset({Role.ADMIN}), "users": frozenset({Role.ADMIN, Role.USER})}

_sharing = asyncio.Lock()  # else two requests might both find the last room


class ShareRequest(StrictModel):
    """The body of POST /sessions/{id}/shares."""

    tool_results: bool = True
    attachments: bool = False
    expires_in_s: float | None = Field(default=None, ge=SOONEST_S, le=LATEST_S)


def may_share(services: Services, principal: Principal) -> bool:
    return principal.role in ALLOWED[services.settings.sharing]


async def share_session(request: Request) -> Response:
    """Make a link that shows a conversation as it is now.

    All fields are optional. Only this answer has the `path` of the [link](#shared-conversations), and with `public_url`
    its `url`.
    """
    services, principal = services_of(request), current_principal(request)
    session = request.path_params["session"]
    await services.runs.session(session, principal)
    _check_right(services, principal)
    body = await read_fields(request, ShareRequest, MOST_BYTES)
    now, token = time.time(), new_token()
    async with _sharing, services.runs.peers.lock("session", session):  # it is not deleted meanwhile
        row = await services.runs.session(session, principal)
        if row.temporary:
            raise Refused(409, "not_shareable", TEMPORARY_ENDS)
        await services.store.write([SharesExpired(now)])
        if len(await services.store.shares(principal.name, MOST_SHARES)) >= MOST_SHARES:
            raise Refused(409, "too_many_shares", f"You have {MOST_SHARES} links. Revoke one first.")
        expires = None if body.expires_in_s is None else now + body.expires_in_s
        options = ShareOptions(body.tool_results, body.attachments)
        content = await _content(services, row, options)
        share = ShareRow(
            id=f"shr_{token_hex(10)}",
            sha256=fingerprint(token),
            session=row.id,
            principal=principal.name,
            created=now,
            updated=now,
            expires=expires,
            title=row.title,
            options=json.dumps(asdict(options)),
            content=content,
        )
        await services.store.write([share, _audited(principal, share, "shared")])
    setattr(request.state, SHOWN_ONCE, True)
    address = (services.settings.public_url or "").rstrip("/")
    return ASCIIResponse(
        _shown(share) | {"path": PATH + token, "url": f"{address}{PATH}{token}" if address else None}, 201
    )


async def list_shares(request: Request) -> Response:
    """Your links to conversations. The newest first."""
    services, principal = services_of(request), current_principal(request)
    everyones = request.query_params.get("all") == "true"
    if everyones and principal.role is not Role.ADMIN:
        raise Refused(403, "forbidden", "Only admins can list other people's links. Leave `all` out.")
    rows = await services.store.shares(None if everyones else principal.name, LISTED)
    now = time.time()
    shares = [_shown(row) for row in rows if row.expires is None or row.expires > now]
    return ASCIIResponse({"shares": shares, "may_share": may_share(services, principal)})


async def update_share(request: Request) -> Response:
    """Let a link show the conversation as it is now. The address stays the same."""
    services, principal = services_of(request), current_principal(request)
    share = await _share(request, by_admins=False)
    _check_right(services, principal)
    row = await services.runs.session(share.session, principal)
    content = await _content(services, row, ShareOptions(**json.loads(share.options)))
    change = ShareUpdated(share.id, time.time(), row.title, content)
    await services.store.write([change, _audited(principal, share, "updated")])
    if await services.store.share(share.id) is None:  # revoked meanwhile, and not made again
        raise _no_link(share.id)
    return ASCIIResponse(_shown(replace(share, updated=change.updated, title=change.title)))


async def revoke_share(request: Request) -> Response:
    """Revoke a link; admins may revoke any. From now on the link leads nowhere."""
    services, share = services_of(request), await _share(request, by_admins=True)
    await services.store.write([ShareRemoved(share.id), _audited(current_principal(request), share, "revoked")])
    return Response(status_code=204)


def _check_right(services: Services, principal: Principal) -> None:
    """Raises Refused."""
    if not may_share(services, principal):
        if services.settings.sharing == "off":
            raise Refused(403, "forbidden", "Sharing is off on this server. An admin can change `sharing`.")
        raise Refused(403, "forbidden", f"The {principal.role} {principal.name} may not share conversations.")


async def labels_of(services: Services, session: str) -> list[str]:
    return sorted(row.label for row in await services.store.session_labels([session]))


async def _content(services: Services, row: SessionRow, options: ShareOptions) -> str:
    """Raises Refused for a conversation with labels, and for one that has nothing to show."""
    if labels := await labels_of(services, row.id):
        message = f"This conversation has the label {', '.join(labels)}. Labelled conversations cannot be shared."
        raise Refused(409, "labelled", message)
    found = await snapshot(services.store, services.redactor, row.id, options)
    if not found.runs:
        too_long = "The last turn is longer than what a link shows. Export the conversation instead."
        too_early = "No turn of this conversation has ended. Share it after an answer."
        raise Refused(409, "nothing_to_share", too_long if found.earlier else too_early)
    return json.dumps({"runs": found.runs, "earlier": found.earlier, "files": found.files})


async def _share(request: Request, *, by_admins: bool) -> ShareRow:
    """Raises NotFound for a link of another principal, but with `by_admins` not to admins."""
    services, principal = services_of(request), current_principal(request)
    row = await services.store.share(request.path_params["share"])
    may = by_admins and principal.role is Role.ADMIN
    if row is None or (row.principal != principal.name and not may):
        raise _no_link(request.path_params["share"])
    return row


def _no_link(share: str) -> NotFound:
    return NotFound(f"There is no link {share[:80]!r}. GET /shares lists yours.")


def _audited(principal: Principal, share: ShareRow, decision: str) -> AuditRow:
    why = f"Conversation {share.session}, link {share.id}."
    return AuditRow(time.time(), share.principal, "share", decision, why=why, by=principal.name)


def _shown(row: ShareEntry | ShareRow) -> dict[str, Any]:
    times = {"created": row.created, "updated": row.updated, "expires_at": row.expires}
    named: dict[str, Any] = {"id": row.id, "session": row.session, "title": row.title, "owner": row.principal}
    options: dict[str, Any] = json.loads(row.options)
    return named | times | options


SHARE = {
    "id": "text",
    "session": "text",
    "title": "text",
    "owner": "text",
    "created": "number",
    "updated": "number",
    "expires_at": "number?",
    "tool_results": "boolean",
    "attachments": "boolean",
}
ROUTES = tagged(
    "Sessions",
    Route(
        "POST /sessions/{session}/shares",
        share_session,
        rights="owner",
        answer={**SHARE, "path": "text", "url": "text?"},
        statuses=(201,),
        errors=(409,),
        body=Body(ShareRequest, {"tool_results": False, "expires_in_s": 604800}),
    ),
    Route(
        "GET /shares",
        list_shares,
        rights="user",
        answer={"shares": [SHARE], "may_share": "boolean"},
        query=(Query("all", "`true`, for admins: the links of all"),),
    ),
    Route("POST /shares/{share}", update_share, rights="owner", answer=SHARE, errors=(409,)),
    Route("DELETE /shares/{share}", revoke_share, rights="owner"),
)
