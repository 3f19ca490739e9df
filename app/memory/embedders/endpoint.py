"""An endpoint that embeds: `POST /v1/embeddings` of a model server or a hosted API."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Any

import httpx2
from msgspec import Struct

from app.memory.embedders.embedder import BATCH, EmbeddingFailed, unit
from app.models.http.client import NoAnswer, base_url_of, model_client
from app.models.http.json_body import encodable
from app.models.http.served_model import ServedModel

MOST_DIMENSIONS = 8_192
LONGEST = 4_000  # characters of a text


class Prefixes(Struct, frozen=True):
    """The prefixes that a family of models is trained with; `part` is a part of their names."""

    part: str
    query: str = ""
    passage: str = ""


FAMILIES = (
    Prefixes("e5", "query: ", "passage: "),
    Prefixes("nomic-embed", "search_query: ", "search_document: "),
    Prefixes("embeddinggemma", "task: search result | query: ", "title: none | text: "),
)
OTHER = Prefixes("")


class EndpointEmbedder:
    """`name` has the model and its server: vectors of another are of another space."""

    is_local = False

    def __init__(self, url: str, model: str, key: str | None) -> None:
        base = base_url_of(url.removesuffix("/embeddings"))
        self.name = f"{model}@{base}"
        self._prefixes = next((one for one in FAMILIES if one.part in model.lower()), OTHER)
        self._server = ServedModel(model_client(base, transport="httpx2"), base, model, key)

    async def vectors(self, texts: Sequence[str], *, are_queries: bool) -> list[bytes]:
        prefix = self._prefixes.query if are_queries else self._prefixes.passage
        found = list[bytes]()
        for at in range(0, len(texts), BATCH):
            found += await self._embed([prefix + text[:LONGEST] for text in texts[at : at + BATCH]])
        return found

    async def close(self) -> None:
        await self._server.client.aclose()

    async def _embed(self, texts: Sequence[str]) -> list[bytes]:
        url = f"{self._server.base_url}/embeddings"
        body = {"model": self._server.model, "input": list(map(encodable, texts))}
        try:
            answer = await self._server.ask("POST", url, body)
        except (NoAnswer, httpx2.HTTPError, httpx2.InvalidURL) as error:
            raise EmbeddingFailed(f"failed: {str(error) or type(error).__name__}") from error
        return vectors_in(answer, len(texts))


def vectors_in(answer: Any, count: int) -> list[bytes]:
    """The vectors of an answer in the order of their texts, each of length 1. Raises EmbeddingFailed."""
    rows = answer.get("data") if isinstance(answer, dict) else None
    if not isinstance(rows, list) or len(rows) != count:
        raise EmbeddingFailed("answered without a vector for each text")
    found: dict[int, bytes] = {}
    for place, row in enumerate(rows):
        if not isinstance(row, dict):
            raise EmbeddingFailed("answered with something else than vectors")
        found[at if isinstance(at := row.get("index"), int) else place] = vector_of(row.get("embedding"))
    if found.keys() != set(range(count)) or len(set(map(len, found.values()))) != 1:
        raise EmbeddingFailed("answered with vectors of unequal length or order")
    return [found[at] for at in range(count)]


def vector_of(numbers: Any) -> bytes:
    if not isinstance(numbers, list) or not 0 < len(numbers) <= MOST_DIMENSIONS:
        raise EmbeddingFailed("answered with something else than vectors")
    if not all(isinstance(one, int | float) for one in numbers):
        raise EmbeddingFailed("answered with a vector that holds no numbers")
    try:
        return array("f", unit(numbers)).tobytes()
    except OverflowError:
        raise EmbeddingFailed("answered with a number beyond all bounds") from None
