"""Hybrid search: the ranks by words (BM25) and by meaning (vectors) fused, nothing below a floor of relevance.

Ranks are fused (reciprocal rank fusion of Cormack, Clarke and Büttcher), because the scores of the two have no common
scale.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from msgspec import Struct

from app.memory.vectors import Near
from app.storage.memories import MemoryRow

CANDIDATES = 50  # of each way
RANK_CONSTANT = 10  # with the 60 of the publication, the 40th of both ways would come before the first of one
WORDS_WEIGHT = 0.5  # of a rank by words, beside one by meaning
FLOOR = 0.15  # the least similarity of what a search finds by meaning
FEW_BY_WORDS = 2  # that are above any floor, where words have found them and meaning knows nothing of them


class FoundMemory(Struct, frozen=True):
    """A memory that a search has found. `similarity` is that of the vectors, None if it was found by words only."""

    row: MemoryRow
    similarity: float | None


def fused(
    by_words: Sequence[str], near: Sequence[Near], floor: float, without_vector: Collection[str] = ()
) -> dict[str, float | None]:
    """Return what the ways have found, best first, with its similarity; what is less than the floor only by words.

    `near` is empty where there are no vectors; then words alone decide. What is `without_vector` as yet has by meaning
    the rank that it has by words.
    """
    similar = {one.id: one.similarity for one in near if one.similarity >= min(floor, FLOOR)}
    scores = dict[str, float]()
    for rank, one in enumerate(by_words, start=1):
        scores[one] = (WORDS_WEIGHT + (one in without_vector)) / (RANK_CONSTANT + rank)
    for rank, memory in enumerate(similar, start=1):
        scores[memory] = scores.get(memory, 0.0) + 1 / (RANK_CONSTANT + rank)
    best = sorted(scores, key=scores.__getitem__, reverse=True)
    few = set(by_words if not near or floor <= FLOOR else by_words[:FEW_BY_WORDS])
    return {one: similar.get(one) for one in best if one in few or similar.get(one, -1.0) >= floor}
