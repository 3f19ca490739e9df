"""Embedders, and what is taken out of their vectors before these are compared.

Vectors of most models lie close together: of multilingual E5 small, texts without anything in common are 0.78 similar,
and a question is closer to a fact of its own language than to the one that answers it. So the mean of texts of no
interest is subtracted, and a part of what their languages differ in (see `background`). What remains is comparable for
any model: about 0 for texts without anything in common.
"""

from __future__ import annotations

import asyncio
import math
from array import array
from collections.abc import Sequence
from contextlib import suppress
from operator import mul
from typing import Protocol

from msgspec import Struct

from app.memory.embedders.background import QUESTIONS, STATEMENTS

QUERY_LIMIT_S = 3.0  # for the vector of a search, without which it goes by words alone
PASSAGES_LIMIT_S = 60.0
BATCH = 16  # texts of a request
LANGUAGE_SHARE = 0.4  # of what languages differ in: all of it would lose what tells facts apart
VERSION = 1  # of the texts and of the arithmetic: vectors of another version are made anew


class EmbeddingFailed(Exception):
    """No vectors were made. The message is the predicate of a sentence."""


class RawEmbedder(Protocol):
    """A model that embeds. Its vectors are float32 in the byte order of this machine.

    `is_local`: it runs in this process, which no text leaves.
    """

    @property
    def is_local(self) -> bool: ...

    @property
    def name(self) -> str: ...

    async def vectors(self, texts: Sequence[str], *, are_queries: bool) -> list[bytes]:
        """Raises EmbeddingFailed."""

    async def close(self) -> None: ...


class Centring(Struct, frozen=True):
    """The mean of the background, and the directions in which languages differ, each of length 1."""

    mean: list[float]
    directions: list[list[float]]

    def of(self, vector: bytes) -> bytes:
        """The vector without them, of length 1. Raises EmbeddingFailed."""
        numbers = memoryview(vector).cast("f").tolist()
        if len(numbers) != len(self.mean):
            raise EmbeddingFailed("answered with vectors of unequal length")
        centred = [one - mean for one, mean in zip(numbers, self.mean, strict=True)]
        for direction in self.directions:
            part = LANGUAGE_SHARE * sum(map(mul, centred, direction))
            centred = [one - part * along for one, along in zip(centred, direction, strict=True)]
        return array("f", unit(centred)).tobytes()


class Embedder:
    """Makes vectors of length 1 that are compared. `name` is kept with each: those of other names are not compared."""

    def __init__(self, raw: RawEmbedder) -> None:
        self.name = f"{raw.name}/{VERSION}"
        self.is_local = raw.is_local
        self._raw = raw
        self._preparing: asyncio.Task[tuple[Centring, Centring]] | None = None

    async def warm_up(self) -> None:
        """Load and measure a model of this process before the first search needs it, which tries again."""
        if self.is_local:
            with suppress(EmbeddingFailed):
                await self._centrings()

    async def embed_query(self, text: str) -> bytes:
        """Raises EmbeddingFailed."""
        try:
            async with asyncio.timeout(QUERY_LIMIT_S):
                centring, _ = await self._centrings()
                [vector] = await self._raw.vectors([text], are_queries=True)
        except TimeoutError:
            raise EmbeddingFailed(f"took more than {QUERY_LIMIT_S:g} s") from None
        return centring.of(vector)

    async def embed_passages(self, texts: Sequence[str]) -> list[bytes]:
        """Raises EmbeddingFailed."""
        try:
            async with asyncio.timeout(PASSAGES_LIMIT_S):
                _, centring = await self._centrings()
                return [centring.of(vector) for vector in await self._raw.vectors(texts, are_queries=False)]
        except TimeoutError:
            raise EmbeddingFailed(f"took more than {PASSAGES_LIMIT_S:g} s") from None

    async def _centrings(self) -> tuple[Centring, Centring]:
        """Those of queries and of passages, measured at the first use; a failure is tried again at the next."""
        if self._preparing is None or (self._preparing.done() and self._preparing.exception()):
            self._preparing = asyncio.create_task(self._measure(), name="embeddings")
        return await asyncio.shield(self._preparing)

    async def _measure(self) -> tuple[Centring, Centring]:
        questions = {one: await self._raw.vectors(texts, are_queries=True) for one, texts in QUESTIONS.items()}
        statements = {one: await self._raw.vectors(texts, are_queries=False) for one, texts in STATEMENTS.items()}
        languages = [mean_of(vectors) for vectors in statements.values()]
        mean = mean_of(languages)
        directions = orthogonal([[a - b for a, b in zip(one, mean, strict=True)] for one in languages])
        return Centring(mean_of([mean_of(one) for one in questions.values()]), directions), Centring(mean, directions)

    async def close(self) -> None:
        if self._preparing:
            self._preparing.cancel()
            await asyncio.wait([self._preparing])
            self._preparing.cancelled() or self._preparing.exception()
        await self._raw.close()


def mean_of(vectors: Sequence[bytes] | Sequence[list[float]]) -> list[float]:
    """Raises EmbeddingFailed."""
    rows = [memoryview(one).cast("f").tolist() if isinstance(one, bytes) else one for one in vectors]
    try:
        return [math.fsum(column) / len(rows) for column in zip(*rows, strict=True)]
    except ValueError:
        raise EmbeddingFailed("answered with vectors of unequal length") from None


def orthogonal(vectors: Sequence[list[float]]) -> list[list[float]]:
    """Directions that span the vectors, at right angles to each other (Gram-Schmidt)."""
    found = list[list[float]]()
    for vector in vectors:
        for direction in found:
            part = sum(map(mul, vector, direction))
            vector = [one - part * along for one, along in zip(vector, direction, strict=True)]
        if math.hypot(*vector) > 1e-3:
            found.append(unit(vector))
    return found


def unit(numbers: Sequence[float]) -> list[float]:
    """The vector with length 1. Raises EmbeddingFailed."""
    length = math.hypot(*numbers)
    if not math.isfinite(length) or length == 0:
        raise EmbeddingFailed("answered with a vector without a direction")
    return [one / length for one in numbers]
