"""The keys of one endpoint: the first that may be used is used, those that were refused or limited rest."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from app.models.endpoints.health import Now, Rest, Rests

REFUSED_S = 600.0  # that a refused key is left out, if there is another: somebody may have paid a bill by then
REFUSED, BUSY = "model_auth", "model_busy"  # why a key rests, as codes of failures


@dataclass(frozen=True, slots=True)
class Key:
    """`place` says which of the endpoint's keys it is, from 1; 0 and no value where it needs none."""

    place: int = 0
    value: str | None = field(default=None, repr=False)


class KeyRing:
    """A limit, and most refusals, are for one model: the key may still be good for others."""

    def __init__(self, values: Sequence[str] = (), now: Now = time.monotonic) -> None:
        self.keys = [Key(place, value) for place, value in enumerate(values, start=1)] or [Key()]
        self._rests: Rests[tuple[int, str | None]] = Rests(now)  # by place and model; None is any model

    def pick(self, model: str) -> Key:
        """The first that may be used; if all rest, the one that is soonest back, those that were refused last."""
        return min(self.keys, key=lambda key: (self.is_refused(key, model), self._rests.left_s(self._rest(key, model))))

    def is_refused(self, key: Key, model: str) -> bool:
        rest = self._rest(key, model)
        return rest is not None and rest.why == REFUSED

    def refused(self, key: Key, model: str | None) -> None:
        """The server does not accept the key: for this model, or (None) at all."""
        if key.value is not None:  # who has no key can but go on without
            self._rests.begin((key.place, model), REFUSED_S, REFUSED)

    def limited(self, key: Key, model: str, seconds: float) -> None:
        """The server wants no more of these requests for a while."""
        self._rests.begin((key.place, model), seconds, BUSY)

    def answered(self, key: Key, model: str) -> None:
        self._rests.end((key.place, model))
        self._rests.end((key.place, None))

    def rest_of(self, model: str) -> Rest | None:
        """The rest that ends first, if no key may be used now."""
        rests = [self._rest(key, model) for key in self.keys]
        return None if None in rests else min((rest for rest in rests if rest), key=lambda rest: rest.until)

    def ready_in_s(self, model: str) -> float:
        return self._rests.left_s(self.rest_of(model))

    def told(self) -> dict[str, int]:
        """How many there are, and how many rest for one model at least: refused (`disabled`) or limited (`cooling`)."""
        places: dict[str, set[int]] = {REFUSED: set(), BUSY: set()}
        for (place, _), rest in self._rests.all().items():
            places[rest.why].add(place)
        count = sum(key.value is not None for key in self.keys)
        return {"count": count, "disabled": len(places[REFUSED]), "cooling": len(places[BUSY] - {0})}

    def _rest(self, key: Key, model: str) -> Rest | None:
        return self._rests.of((key.place, None)) or self._rests.of((key.place, model))
