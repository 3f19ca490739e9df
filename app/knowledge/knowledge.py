"""The search in knowledge, for one call: what is found is compared with what its principal may read at that moment."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct

from app.core.labels import NO_LABELS, Labels, joined
from app.knowledge.files import is_unchanged
from app.knowledge.index import Hit, KnowledgeIndex, Reach
from app.knowledge.indexer import Indexer, labels_at, place_of_documents
from app.labels.run_labels import RunLabels
from app.memory.embedders.embedder import EmbeddingFailed
from app.memory.search import CANDIDATES, FLOOR, fused
from app.memory.vectors import Near
from app.policy.gate import Gate
from app.storage.changes import StoreFailed
from tools.base.access import FoundPassage, FoundPassages
from tools.base.outcome import ToolFailed
from tools.base.workspace import home_of
from tools.catalogue import TOOLS
from tools.toolbox import Allow

_BY_NAME = {tool.name: tool for tool in TOOLS}
READ_FILE, READ_DOCUMENT = _BY_NAME["read_file"], _BY_NAME["read_document"]
MOST_LEFT_OUT = 100  # of one search: each is looked at anew
OTHERWISE = "A damaged index is made anew: search again later, or look with list_files."
NOTHING: Sequence[Near] = ()
MOST_QUERY = 2_000  # characters of a query that are searched for their meaning


class Knowledge(Struct, frozen=True):
    """Search by words and by meaning in the index."""

    index: KnowledgeIndex
    indexer: Indexer

    async def search(self, query: str, reach: Reach, labels: Labels = NO_LABELS) -> list[Hit]:
        """Return the best matches, best first. Raises StoreFailed."""
        by_words = await asyncio.to_thread(self.index.matches, query, reach)
        near, embedded = (NOTHING, ()) if labels & self.indexer.withheld else await self.near(query, reach)
        without_vector = set(by_words).difference(embedded) if near else ()
        best = list(fused(by_words, near, FLOOR, without_vector))[:CANDIDATES]
        return await asyncio.to_thread(self.index.hits, best, reach)

    async def near(self, query: str, reach: Reach) -> tuple[Sequence[Near], Sequence[str]]:
        """Return what is nearest by meaning, if that can be searched now, and all that has a vector.

        Raises StoreFailed.
        """
        embedder = self.indexer.embedder
        if embedder is None or time.monotonic() < self.indexer.resumes:
            return NOTHING, ()
        vectors = await asyncio.to_thread(self.index.vectors, embedder.name, reach)
        if not vectors.ids:
            return NOTHING, ()
        try:
            vector = await embedder.embed_query(query[:MOST_QUERY])
        except EmbeddingFailed as failure:
            self.indexer.failed(failure)
            return NOTHING, ()
        return await asyncio.to_thread(vectors.nearest, vector, CANDIDATES), vectors.ids


class CallKnowledge(Struct, frozen=True):
    """`own` is the workspace of the principal, `workspace` that of the run, which may be a copy.

    Implements `tools.base.access.KnowledgeAccess`.
    """

    knowledge: Knowledge
    gate: Gate
    own: Path
    workspace: Path
    session: str
    labels: RunLabels | None = None

    async def search(self, query: str, folder: Sequence[str], limit: int) -> FoundPassages:
        if not query.strip():
            raise ToolFailed("query is empty", ": give the words or the question to search for.")
        indexer, place = self.knowledge.indexer, str(self.own)
        await indexer.catch_up()
        below = self._prefix + "/".join((*folder, ""))
        reach = Reach((place,) if below else (place, place_of_documents(self.gate.principal.name)), below)
        try:
            hits = await self.knowledge.search(query, reach, self.labels.labels if self.labels else NO_LABELS)
            return await self._shown(hits, limit, sum(indexer.pending.get(one, 0) for one in reach.places))
        except StoreFailed as failure:
            raise ToolFailed(f"{failure}", f" {OTHERWISE}") from None

    @property
    def _prefix(self) -> str:
        """The folder of a run that works in one of the workspace, with a slash; else empty."""
        return "/".join((*self.workspace.relative_to(home_of(self.workspace)).parts, ""))

    async def _shown(self, hits: Sequence[Hit], limit: int, pending: int) -> FoundPassages:
        passages, labels, left_out, untrusted = dict[str, FoundPassage](), list[Labels](), 0, False
        for hit in hits:
            if len(passages) >= limit or left_out >= MOST_LEFT_OUT:
                break
            if hit.id in passages:  # of another file with the same content
                continue
            shown = await (self._of_file(hit) if hit.place == str(self.own) else self._of_document(hit))
            if shown is None:
                left_out += 1
                continue
            passages[hit.id] = shown
            untrusted = untrusted or shown.untrusted
            if self.labels:
                services, store = self.labels.services, self.knowledge.indexer.store
                labels.append(await labels_at(services, store, hit.place, hit.path))
        return FoundPassages(
            list(passages.values()),
            searched=", ".join(self.knowledge.indexer.folders),
            left_out=left_out,
            pending=pending,
            untrusted=untrusted,
            labels=tuple(sorted(joined(*labels))),
        )

    async def _of_file(self, hit: Hit) -> FoundPassage | None:
        """Return the passage if `read_file` would show it now."""
        read_file, path = self.gate.classification.of(READ_FILE), hit.path.removeprefix(self._prefix)
        if not isinstance(self.gate.decide(read_file, {"path": path}), Allow):
            return None
        if not await asyncio.to_thread(is_unchanged, self.workspace, path, hit.stamp, hit.digest):
            return None
        return FoundPassage(_cited(path, hit), hit.passage.text, read_file.untrusted)

    async def _of_document(self, hit: Hit) -> FoundPassage | None:
        store, read_document = self.knowledge.indexer.store, self.gate.classification.of(READ_DOCUMENT)
        if not isinstance(self.gate.decide(read_document, {"document": hit.path}), Allow):
            return None
        row = await store.document(hit.path)
        if row is None or str(row.version) != hit.stamp:
            return None
        if await store.owner_of(row.session) != self.gate.principal.name:
            return None
        untrusted = row.session != self.session and await store.tainted(row.session)
        return FoundPassage(_cited(f'document {row.id} "{row.title}"', hit), hit.passage.text, untrusted)


def _cited(name: str, hit: Hit) -> str:
    one = hit.passage
    if one.mark:
        return f"{name} {one.mark}"
    return f"{name}:{one.first}" if one.first == one.last else f"{name}:{one.first}-{one.last}"
