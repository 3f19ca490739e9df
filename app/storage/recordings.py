"""Parts of recordings: what a run was made of beside its log."""

from __future__ import annotations

from typing import Protocol

from msgspec import Struct

from app.storage.changes import Change, ChangeWriter
from tools.base.hidden_fields import repr_without


class RecordingRow(Change, frozen=True):
    """One part, in the order of `at` (Unix time in microseconds); `data` is compressed JSON of its `kind`."""

    run: str
    at: int
    kind: str
    data: bytes

    __repr__ = repr_without("data")


class RunCounts(Struct, frozen=True):
    """The number of runs that have ended, and the first part of the newest recording, None without one."""

    ended: int = 0
    newest: bytes | None = None


class RecordingStore(ChangeWriter, Protocol):
    async def recording(self, run: str) -> list[RecordingRow]:
        """The parts of a run's recording in their order; none of a run that was not recorded."""
