"""Who rests: what has failed is left alone for a while, as long as something else can be asked instead."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

What = TypeVar("What")
Now = Callable[[], float]  # seconds, of a clock that never goes back


@dataclass(frozen=True, slots=True)
class Rest:
    """Until when, and the code of the failure that it is for."""

    until: float
    why: str


class Rests(Generic[What]):
    """Rests that have not ended, each by what it is that rests."""

    def __init__(self, now: Now = time.monotonic) -> None:
        self.now = now
        self._rests: dict[What, Rest] = {}

    def begin(self, what: What, seconds: float, why: str) -> None:
        """A longer rest that is under way goes on."""
        self._rests = self.all()  # which bounds them
        until, known = self.now() + seconds, self._rests.get(what)
        if known is None or known.until < until:
            self._rests[what] = Rest(until, why)

    def end(self, what: What) -> None:
        self._rests.pop(what, None)

    def of(self, what: What) -> Rest | None:
        rest = self._rests.get(what)
        return rest if rest and rest.until > self.now() else None

    def all(self) -> dict[What, Rest]:
        now = self.now()
        return {what: rest for what, rest in self._rests.items() if rest.until > now}

    def left_s(self, rest: Rest | None) -> float:
        """How long it will last; 0 for none."""
        return max(0.0, rest.until - self.now()) if rest else 0.0


@dataclass(frozen=True, slots=True)
class LastError:
    """What went wrong last, in one line; `at` is Unix time."""

    code: str
    message: str
    at: float


class Health:
    """Of one endpoint: whether it can be reached, and which of its models rest."""

    def __init__(self, now: Now = time.monotonic) -> None:
        self._rests: Rests[str | None] = Rests(now)  # by model; None is all of them
        self.last_error: LastError | None = None

    def dead(self, seconds: float, why: str) -> None:
        """Nobody could reach it."""
        self._rests.begin(None, seconds, why)

    def rests(self, model: str, seconds: float, why: str) -> None:
        self._rests.begin(model, seconds, why)

    def answered(self, model: str) -> None:
        self._rests.end(None)
        self._rests.end(model)

    def rest_of(self, model: str) -> Rest | None:
        """Why the model is better not asked now."""
        return self.rest_of_all or self._rests.of(model)

    @property
    def rest_of_all(self) -> Rest | None:
        return self._rests.of(None)

    @property
    def resting(self) -> dict[str, float]:
        """Models that rest, and for how many seconds more."""
        return {model: round(self.left_s(rest), 1) for model, rest in self._rests.all().items() if model is not None}

    def left_s(self, rest: Rest | None) -> float:
        return self._rests.left_s(rest)
