"""The memories of all owners: stored, changed, deleted and searched. The caller chooses the owner, never the model.

A vector is made of a new or changed text by a task beside the caller. A search waits a moment for it; until then words
find it.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from itertools import islice
from secrets import token_hex

from msgspec import Struct
from msgspec.structs import replace

from app.core.labels import NO_LABELS, NO_POLICY, LabelPolicy, Labels, joined
from app.memory.embedders.embedder import BATCH, Embedder, EmbeddingFailed
from app.memory.limits import MOST_PAGE, MemoryFull, UnfitMemory, kind_of, text_of
from app.memory.search import CANDIDATES, FLOOR, FoundMemory, fused
from app.memory.vectors import Near, VectorCache, VectorIndex
from app.memory.words import as_indexed, digest_of, search_words
from app.redaction.redactor import Redactor
from app.replicas.peers import Alone, Peers
from app.storage.changes import Change, StoreFailed
from app.storage.memories import (
    PERSON,
    MemoriesDeleted,
    MemoriesOfSessionDeleted,
    MemoryDeleted,
    MemoryFilter,
    MemoryRow,
    MemoryStore,
    VectorRow,
    dumped_labels,
)

FULL = "There are {most:,} memories, which is the most (memory_rows). Delete some first."
SAME = "text: there is a memory with this text already, {id}."
EMBEDDINGS = "embeddings"  # the name of the embedder in rules of labels
FRESH_S = 0.3  # that a search waits for vectors of texts that were stored just before it
PAUSE_S = 60.0  # without vectors after the embedder has failed, so that not every turn waits for it
_log = logging.getLogger(__name__)


class Source(Struct, frozen=True):
    """The source of a memory. `untrusted`: its conversation held untrusted text. `labels` are those it carried."""

    author: str = PERSON
    session: str = ""
    run: str = ""
    message: int = 0
    untrusted: bool = False
    labels: Labels = NO_LABELS


class Memories:
    """`embedder` makes the vectors; without one, words alone are searched. Methods raise StoreFailed.

    Texts with labels that the `policy` does not let the embedder have are not embedded: words alone find them.
    """

    def __init__(
        self,
        store: MemoryStore,
        redactor: Redactor,
        most_rows: int,
        embedder: Embedder | None = None,
        clock: Callable[[], float] = time.time,
        *,
        policy: LabelPolicy = NO_POLICY,
        peers: Peers | None = None,
    ) -> None:
        self.store = store
        self.embedder = embedder
        leaves = embedder is not None and not embedder.is_local
        self._withheld = policy.withheld(policy.names, EMBEDDINGS, None) if leaves else NO_LABELS
        self._redactor = redactor
        self._most_rows = most_rows
        self._clock = clock
        self._vectors = VectorCache()
        self._changes = 0  # of vectors
        self._peers = peers or Alone()
        self._embedding: dict[str, asyncio.Task[None]] = {}
        self.jobs = asyncio.Event()  # set when a run has left a job of extraction
        self._resumes = 0.0  # when the embedder is used again after a failure

    @property
    def withholds(self) -> bool:
        """Return whether rules of labels keep texts from the embedder."""
        return self._withheld != NO_LABELS

    async def remember(self, owner: str, text: str, kind: str, source: Source) -> tuple[MemoryRow, bool]:
        """Store a memory; return it, and False if its owner has this text. Raises UnfitMemory.

        A text that untrusted words brought becomes the owner's once it comes from a conversation without any.
        """
        text, kind = text_of(self._redactor.redact(text)), kind_of(kind)
        async with self._turn(owner):
            known = await self.store.same_memory(owner, digest_of(text))
            if known is None and await self.store.memory_count(owner) >= self._most_rows:
                raise MemoryFull(FULL.format(most=self._most_rows))
            if known and (source.untrusted or not known.untrusted):
                return known, False
            row = self._row(owner, text, kind, source)
            if known:
                labels = dumped_labels(joined(known.label_names, source.labels))
                row = replace(row, id=known.id, created=known.created, labels=labels)
            await self.store.write([row])
        self.embed_soon(owner)
        return row, known is None

    def _row(self, owner: str, text: str, kind: str, source: Source) -> MemoryRow:
        now = self._clock()
        return MemoryRow(
            id=f"mem_{token_hex(10)}",
            owner=owner,
            digest=digest_of(text),
            kind=kind,
            text=text,
            words=as_indexed(text),
            untrusted=source.untrusted,
            author=source.author,
            session=source.session,
            run=source.run,
            message=source.message,
            labels=dumped_labels(source.labels),
            created=now,
            updated=now,
        )

    def rows_of(self, owner: str, drafts: Sequence[tuple[str, str]], source: Source) -> list[MemoryRow]:
        """Rows of texts and their kinds, to be stored by the caller; those that do not fit are left out."""
        rows = dict[str, MemoryRow]()
        for text, kind in drafts:
            with suppress(UnfitMemory):
                row = self._row(owner, text_of(self._redactor.redact(text)), kind_of(kind), source)
                rows.setdefault(row.digest, row)
        return list(rows.values())

    async def add_with(self, owner: str, rows: Sequence[MemoryRow], change: Change) -> None:
        """Store those of the rows that are new and have room, and the change, in one transaction."""
        async with self._turn(owner):
            room = self._most_rows - await self.store.memory_count(owner)
            new = [row for row in rows if await self.store.same_memory(owner, row.digest) is None][: max(0, room)]
            await self.store.write([*new, change])
        if new:
            self.embed_soon(owner)

    async def edit(
        self, row: MemoryRow, *, text: str | None = None, kind: str | None = None, untrusted: bool | None = None
    ) -> MemoryRow:
        """Raises UnfitMemory, KeyError if it is gone."""
        text = row.text if text is None else text_of(self._redactor.redact(text))
        kind = row.kind if kind is None else kind_of(kind)
        async with self._turn(row.owner):
            current = await self.store.memory(row.id)
            if current is None:
                raise KeyError(row.id)
            other = await self.store.same_memory(row.owner, digest_of(text))
            if other and other.id != row.id:
                raise UnfitMemory(SAME.format(id=other.id))
            marked = current.untrusted if untrusted is None else untrusted
            row = replace(
                current,
                **{"text": text, "kind": kind, "untrusted": marked, "updated": self._clock()},
                **{"digest": digest_of(text), "words": as_indexed(text)},
            )
            await self.store.write([row])
            self.forget_vectors(row.owner)
        self.embed_soon(row.owner)
        return row

    async def delete(self, row: MemoryRow) -> None:
        await self._delete(row.owner, MemoryDeleted(row.id, row.owner))

    async def delete_many(self, owner: str, session: str | None = None) -> int:
        """Delete all memories of an owner, or those of one conversation; return how many."""
        count = await self.store.memory_count(owner, MemoryFilter(session))
        await self._delete(owner, MemoriesOfSessionDeleted(owner, session) if session else MemoriesDeleted(owner))
        return count

    async def _delete(self, owner: str, change: Change) -> None:
        async with self._turn(owner):
            await self.store.write([change])
            self.forget_vectors(owner)

    async def search(
        self, owner: str, query: str, limit: int, *, floor: float = FLOOR, labels: Labels = NO_LABELS
    ) -> list[FoundMemory]:
        """Return the best matches, best first. A query without words finds what is near to it, or nothing.

        A query with labels that the embedder may not have goes by words alone.
        """
        by_words = await self.store.memory_matches(owner, search_words(query), CANDIDATES)
        near = [] if labels & self._withheld else await self.near(owner, query)
        best = dict(islice(fused(by_words, near, floor).items(), min(limit, MOST_PAGE)))
        rows = {row.id: row for row in await self.store.memories_named(owner, list(best))} if best else {}
        return [FoundMemory(rows[one], similarity) for one, similarity in best.items() if one in rows]

    async def near(self, owner: str, query: str) -> list[Near]:
        """Return what is nearest to the query by its meaning; nothing where that cannot be searched now."""
        if self.embedder is None or self._clock() < self._resumes or not query.strip():
            return []
        index = await self._index(owner, self.embedder)
        if not index.ids and owner not in self._embedding:
            return []
        try:
            vector = await self.embedder.embed_query(query)
        except EmbeddingFailed as failure:
            self._failed(failure)
            return []
        if making := self._embedding.get(owner):
            await asyncio.wait([making], timeout=FRESH_S)
        index = await self._index(owner, self.embedder)
        return await asyncio.to_thread(index.nearest, vector, CANDIDATES)

    async def _index(self, owner: str, embedder: Embedder) -> VectorIndex:
        index = self._vectors.of(owner)
        if index is None:
            changes = self._changes
            rows = await self.store.memory_vectors(owner, embedder.name)
            index = await asyncio.to_thread(VectorIndex, rows)
            if changes == self._changes:  # else it may lack what was stored meanwhile
                self._vectors.keep(owner, index)
            self.embed_soon(owner)
        return index

    def embed_soon(self, owner: str) -> None:
        """Make the vectors that an owner's memories lack, in a task of its own."""
        if self.embedder and owner not in self._embedding and self._clock() >= self._resumes:
            task = asyncio.create_task(self._embed_missing(owner, self.embedder), name="embeddings")
            self._embedding[owner] = task

    async def embedded(self, owner: str) -> None:
        """Wait until nothing is being embedded for an owner."""
        while task := self._embedding.get(owner):
            await asyncio.wait([task])

    async def _embed_missing(self, owner: str, embedder: Embedder) -> None:
        without = sorted(self._withheld)
        try:
            while missing := await self.store.unembedded_memories(owner, embedder.name, BATCH, without):
                vectors = await embedder.embed_passages([one.text for one in missing])
                made = zip(missing, vectors, strict=True)
                await self.store.write([VectorRow(one.id, owner, one.digest, embedder.name, v) for one, v in made])
                self.forget_vectors(owner)
        except EmbeddingFailed as failure:
            self._failed(failure)
        except StoreFailed as failure:
            _log.warning("memories of %s not embedded, retrying later: %s", owner, failure)
        finally:
            del self._embedding[owner]

    def forget_vectors(self, owner: str) -> None:
        """Read the owner's vectors anew at the next search."""
        self._changes += 1
        self._vectors.drop(owner)

    def forget_all_vectors(self) -> None:
        self._changes += 1
        self._vectors = VectorCache()

    def _failed(self, failure: EmbeddingFailed) -> None:
        self._resumes = self._clock() + PAUSE_S
        self.forget_all_vectors()  # read anew after the pause, when what has no vectors yet is found
        name = self.embedder.name if self.embedder else ""
        _log.warning("memory is searched by words alone for %g s: the embedder %s %s", PAUSE_S, name, failure)

    def _turn(self, owner: str) -> AbstractAsyncContextManager[None]:
        return self._peers.lock("memories", owner)

    async def close(self) -> None:
        for task in list(self._embedding.values()):
            task.cancel()
            await asyncio.wait([task])
        if self.embedder:
            await self.embedder.close()
