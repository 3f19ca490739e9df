"""How long a server asks to wait before the next request, in the forms that servers write it."""

from __future__ import annotations

from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from math import isfinite


def retry_after_s(headers: Mapping[str, str], now: float) -> float | None:
    """Seconds from `now` (Unix time); None if the headers do not say, or say what cannot be.

    Milliseconds come first: servers that send them send the seconds rounded up besides.
    """
    if milliseconds := number(headers.get("retry-after-ms")):
        return milliseconds / 1000
    said = headers.get("retry-after")
    seconds = number(said)
    return until(said, now) if said and seconds is None else seconds


def number(said: str | None) -> float | None:
    try:
        value = float(said or "")
    except ValueError:
        return None
    return value if isfinite(value) and value >= 0 else None


def until(date: str, now: float) -> float | None:
    """Seconds until an HTTP date, 0 if it has passed."""
    try:
        return max(0.0, parsedate_to_datetime(date).timestamp() - now)
    except (ValueError, OverflowError, OSError):
        return None
