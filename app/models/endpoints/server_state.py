"""State that all models of one endpoint share: its keys, its health and its request queue."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from app.core.provider import ProviderFailed
from app.models.endpoints.fair_queue import FairQueue
from app.models.endpoints.health import Cooldown, Health, LastError, Now
from app.models.endpoints.keys import Key, KeyRing

MOST_ERROR = 500  # characters of the last error


class ServerState:
    """Shared state of one endpoint. `keys` are in order of preference; `max_requests` limits concurrency: 0 is no
    limit, None takes the number of slots that the server reports.
    """

    def __init__(
        self,
        name: str = "",
        keys: Sequence[str] = (),
        max_requests: int | None = None,
        now: Now = time.monotonic,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.name = name
        self.keys = KeyRing(keys, now)
        self.health = Health(now)
        self.queue = FairQueue(max_requests)
        self.turned: Callable[[], None] = lambda: None  # called when the server is down, and when it answers again
        self._clock = clock

    def cooldown_of(self, model: str) -> Cooldown | None:
        """Return the reason to prefer another model now, if there is one."""
        return self.health.cooldown_of(model) or self.keys.cooldown_of(model)

    def answered(self, model: str, key: Key) -> None:
        was_down = self.health.is_down
        self.health.answered(model)
        self.keys.answered(key, model)
        if was_down:
            self.turned()

    def failed(self, failure: ProviderFailed) -> None:
        """Record the last error in one line, with keys redacted."""
        was_down = self.health.is_down
        message = " ".join(failure.message.split())
        for key in self.keys.keys:
            message = message.replace(key.value, "***") if key.value else message
        self.health.last_error = LastError(failure.code, message[:MOST_ERROR], self._clock(), failure.status)
        if self.health.is_down and not was_down:
            self.turned()

    def _state(self) -> str:
        if self.health.server_cooldown or self.health.is_silent:
            return "dead"
        is_cooling = self.keys.status()["cooling"] or self.health.cooling or self.health.is_down
        return "cooling" if is_cooling else "ok"

    def status(self) -> dict[str, Any]:
        """Return the fields that admins see in GET /endpoints."""
        cooldown, error = self.health.server_cooldown, self.health.last_error
        keys = self.keys.status()
        return {
            "state": self._state(),
            "back_in_s": round(self.health.left_s(cooldown), 1) if cooldown else None,
            "resting": self.health.cooling,
            "last_error": {"code": error.code, "message": error.message, "at": error.at} if error else None,
            "keys": keys,
            "max_requests": self.queue.limit or None,
            "under_way": self.queue.under_way,
            "waiting": self.queue.waiting,
        }
