"""Token estimates from bytes, a learned correction factor, and an LRU cache for counts."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, TypeVar

from msgspec import Struct

CHARACTERS_PER_TOKEN = 4
BYTES_PER_TOKEN = 2  # of other scripts, for small models with few such words in their vocabulary
LOWEST, HIGHEST = 0.5, 4.0
FAR_OFF = 8.0  # a larger deviation means that the server counts something else
FALLS_BY = 0.2  # fraction of the distance per step

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


def estimated(text: str) -> float:
    """Estimate the tokens of a text, rather too high than too low."""
    if text.isascii():
        return len(text) / CHARACTERS_PER_TOKEN
    plain = len(text.encode("ascii", "ignore"))
    others = len(text.encode("utf-8", "surrogatepass")) - plain
    return plain / CHARACTERS_PER_TOKEN + others / BYTES_PER_TOKEN


class Scale(Struct):
    """Ratio of real to counted tokens. It rises at once and falls slowly: too high a count only trims early."""

    value: float = 1.0

    def learn(self, counted: float, real: float, used: float | None = None) -> None:
        """Adjust to a real count; `counted` was computed with the scale `used` (None: the current one)."""
        if counted <= 0 or real <= 0 or not 1 / FAR_OFF <= real / counted <= FAR_OFF:
            return
        right = (self.value if used is None else used) * real / counted
        if right < self.value:
            right = self.value - (self.value - right) * FALLS_BY
        self.value = min(max(right, LOWEST), HIGHEST)


class LRUCache(Generic[K, V]):
    """Cache of the `most` entries that were used last."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._kept: dict[K, V] = {}

    def __contains__(self, key: K) -> bool:
        return key in self._kept

    @property
    def items(self) -> list[tuple[K, V]]:
        return [*self._kept.items()]

    def get(self, key: K) -> V | None:
        value = self._kept.pop(key, None)
        if value is not None:
            self._kept[key] = value
        return value

    def put(self, key: K, value: V) -> None:
        self._kept.pop(key, None)
        self._kept[key] = value
        if len(self._kept) > self._most:
            del self._kept[next(iter(self._kept))]
