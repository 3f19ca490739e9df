"""The vectors of an owner in memory, and those nearest to another: one product of a matrix, in a thread.

Exact: 10,000 rows of 384 numbers take 1 ms with numpy, which the extra `embeddings` brings, and 0.3 s without.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from functools import cache
from heapq import nlargest
from operator import itemgetter, mul
from types import ModuleType

from msgspec import Struct

MOST_BYTES = 128 << 20  # of all owners' vectors
FLOAT = 4  # bytes


@cache
def numpy() -> ModuleType | None:
    try:
        import numpy  # an extra, with 0.1 s
    except ImportError:
        return None
    return numpy


class Near(Struct, frozen=True):
    id: str
    similarity: float


class VectorIndex:
    """The vectors of one owner, each as long as the first."""

    def __init__(self, rows: Sequence[tuple[str, bytes]]) -> None:
        self._width = len(rows[0][1]) if rows else 0
        fitting = [row for row in rows if len(row[1]) == self._width]
        self.ids = [row[0] for row in fitting]
        self._matrix = b"".join(row[1] for row in fitting)

    @property
    def size(self) -> int:
        return len(self._matrix)

    def nearest(self, vector: bytes, limit: int) -> list[Near]:
        """Return the nearest, best first. Blocks."""
        if not self.ids or len(vector) != self._width:
            return []
        return [Near(self.ids[at], round(float(how), 4)) for at, how in self._scored(vector, limit)]

    def _scored(self, vector: bytes, limit: int) -> list[tuple[int, float]]:
        np = numpy()
        if np is None:
            return nlargest(limit, enumerate(self._products(vector)), key=itemgetter(1))
        matrix = np.frombuffer(self._matrix, dtype=np.float32).reshape(len(self.ids), self._width // FLOAT)
        # Not `@`, whose threads wait for each other, and for a processor that others use, many times as long.
        scores = np.einsum("ij,j->i", matrix, np.frombuffer(vector, dtype=np.float32))
        few = min(limit, len(self.ids))
        best = np.argpartition(-scores, few - 1)[:few]
        return sorted(((int(at), scores[at]) for at in best), key=itemgetter(1), reverse=True)

    def _products(self, vector: bytes) -> list[float]:
        one, every = memoryview(vector).cast("f").tolist(), memoryview(self._matrix).cast("f")
        width = len(one)
        return [sum(map(mul, one, every[at : at + width])) for at in range(0, len(every), width)]


class VectorCache:
    """The indexes that were used last."""

    def __init__(self) -> None:
        self._indexes: OrderedDict[str, VectorIndex] = OrderedDict()

    def of(self, owner: str) -> VectorIndex | None:
        if index := self._indexes.get(owner):
            self._indexes.move_to_end(owner)
        return index

    def keep(self, owner: str, index: VectorIndex) -> None:
        self.drop(owner)
        self._indexes[owner] = index
        while len(self._indexes) > 1 and sum(one.size for one in self._indexes.values()) > MOST_BYTES:
            self._indexes.popitem(last=False)

    def drop(self, owner: str) -> None:
        self._indexes.pop(owner, None)
