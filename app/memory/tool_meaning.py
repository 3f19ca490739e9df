"""The meaning of tools' texts, for the choice of those that fit a message: by the embedder of the memory.

Vectors are kept in this process. Until all tools of a list have one, nothing is known, so that no run waits for them.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence

from app.memory.embedders.embedder import Embedder, EmbeddingFailed
from app.memory.memories import PAUSE_S
from app.memory.search import CANDIDATES
from app.memory.vectors import VectorIndex

BATCH = 8  # texts after which the vectors of others have their turn
MOST_TEXTS = 4_096
FAILED = "tools are found by words alone for %g s: the embedder %s"
_log = logging.getLogger(__name__)


class ToolMeaning:
    """Finds the tools that are nearest to a text. Tools and texts go to the embedder, which may be another server's."""

    def __init__(self, embedder: Embedder, clock: Callable[[], float] = time.monotonic) -> None:
        self._embedder = embedder
        self._clock = clock
        self._vectors: dict[str, bytes] = {}
        self._embedding: asyncio.Task[None] | None = None
        self._resumes = 0.0  # when the embedder is used again after a failure

    async def nearest(self, text: str, others: Mapping[str, str]) -> Sequence[str]:
        """Return the keys of the nearest others, best first; none while they are not known."""
        if len(others) > MOST_TEXTS or not text.strip() or self._clock() < self._resumes:
            return ()
        if missing := [one for one in others.values() if one not in self._vectors]:
            self._embed_soon(missing, len(others))
            return ()
        rows = [(key, self._vectors[one]) for key, one in others.items()]
        try:
            vector = await self._embedder.embed_query(text)
        except EmbeddingFailed as failure:
            self._pause(failure)
            return ()
        near = await asyncio.to_thread(lambda: VectorIndex(rows).nearest(vector, CANDIDATES))
        return [one.id for one in near]

    def _embed_soon(self, missing: Sequence[str], count: int) -> None:
        if self._embedding is None or self._embedding.done():
            if len(self._vectors) + count > MOST_TEXTS:
                self._vectors.clear()
            self._embedding = asyncio.create_task(self._embed(missing), name="meaning of tools")

    async def _embed(self, texts: Sequence[str]) -> None:
        try:
            for at in range(0, len(texts), BATCH):
                some = texts[at : at + BATCH]
                self._vectors |= zip(some, await self._embedder.embed_passages(some), strict=True)
        except EmbeddingFailed as failure:
            self._pause(failure)

    def _pause(self, failure: EmbeddingFailed) -> None:
        self._resumes = self._clock() + PAUSE_S
        _log.warning(FAILED, PAUSE_S, failure)

    async def known(self) -> None:
        """Wait until nothing is being embedded."""
        if self._embedding:
            await asyncio.wait([self._embedding])

    async def close(self) -> None:
        if self._embedding:
            self._embedding.cancel()
            await self.known()
