"""Whom to ask next, and when, after a failure before the first word. Decides only: whoever asks waits and tells."""

from __future__ import annotations

import asyncio
import math
import random
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from app.core.provider import ProviderFailed, Switched, Told
from app.models.endpoints.faults import ABSENT, LIMITED, TOO_LONG, Fault, fault_of, refuses_key, rest_s
from app.models.endpoints.health import Now
from app.models.endpoints.keys import Key
from app.models.endpoints.model_handle import Target
from app.models.endpoints.vision_fallback import NO_VISION

FIRST_S, MOST_S = 0.5, 10.0  # of waiting between two tries, doubled each time
HONOURED_S = 30.0  # the longest wait that a server may ask for


@dataclass(frozen=True, slots=True)
class Patience:
    """How waiting is done; `chance` is evenly between 0 and 1."""

    now: Now = time.monotonic
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    chance: Callable[[], float] = random.random

    def backoff_s(self, tried: int) -> float:
        """Half of the time or more, so that those who failed together do not come back together."""
        return (0.5 + self.chance() / 2) * min(MOST_S, FIRST_S * 2.0 ** (tried - 1))


@dataclass(frozen=True, slots=True)
class Next:
    """What to tell, and how long to wait, before the next question; if there is none, why nobody answers."""

    told: list[Told]
    wait_s: float = 0.0
    failure: ProviderFailed | None = None


class Trip:
    """One request's way along the targets: those that rest are passed over as long as there are others.

    No wait is longer than `most_wait_s`, nor does it reach beyond `until`.
    """

    def __init__(
        self, targets: Sequence[Target], patience: Patience, most_wait_s: float = math.inf, until: float = math.inf
    ) -> None:
        self._targets = targets
        self._patience = patience
        self._most_wait_s = min(HONOURED_S, most_wait_s)
        self._until = until
        self._asked: list[Target] = []
        self._failed: list[ProviderFailed] = []  # of each that was asked, why it could not answer
        rest = targets[0].host.rest_of(targets[0].provider.model)
        self._reason = rest.why if rest else ""  # why the first does not answer
        self._turn_to(self._next() or targets[0])

    def _turn_to(self, target: Target) -> None:
        self.target = target
        self.key = Key()
        self._tried = 0
        self._keys_tried: set[int] = set()
        self._asked.append(target)

    @property
    def _model(self) -> str:
        return self.target.provider.model

    def ask(self) -> Key:
        """The key for the next question, to `target`."""
        self.key = self.target.host.keys.pick(self._model)
        return self.key

    def answers(self) -> Switched | None:
        """The target has begun to answer. If it is not the one that was wanted, that is to be told."""
        self.target.host.answered(self._model, self.key)
        wanted = self._targets[0]
        return None if self.target is wanted else Switched(wanted.name, self.target.name, self._reason)

    def failed(self, failure: ProviderFailed) -> Next:
        """It did not answer."""
        fault = fault_of(failure)
        told = self._learn(fault, failure)
        if self._has_key_left(fault):
            return Next(told)
        self._tried += 1
        wait_s = self._wait_s(fault, failure)
        if wait_s is not None:
            return Next([*told, *self._waits(failure, wait_s)], wait_s)
        if not fault.elsewhere and self._ends_all(failure):
            return Next(told, failure=failure)
        before, following = self.target, self._give_up(fault, failure)
        if following is None:
            return Next(told, failure=self._end())
        self._turn_to(following)
        said = f"{before.name} could not answer ({failure.code}): {following.name} is asked."
        return Next([*told, Told("retry", said)])

    def _learn(self, fault: Fault, failure: ProviderFailed) -> list[Told]:
        """What rests from now on."""
        host, seconds = self.target.host, rest_s(fault, failure)
        if failure.code not in (TOO_LONG, NO_VISION):  # which are no trouble of the server's
            host.failed(failure)
        if fault.of == "host":
            host.health.dead(seconds, failure.code)
        if fault is LIMITED:
            host.keys.limited(self.key, self._model, seconds)
        if not refuses_key(fault) or self.key.value is None:
            return []
        host.keys.refused(self.key, None if fault.of == "key" else self._model)
        return [Told("key_disabled", refused(self.target, self.key, failure))]

    def _wait_s(self, fault: Fault, failure: ProviderFailed) -> float | None:
        """How long to wait before the same target is asked again; None if it is not."""
        tries = fault.tries if self._next() is None else fault.beside
        if refuses_key(fault) or not failure.retryable or self._tried >= tries:
            return None
        wait_s = failure.retry_after_s or self._patience.backoff_s(self._tried)
        if fault is LIMITED and failure.retry_after_s:
            wait_s = self.target.host.keys.ready_in_s(self._model)  # another key may be ready before
        late = wait_s > self._most_wait_s or self._patience.now() + wait_s >= self._until
        return None if late else wait_s

    def _ends_all(self, failure: ProviderFailed) -> bool:
        """The wanted model's word on the request holds for all; that of one that stands in (it cannot see, say) for
        itself alone, but a prompt can be shortened for it."""
        return self.target is self._targets[0] or failure.code == TOO_LONG

    def _has_key_left(self, fault: Fault) -> bool:
        """Whether another key is to be used at once; one that rests only where nobody else can be asked."""
        if fault.of not in ("key", "key_here"):
            return False
        self._keys_tried.add(self.key.place)
        keys = self.target.host.keys
        following = keys.pick(self._model)
        if following.place in self._keys_tried or keys.is_refused(following, self._model):
            return False
        return not keys.rest_of(self._model) or (refuses_key(fault) and self._next() is None)

    def _waits(self, failure: ProviderFailed, wait_s: float) -> list[Told]:
        if not wait_s:
            return []
        said = f"{self.target.name} could not answer ({failure.code}): it is asked again in {wait_s:.1f} s"
        return [Told("retry", f"{said}, for the {ordinal(self._tried + 1)} time.")]

    def _give_up(self, fault: Fault, failure: ProviderFailed) -> Target | None:
        """The target is not asked any more; who is to be asked next, if there is anybody."""
        keyless = refuses_key(fault) and self.key.value is None  # there is no key that could rest
        if fault.of == "model" or keyless:
            self.target.host.health.rests(self._model, rest_s(ABSENT if keyless else fault, failure), failure.code)
        if self.target is self._targets[0]:
            self._reason = failure.code
        self._failed.append(failure)
        return self._next(resting=True)

    def _next(self, *, resting: bool = False) -> Target | None:
        """The first that was not asked yet and does not rest; or, if all do and `resting` ones will do, one of them."""
        left = [target for target in self._targets if target not in self._asked]
        awake = [target for target in left if not target.host.rest_of(target.provider.model)]
        return next(iter(awake or (left if resting else [])), None)

    def _end(self) -> ProviderFailed:
        """Why nobody answers."""
        if len(self._failed) == 1:
            return self._failed[0]
        failed = dict(zip(self._asked, self._failed, strict=True))
        wanted_first = sorted(failed, key=self._targets.index)  # which was asked last if it was resting
        said = " ".join(f"{target.name}: {failed[target].message}" for target in wanted_first)
        first, any_retryable = failed[wanted_first[0]], any(failure.retryable for failure in self._failed)
        message = f"None of the models could answer. {said}"
        return ProviderFailed(first.code, message, retryable=any_retryable, status=first.status)


def refused(target: Target, key: Key, failure: ProviderFailed) -> str:
    which = f"Key {key.place} of {len(target.host.keys.keys)}"
    status = f" ({failure.status})" if failure.status else ""
    said = f"{which} of the endpoint {target.endpoint} was refused{status}"
    return f"{said}: it is left out for ten minutes, as long as there is another."


def ordinal(number: int) -> str:
    return {2: "second", 3: "third"}.get(number, f"{number}th")
