"""Retry policy: after a failure before the first token, decide on a retry, another key, a fallback, or the end.

This module only decides; the caller waits and emits the notices.
"""

from __future__ import annotations

import asyncio
import math
import random
import time
from collections.abc import Awaitable, Callable, Sequence

from msgspec import Struct

from app.core.provider import FallbackUsed, ProviderFailed, ProviderNotice
from app.models.endpoints.faults import ABSENT, LIMITED, TOO_LONG, Fault, cooldown_s, fault_of, refuses_key
from app.models.endpoints.health import Now
from app.models.endpoints.keys import Key
from app.models.endpoints.model_handle import ModelHandle
from app.models.endpoints.vision_fallback import NO_VISION
from app.models.http.failures import cause_of

FIRST_S, MOST_S = 0.5, 10.0  # backoff: first and longest delay, doubled each time
HONOURED_S = 30.0  # the longest Retry-After that is waited for


class Backoff(Struct, frozen=True):
    """Exponential backoff with jitter; `chance` returns random numbers between 0 and 1, `wall` Unix time."""

    now: Now = time.monotonic
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    chance: Callable[[], float] = random.random
    wall: Now = time.time

    def delay_s(self, tries: int) -> float:
        """Return the delay after so many tries, with 50 % jitter so that clients do not retry all at once."""
        return (0.5 + self.chance() / 2) * min(MOST_S, FIRST_S * 2.0 ** (tries - 1))


class NextStep(Struct, frozen=True):
    """The next step: notices, then a delay before the next try; or the `failure` that ends the request."""

    notices: list[ProviderNotice]
    wait_s: float = 0.0
    failure: ProviderFailed | None = None


class Attempt:
    """One request and its tries on the models of a route. Models that cool down are skipped while there are others.

    No wait is longer than `most_wait_s` or ends after `until`.
    """

    def __init__(
        self, handles: Sequence[ModelHandle], backoff: Backoff, most_wait_s: float = math.inf, until: float = math.inf
    ) -> None:
        self._handles = handles
        self._backoff = backoff
        self._most_wait_s = min(HONOURED_S, most_wait_s)
        self._until = until
        self._attempted: list[ModelHandle] = []
        self._failed: list[ProviderFailed] = []  # the failures of `_attempted`, in the same order
        cooldown = handles[0].server.cooldown_of(handles[0].provider.model)
        self._reason = cooldown.why if cooldown else ""  # why the first model does not answer
        self._switch_to((self._next() if cooldown else None) or handles[0])

    def _switch_to(self, handle: ModelHandle) -> None:
        self.handle = handle
        self.key = Key()
        self._tries = 0
        self._keys_tried: list[int] = []
        self._attempted.append(handle)

    @property
    def _model(self) -> str:
        return self.handle.provider.model

    def pick_key(self) -> Key:
        """Return the key for the next try on `handle`."""
        self.key = self.handle.server.keys.pick(self._model)
        return self.key

    def succeeded(self) -> FallbackUsed | None:
        """Record that the model has begun to answer. Return a FallbackUsed if it is not the requested one."""
        self.handle.server.answered(self._model, self.key)
        wanted = self._handles[0]
        return None if self.handle is wanted else FallbackUsed(wanted.name, self.handle.name, self._reason)

    def failed(self, failure: ProviderFailed) -> NextStep:
        """Record a failure and return the next step."""
        fault = fault_of(failure)
        notices = self._learn(fault, failure)
        if self._has_key_left(fault):
            return NextStep(notices)
        self._tries += 1
        wait_s = self._wait_s(fault, failure)
        if wait_s is not None:
            return NextStep([*notices, *self._retry_notices(fault, failure, wait_s)], wait_s)
        if not fault.try_fallback and self._ends_all(failure):
            return NextStep(notices, failure=failure)
        before = self.handle
        following = self._give_up(fault, failure)
        if following is None:
            return NextStep(notices, failure=self._end())
        self._switch_to(following)
        message = f"{before.name} failed: {cause_of(failure)}. Trying {following.name}."
        return NextStep([*notices, ProviderNotice("retry", message)])

    def _learn(self, fault: Fault, failure: ProviderFailed) -> list[ProviderNotice]:
        """Start the cooldowns that follow from the failure, and return notices about them."""
        server = self.handle.server
        seconds = cooldown_s(fault, failure)
        if failure.code not in (TOO_LONG, NO_VISION):  # these are not faults of the server
            server.failed(failure)
        if fault.of == "server":
            server.health.start(None, seconds, failure.code)
        if fault is LIMITED:
            server.keys.limited(self.key, self._model, seconds)
        if not refuses_key(fault) or self.key.value is None:
            return []
        server.keys.refused(self.key, None if fault.of == "key" else self._model)
        return [ProviderNotice("key_disabled", key_refused_message(self.handle, self.key, failure))]

    def _most_tries(self, fault: Fault) -> int:
        return fault.tries if self._next() is None else fault.tries_with_fallback

    def _wait_s(self, fault: Fault, failure: ProviderFailed) -> float | None:
        """Return the delay before a retry on the same model; None for no retry."""
        if refuses_key(fault) or not failure.retryable or self._tries >= self._most_tries(fault):
            return None
        wait_s = failure.retry_after_s or self._backoff.delay_s(self._tries)
        if fault is LIMITED and failure.retry_after_s:
            wait_s = self.handle.server.keys.ready_in_s(self._model)  # another key may be ready earlier
        late = wait_s > self._most_wait_s or self._backoff.now() + wait_s >= self._until
        return None if late else wait_s

    def _ends_all(self, failure: ProviderFailed) -> bool:
        """Return whether a rejected request is final: always from the requested model; from a fallback only if
        the prompt is too long, because the agent can shorten it.
        """
        return self.handle is self._handles[0] or failure.code == TOO_LONG

    def _has_key_left(self, fault: Fault) -> bool:
        """Return whether to use another key at once; a key that cools down only if no other model is left."""
        if fault.of not in ("key", "key_here"):
            return False
        self._keys_tried.append(self.key.place)
        keys = self.handle.server.keys
        following = keys.pick(self._model)
        if following.place in self._keys_tried or keys.is_refused(following, self._model):
            return False
        return not keys.cooldown_of(self._model) or (refuses_key(fault) and self._next() is None)

    def _retry_notices(self, fault: Fault, failure: ProviderFailed, wait_s: float) -> list[ProviderNotice]:
        if not wait_s:
            return []
        reason = None if fault is LIMITED else cause_of(failure)
        what = f"failed: {reason}." if reason else "is rate limited."
        attempt, attempts = self._tries + 1, self._most_tries(fault)
        message = f"{self._model} {what} Retrying in {math.ceil(wait_s)} s (attempt {attempt} of {attempts})."
        at, model = round(self._backoff.wall() + wait_s, 3), self._model
        return [ProviderNotice("retry", message, at, wanted=model, reason=reason, attempt=attempt, attempts=attempts)]

    def _give_up(self, fault: Fault, failure: ProviderFailed) -> ModelHandle | None:
        """Give this model up and return the next one, if one is left."""
        keyless = refuses_key(fault) and self.key.value is None  # no key to cool down
        if fault.of == "model" or keyless:
            seconds = cooldown_s(ABSENT if keyless else fault, failure)
            self.handle.server.health.start(self._model, seconds, failure.code)
        if self.handle is self._handles[0]:
            self._reason = failure.code
        self._failed.append(failure)
        return self._next(include_cooling=True)

    def _next(self, *, include_cooling: bool = False) -> ModelHandle | None:
        """Return the next untried model that is not cooling down; or any untried one, with `include_cooling`."""
        left = [handle for handle in self._handles if handle not in self._attempted]
        ready = [handle for handle in left if not handle.server.cooldown_of(handle.provider.model)]
        return next(iter(ready or (left if include_cooling else [])), None)

    def _end(self) -> ProviderFailed:
        """Return the failure of the whole request."""
        if len(self._failed) == 1:
            return self._failed[0]
        failed = dict(zip(self._attempted, self._failed, strict=True))
        wanted_first = sorted(failed, key=self._handles.index)  # it was tried last if it was cooling down
        reasons = " ".join(f"{handle.name}: {failed[handle].message}" for handle in wanted_first)
        first = failed[wanted_first[0]]
        any_retryable = any(failure.retryable for failure in self._failed)
        message = f"None of the models could answer. {reasons}"
        return ProviderFailed(first.code, message, retryable=any_retryable, status=first.status)


def key_refused_message(handle: ModelHandle, key: Key, failure: ProviderFailed) -> str:
    which = f"Key {key.place} of {len(handle.server.keys.keys)}"
    status = f" ({failure.status})" if failure.status else ""
    message = f"{which} of the endpoint {handle.endpoint} was refused{status}"
    return f"{message}: it is not used for ten minutes, as long as there is another."
