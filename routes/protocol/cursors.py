"""Cursors: positions in logs and outputs that a request resumes from."""

from __future__ import annotations

from starlette.requests import Request

from routes.protocol.errors import Refused
from routes.protocol.numbers import MAX_QUOTED, whole_number


def cursor(request: Request) -> int:
    """The position to resume from: `Last-Event-ID`, else `?after=`, else the beginning. Raises Refused."""
    given = request.headers.get("last-event-id") or request.query_params.get("after") or "0"
    if (seq := whole_number(given)) is None:
        raise bad_cursor(given)
    return seq


def bad_cursor(given: str) -> Refused:
    message = f"Last-Event-ID (or ?after=) is {given[:MAX_QUOTED]!a}; send the `id:` of the last event you saw"
    return Refused(400, "invalid_cursor", message)
