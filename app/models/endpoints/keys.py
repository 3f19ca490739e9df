"""API keys of one endpoint: the first usable one is picked; refused and rate-limited keys cool down."""

from __future__ import annotations

import time
from collections.abc import Sequence

from msgspec import Struct

from app.models.endpoints.health import Cooldown, Cooldowns, Now
from tools.base.hidden_fields import repr_without

REFUSED_S = 600.0  # cooldown of a refused key, if another exists; a billing problem may be solved by then
REFUSED, BUSY = "model_auth", "model_busy"  # reasons for a cooldown, as codes of failures


class Key(Struct, frozen=True):
    """One key. `place` numbers the endpoint's keys from 1; it is 0, without a value, where no key is needed."""

    place: int = 0
    value: str | None = None

    __repr__ = repr_without("value")


class KeyRing:
    """The keys of one endpoint. Rate limits and most refusals hold for one model: others may still use the key."""

    def __init__(self, values: Sequence[str] = (), now: Now = time.monotonic) -> None:
        self.keys = [Key(place, value) for place, value in enumerate(values, start=1)] or [Key()]
        self._cooldowns: Cooldowns[tuple[int, str | None]] = Cooldowns(now)  # by place and model; None is any model

    def pick(self, model: str) -> Key:
        """Return the first usable key; if all cool down, the one that is ready first, refused keys last."""
        if len(self.keys) == 1:
            return self.keys[0]
        return min(
            self.keys, key=lambda key: (self.is_refused(key, model), self._cooldowns.left_s(self._cooldown(key, model)))
        )

    def is_refused(self, key: Key, model: str) -> bool:
        cooldown = self._cooldown(key, model)
        return cooldown is not None and cooldown.why == REFUSED

    def refused(self, key: Key, model: str | None) -> None:
        """Cool down a key that the server refused, for this model or (None) for all."""
        if key.value is not None:  # without a key there is nothing to switch
            self._cooldowns.start((key.place, model), REFUSED_S, REFUSED)

    def limited(self, key: Key, model: str, seconds: float) -> None:
        """Cool down a rate-limited key for this model."""
        self._cooldowns.start((key.place, model), seconds, BUSY)

    def answered(self, key: Key, model: str) -> None:
        self._cooldowns.end((key.place, model))
        self._cooldowns.end((key.place, None))

    def cooldown_of(self, model: str) -> Cooldown | None:
        """Return the cooldown that ends first if no key is usable now."""
        cooldowns = [self._cooldown(key, model) for key in self.keys]
        return None if None in cooldowns else min(filter(None, cooldowns), key=lambda cooldown: cooldown.until)

    def ready_in_s(self, model: str) -> float:
        return self._cooldowns.left_s(self.cooldown_of(model))

    def status(self) -> dict[str, int]:
        """Count the keys, and those refused (`disabled`) or rate-limited (`cooling`) for at least one model."""
        places: dict[str, set[int]] = {REFUSED: set(), BUSY: set()}
        for (place, _), cooldown in self._cooldowns.all().items():
            places[cooldown.why].add(place)
        count = sum(key.value is not None for key in self.keys)
        return {"count": count, "disabled": len(places[REFUSED]), "cooling": len(places[BUSY] - {0})}

    def _cooldown(self, key: Key, model: str) -> Cooldown | None:
        return self._cooldowns.of((key.place, None)) or self._cooldowns.of((key.place, model))
