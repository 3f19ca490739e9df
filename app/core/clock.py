"""The time as models are told it, in one time zone for the whole server."""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from zoneinfo import ZoneInfo

REMEMBERED = 1 << 14  # minutes


@dataclass(frozen=True, slots=True)
class Clock:
    """`zone` names the time zone, such as Europe/Berlin; None is this machine's."""

    zone: str | None = None

    def local(self, at: float) -> datetime:
        """The date and time at a Unix time."""
        return datetime.fromtimestamp(at, UTC).astimezone(ZoneInfo(self.zone) if self.zone else None)

    def now(self) -> datetime:
        return self.local(time.time())

    def stamped(self, text: str, at: float | None) -> str:
        """What a person said, and in a last line when, if that is known.

        The time stands here and not in the system prompt: what a message ends with never changes, so that the model's
        server finds all that came before the newest message in its prefix cache.
        """
        return text if at is None else f"{text}\n\n{_stamp(self, int(at // 60))}"


@lru_cache(REMEMBERED)
def _stamp(clock: Clock, minute: int) -> str:
    """Remembered: each request says the times of all its messages again."""
    return f"[{clock.local(60 * minute):%Y-%m-%d %H:%M %Z}]"
