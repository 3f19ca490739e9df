"""The audit, for admins: every decision, newest first."""

from __future__ import annotations

from msgspec.structs import asdict
from starlette.requests import Request
from starlette.responses import Response

from routes.protocol.errors import ASCIIResponse
from routes.protocol.numbers import LARGEST, query_number
from routes.protocol.requests import admins_only
from routes.services import current_principal, services_of

MOST, USUAL = 1000, 100  # rows that one answer has


async def list_audit(request: Request) -> Response:
    """`?before=` the number of the last row seen, `?limit=` rows at most."""
    admins_only(current_principal(request))
    before, limit = query_number(request, "before", LARGEST), query_number(request, "limit", USUAL)
    rows = await services_of(request).store.audit(before, min(limit, MOST))
    return ASCIIResponse({"audit": [{"number": number} | asdict(row) for number, row in rows]})
