"""GET /proof: that this server knows a token, for a client that will not show the token to another."""

from __future__ import annotations

import time

from starlette.requests import Request
from starlette.responses import Response

from app.storage.principals import in_use
from routes.access.token_auth import PROOF, PROOF_HEADER, proof, proof_id
from routes.protocol.errors import Refused
from routes.protocol.route import Query, Route, tagged
from routes.services import services_of
from tools.base.patterns import lazy_pattern

ID = lazy_pattern(r"[0-9a-f]{64}")
NONCE = lazy_pattern(r"[0-9a-f]{32}")


async def prove(request: Request) -> Response:
    """Proof that this server knows a token. For clients that must not reveal it to another program."""
    wanted, nonce = request.query_params.get("token", ""), request.query_params.get("nonce", "")
    if not ID.fullmatch(wanted) or not NONCE.fullmatch(nonce):
        raise Refused(422, "invalid_request", "token is the id of a token, nonce has 32 hexadecimal digits")
    services, now = services_of(request), time.time()
    rows = await services.store.tokens()
    known = [row.sha256 for row in rows if in_use(row, now)] if rows else [services.local.token_sha256]
    digest = next((one for one in known if one and proof_id(one) == wanted), None)
    if digest is None:
        raise Refused(404, "not_found", "This server does not know this token.")
    return Response(status_code=204, headers={PROOF_HEADER: proof(digest, nonce, request.scope["server"][1])})


ROUTES = tagged(
    "Server",
    Route(
        f"GET {PROOF}",
        prove,
        rights="open",
        errors=(404, 422),
        query=(Query("token", "its id", required=True), Query("nonce", "a number of the client", required=True)),
    ),
)
