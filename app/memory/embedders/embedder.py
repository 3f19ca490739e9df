"""The protocol of an embedder."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

QUERY_LIMIT_S = 3.0  # for the vector of a search, without which it goes by words alone
PASSAGES_LIMIT_S = 60.0
BATCH = 16  # texts of a request


class EmbeddingFailed(Exception):
    """No vectors were made. The message is the predicate of a sentence."""


class Embedder(Protocol):
    """Makes vectors of length 1, as float32 in the byte order of this machine.

    `name` is kept with each vector: vectors of other names are not compared. `floor` is the least similarity of texts
    that have to do with each other.
    """

    @property
    def name(self) -> str: ...

    @property
    def floor(self) -> float: ...

    async def embed_query(self, text: str) -> bytes:
        """Raises EmbeddingFailed."""
        ...

    async def embed_passages(self, texts: Sequence[str]) -> list[bytes]:
        """Raises EmbeddingFailed."""
        ...

    async def close(self) -> None: ...
