"""Cooldowns: after a failure, a server, model or key is skipped for a while if an alternative exists."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Generic, TypeVar

from msgspec import Struct

Key = TypeVar("Key")
Now = Callable[[], float]  # seconds of a monotonic clock
DOWN = "model_down"  # the code of a failure to reach the server


class Cooldown(Struct, frozen=True):
    """The end of a cooldown, and the code of the failure that caused it."""

    until: float
    why: str


class Cooldowns(Generic[Key]):
    """Running cooldowns by key."""

    def __init__(self, now: Now = time.monotonic) -> None:
        self.now = now
        self._running: dict[Key, Cooldown] = {}

    def start(self, key: Key, seconds: float, why: str) -> None:
        """Start a cooldown; a longer one that is already running stays."""
        self._running = self.all()  # drops those that have ended
        until = self.now() + seconds
        known = self._running.get(key)
        if known is None or known.until < until:
            self._running[key] = Cooldown(until, why)

    def end(self, key: Key) -> None:
        self._running.pop(key, None)

    def of(self, key: Key) -> Cooldown | None:
        cooldown = self._running.get(key)
        return cooldown if cooldown and cooldown.until > self.now() else None

    def all(self) -> dict[Key, Cooldown]:
        now = self.now()
        return {key: cooldown for key, cooldown in self._running.items() if cooldown.until > now}

    def left_s(self, cooldown: Cooldown | None) -> float:
        """Return the seconds until it ends; 0 for None."""
        return max(0.0, cooldown.until - self.now()) if cooldown else 0.0


class LastError(Struct, frozen=True):
    """The most recent failure, in one line; `at` is Unix time, `status` that of the server's answer, if it answered."""

    code: str
    message: str
    at: float
    status: int | None = None


class Health(Cooldowns[str | None]):
    """Cooldowns of one endpoint (None) and of its models, and its last error."""

    def __init__(self, now: Now = time.monotonic) -> None:
        super().__init__(now)
        self.last_error: LastError | None = None

    @property
    def is_down(self) -> bool:
        """Return True if the server, or a model behind it, could not be reached, and has not answered since."""
        return self.last_error is not None and self.last_error.code == DOWN

    @property
    def is_silent(self) -> bool:
        """Return True if not even an error came from the server."""
        return self.last_error is not None and self.is_down and self.last_error.status is None

    def answered(self, model: str) -> None:
        """The model has answered."""
        self.end(None)
        self.end(model)
        if self.is_down:
            self.last_error = None

    def listed(self) -> None:
        """The server has listed its models: a gateway does so while none of them answers."""
        self.end(None)
        if self.is_silent:
            self.last_error = None

    def cooldown_of(self, model: str) -> Cooldown | None:
        """Return the cooldown that applies to the model, if one does."""
        return self.server_cooldown or self.of(model)

    @property
    def server_cooldown(self) -> Cooldown | None:
        return self.of(None)

    @property
    def cooling(self) -> dict[str, float]:
        """Seconds left of each model's cooldown."""
        return {model: round(self.left_s(cooldown), 1) for model, cooldown in self.all().items() if model is not None}
