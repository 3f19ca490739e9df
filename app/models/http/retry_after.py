"""Parse Retry-After headers, in the forms that servers use."""

from __future__ import annotations

from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from math import isfinite


def retry_after_s(headers: Mapping[str, str], now: float) -> float | None:
    """Return the seconds from `now` (Unix time); None without a valid header.

    Milliseconds come first: servers that send them also send the seconds, rounded up.
    """
    if milliseconds := number(headers.get("retry-after-ms")):
        return milliseconds / 1000
    value = headers.get("retry-after")
    seconds = number(value)
    return until(value, now) if value and seconds is None else seconds


def number(text: str | None) -> float | None:
    try:
        value = float(text or "")
    except ValueError:
        return None
    return value if isfinite(value) and value >= 0 else None


def until(date: str, now: float) -> float | None:
    """Return the seconds until an HTTP date; 0 if it has passed."""
    try:
        return max(0.0, parsedate_to_datetime(date).timestamp() - now)
    except (ValueError, OverflowError, OSError):
        return None
