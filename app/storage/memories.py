"""Memories: what is recalled in later conversations of their owner."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Protocol

from msgspec import Struct

from app.storage.changes import Change, ChangeWriter

MODEL, PERSON, EXTRACTION = "model", "person", "extraction"  # authors


class MemoryRow(Change, frozen=True):
    """A memory. `untrusted`: words of third parties may have brought it.

    `session`, `run` and `message`, a position, are where it comes from; empty if its owner has written it. `digest` is
    of the text, which an owner has once; `words` is the text as the index has it; `labels` is a JSON list, sorted.
    """

    id: str
    owner: str
    digest: str
    kind: str
    text: str
    words: str
    untrusted: bool
    author: str
    session: str
    run: str
    message: int
    labels: str
    created: float
    updated: float

    @property
    def label_names(self) -> frozenset[str]:
        """The sensitivity labels of the data that it was made of."""
        return frozenset(json.loads(self.labels))


def dumped_labels(labels: Iterable[str]) -> str:
    return json.dumps(sorted(set(labels)))


class MemoryDeleted(Change, frozen=True):
    id: str
    owner: str


class MemoriesOfSessionDeleted(Change, frozen=True):
    owner: str
    session: str


class MemoriesDeleted(Change, frozen=True):
    """All memories of an owner are deleted."""

    owner: str


class VectorRow(Change, frozen=True):
    """The vector of the text with this digest, float32, by the embedder of this name."""

    memory: str
    owner: str
    digest: str
    embedder: str
    vector: bytes


class MemoryJob(Change, frozen=True):
    """A run whose messages from `begins` to `ends` are still to be read for memories, begun `tries` times."""

    run: str
    owner: str
    session: str
    begins: int
    ends: int
    tries: int
    created: float


class MemoryJobDone(Change, frozen=True):
    run: str


class Unembedded(Struct, frozen=True):
    """A memory that has no vector of the embedder."""

    id: str
    digest: str
    text: str


class MemoryFilter(Struct, frozen=True):
    """Which memories to list: of one conversation, untrusted ones or the others, or all."""

    session: str | None = None
    untrusted: bool | None = None


ALL = MemoryFilter()


class MemoryStore(ChangeWriter, Protocol):
    async def memory(self, memory: str) -> MemoryRow | None: ...

    async def memories(
        self, owner: str, limit: int, before: str | None = None, only: MemoryFilter = ALL
    ) -> list[MemoryRow]:
        """Memories of an owner, the latest changed first; with `before` only those that follow that one."""

    async def memories_named(self, owner: str, ids: Sequence[str]) -> list[MemoryRow]:
        """Those of the owner among `ids`, in any order."""

    async def same_memory(self, owner: str, digest: str) -> MemoryRow | None: ...

    async def memory_count(self, owner: str, only: MemoryFilter = ALL) -> int: ...

    async def memory_matches(self, owner: str, words: Sequence[Sequence[str]], limit: int) -> list[str]:
        """The ids of the best matches by BM25: memories with any of `words`, of each one a sequence of index words."""

    async def memory_vectors(self, owner: str, embedder: str) -> list[tuple[str, bytes]]: ...

    async def unembedded_memories(
        self, owner: str, embedder: str, limit: int, without: Sequence[str] = ()
    ) -> list[Unembedded]:
        """Memories without a vector of the embedder, none that has a label of `without`."""

    async def memory_jobs(self, limit: int) -> list[MemoryJob]:
        """The oldest jobs."""

    async def memory_job_count(self) -> int: ...
