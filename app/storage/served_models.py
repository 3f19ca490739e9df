"""Served models: GGUF files of this machine that were added, each with how it is to be served."""

from __future__ import annotations

from typing import Protocol

from app.storage.changes import Change, ChangeWriter


class ServedModelRow(Change, frozen=True):
    """A model file that was added; a later row of its name replaces it.

    `size` and `modified` (in nanoseconds) are those of the file when it was checked; `header` is the JSON of
    `app.models.serving.gguf.Header`. `context` are the tokens of each of `slots` conversations; 0
    `threads` are as many as suit the machine. `forced`: it may start
    although memory seems too short.
    """

    name: str
    path: str
    size: int
    modified: int
    header: str
    context: int
    slots: int
    cache_type: str
    threads: int
    at_start: bool
    forced: bool
    by: str
    at: float


class ServedModelRemoved(Change, frozen=True):
    name: str


class ServedModelStore(ChangeWriter, Protocol):
    async def served_models(self) -> list[ServedModelRow]:
        """All of them, oldest first."""
