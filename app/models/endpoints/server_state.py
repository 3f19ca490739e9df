"""One endpoint as all its models share it: its keys, its health, the line in front of it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from app.core.provider import ProviderFailed
from app.models.endpoints.fair_queue import FairQueue
from app.models.endpoints.health import Health, LastError, Now, Rest
from app.models.endpoints.keys import Key, KeyRing

MOST_ERROR = 500  # characters of an error that are kept


class Host:
    """`keys` in the order in which they are to be used; `max_requests` at a time: 0 is no limit, None as is learned."""

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
        self._clock = clock

    def rest_of(self, model: str) -> Rest | None:
        """Why the model is better not asked now, if something else can be."""
        return self.health.rest_of(model) or self.keys.rest_of(model)

    def answered(self, model: str, key: Key) -> None:
        self.health.answered(model)
        self.keys.answered(key, model)

    def failed(self, failure: ProviderFailed) -> None:
        """Keep it as the last error: one line, without a key."""
        said = " ".join(failure.message.split())
        for key in self.keys.keys:
            said = said.replace(key.value, "***") if key.value else said
        self.health.last_error = LastError(failure.code, said[:MOST_ERROR], self._clock())

    def told(self) -> dict[str, Any]:
        """For people who look after the server."""
        rest, error = self.health.rest_of_all, self.health.last_error
        keys = self.keys.told()
        return {
            "state": "dead" if rest else "cooling" if keys["cooling"] or self.health.resting else "ok",
            "back_in_s": round(self.health.left_s(rest), 1) if rest else None,
            "resting": self.health.resting,
            "last_error": {"code": error.code, "message": error.message, "at": error.at} if error else None,
            "keys": keys,
            "max_requests": self.queue.limit or None,
            "under_way": self.queue.under_way,
            "waiting": self.queue.waiting,
        }
