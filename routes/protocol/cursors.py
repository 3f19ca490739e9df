"""Places in logs and outputs, as requests name them: behind what somebody comes back for the rest."""

from __future__ import annotations

from starlette.requests import Request

from routes.protocol.errors import Refused


def cursor(request: Request) -> int:
    """Where to resume: `Last-Event-ID`, else `?after=`, else the beginning. Raises Refused."""
    given = request.headers.get("last-event-id") or request.query_params.get("after") or "0"
    if (seq := number(given)) is None:
        raise bad_cursor(given)
    return seq


def number(given: str) -> int | None:
    """What a place in a log or an output is written as: at most 15 digits; None for anything else."""
    return int(given) if given.isascii() and given.isdigit() and len(given) <= 15 else None


def bad_cursor(given: str) -> Refused:
    message = f"Last-Event-ID (or ?after=) is {given[:40]!a}; send the `id:` of the last event you saw"
    return Refused(400, "invalid_cursor", message)
