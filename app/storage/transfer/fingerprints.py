"""Hashes of rows, to compare two databases: of each table, and of the events of each run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from hashlib import sha256

from msgspec import Struct
from msgspec.msgpack import encode

NUMBER, DIGEST = 8, 16  # bytes of a run's number and of its hash


class Fingerprint:
    """Of the rows of a table, in their order; `by_run`: they begin with the number of a run, of which each has one."""

    def __init__(self, *, by_run: bool = False) -> None:
        self.rows = 0
        self._hash = sha256()
        self._by_run = by_run
        self._runs = bytearray()  # 24 bytes each, of however many there are
        self._run: int | None = None
        self._of_run = sha256()

    def add(self, row: Sequence[object]) -> None:
        encoded = encode(row)
        self.rows += 1
        self._hash.update(encoded)
        if self._by_run:
            self._add_of_run(row[0], encoded)

    def add_all(self, rows: Iterable[Sequence[object]]) -> None:
        for row in rows:
            self.add(row)

    def _add_of_run(self, run: object, encoded: bytes) -> None:
        assert isinstance(run, int)
        if run != self._run:
            self._end_run()
            self._run, self._of_run = run, sha256()
        self._of_run.update(encoded)

    def _end_run(self) -> None:
        if self._run is not None:
            self._runs += self._run.to_bytes(NUMBER, "big", signed=True) + self._of_run.digest()[:DIGEST]
            self._run = None

    @property
    def hash(self) -> str:
        return self._hash.hexdigest()

    @property
    def run_count(self) -> int:
        return len(self.runs) // (NUMBER + DIGEST)

    @property
    def runs(self) -> bytes:
        """Number and hash of each run."""
        self._end_run()
        return bytes(self._runs)


class Difference(Struct, frozen=True):
    rows: tuple[int, int]
    run: int | None  # the number of the first that differs


def difference(one: Fingerprint, other: Fingerprint) -> Difference | None:
    """Return how two tables differ, or None if they have the same rows."""
    if one.rows == other.rows and one.hash == other.hash and one.runs == other.runs:
        return None
    size = NUMBER + DIGEST
    runs = [{data[at : at + size] for at in range(0, len(data), size)} for data in (one.runs, other.runs)]
    numbers = [int.from_bytes(run[:NUMBER], "big", signed=True) for run in runs[0] ^ runs[1]]
    return Difference((one.rows, other.rows), min(numbers, default=None))
