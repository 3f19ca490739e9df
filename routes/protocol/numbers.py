"""Whole numbers as requests and flags write them. int() takes signs, blanks, `_` and the digits of any script, too."""

from __future__ import annotations

from starlette.requests import Request

from routes.protocol.errors import Refused

MAX_DIGITS = 15  # more than any row, event or byte has, and few enough for JavaScript to read them exactly
LARGEST = 10**MAX_DIGITS - 1
MAX_QUOTED = 40  # characters of what was sent


def whole_number(text: str) -> int | None:
    """Return the number that ASCII digits write; None for anything else."""
    return int(text) if len(text) <= MAX_DIGITS and text.isascii() and text.isdigit() else None


def query_number(request: Request, name: str, default: int, *, least: int = 0, most: int = LARGEST) -> int:
    """Return the parameter `name` of the query. Raises Refused."""
    given = request.query_params.get(name)
    if given is None:
        return default
    number = whole_number(given)
    if number is None or not least <= number <= most:
        message = f"{name} is {given[:MAX_QUOTED]!a}; send a whole number from {least} to {most}"
        raise Refused(400, "invalid_query", message)
    return number
