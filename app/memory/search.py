"""Hybrid search: the ranks by words (BM25) and by meaning (vectors) fused, nothing below a floor of relevance.

Ranks are fused (reciprocal rank fusion of Cormack, Clarke and Büttcher), because the scores of the two have no common
scale.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from app.memory.vectors import Near
from app.storage.memories import MemoryRow

CANDIDATES = 50  # of each way
RANK_CONSTANT = 60  # of the publication
WORDS_WEIGHT = 0.8  # of a rank by words, beside one by meaning


class Found(Struct, frozen=True):
    """A memory that a search has found. `similarity` is that of the vectors, None if it was found by words only."""

    row: MemoryRow
    similarity: float | None


class Ranked(Struct, frozen=True):
    id: str
    similarity: float | None


def fused(by_words: Sequence[str], near: Sequence[Near], floor: float) -> list[Ranked]:
    """Return all that one of the ways has found, best first; of the vectors only those above the floor count."""
    similar = {one.id: one.similarity for one in near if one.similarity >= floor}
    scores = dict[str, float]()
    for rank, one in enumerate(by_words, start=1):
        scores[one] = WORDS_WEIGHT / (RANK_CONSTANT + rank)
    for rank, memory in enumerate(similar, start=1):
        scores[memory] = scores.get(memory, 0.0) + 1 / (RANK_CONSTANT + rank)
    return [Ranked(one, similar.get(one)) for one in sorted(scores, key=scores.__getitem__, reverse=True)]
