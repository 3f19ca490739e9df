"""The date and time in prompts, in one time zone for the whole server."""

from __future__ import annotations

import time
from datetime import UTC, date, datetime
from functools import lru_cache
from zoneinfo import ZoneInfo

from msgspec import Struct

REMEMBERED = 1 << 14  # minutes


class Clock(Struct, frozen=True):
    """`zone` names the time zone, such as Europe/Berlin; None is that of this machine."""

    zone: str | None = None

    def local(self, at: float) -> datetime:
        """The date and time at a Unix time."""
        return datetime.fromtimestamp(at, UTC).astimezone(ZoneInfo(self.zone) if self.zone else None)

    def today(self) -> date:
        return _minute(self, int(time.time() // 60)).date()

    def stamped(self, text: str, at: float | None) -> str:
        """The text of a user message, with its time as the last line, if that is known.

        The time is here and not in the system prompt, so that messages never change and the model's server finds all
        but the newest one in its prefix cache.
        """
        return text if at is None else f"{text}\n\n{_stamp(self, int(at // 60))}"


@lru_cache(256)  # the database of time zones is read
def known_zone(name: str | None) -> str:
    """Return the name of a time zone if this machine knows it, else an empty text."""
    try:
        return ZoneInfo(name).key if name else ""
    except (KeyError, ValueError, OSError):
        return ""


@lru_cache(REMEMBERED)
def _stamp(clock: Clock, minute: int) -> str:
    """Cached, because each request repeats the times of all its messages."""
    return f"[{_minute(clock, minute):%Y-%m-%d %H:%M %Z}]"


@lru_cache(REMEMBERED)
def _minute(clock: Clock, minute: int) -> datetime:
    return clock.local(60 * minute)
