"""Named states of the whole server."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from app.storage.changes import Change, ChangeWriter


@dataclass(frozen=True, slots=True)
class StateRow(Change):
    """A named state; a later one replaces it."""

    name: str
    value: str


class StateStore(ChangeWriter, Protocol):
    async def state(self, name: str) -> str | None: ...
