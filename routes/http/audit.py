"""The audit, for admins: every decision, newest first."""

from __future__ import annotations

from dataclasses import asdict

from starlette.requests import Request
from starlette.responses import Response

from routes.protocol.errors import ASCIIResponse, Refused
from routes.protocol.requests import admins_only
from routes.services import asker, services_of

MOST, USUAL = 1000, 100  # rows that one answer has


async def list_audit(request: Request) -> Response:
    """`?before=` the number of the last row seen, `?limit=` rows at most."""
    admins_only(asker(request))
    before, limit = _number(request, "before", 1 << 60), _number(request, "limit", USUAL)
    rows = await services_of(request).store.audit(before, min(limit, MOST))
    return ASCIIResponse({"audit": [{"number": number} | asdict(row) for number, row in rows]})


def _number(request: Request, name: str, default: int) -> int:
    given = request.query_params.get(name)
    if given is None:
        return default
    if not given.isascii() or not given.isdigit() or not 0 < len(given) <= 18:
        raise Refused(400, "invalid_query", f"{name} is {given[:40]!a}; send a whole number")
    return int(given)
