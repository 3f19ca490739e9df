"""The meaning of tools' texts: known once all have vectors, and without it where the embedder fails."""

from __future__ import annotations

import asyncio
from array import array
from collections.abc import Sequence

import pytest

from app.memory.embedders.embedder import Embedder, EmbeddingFailed
from app.memory.memories import PAUSE_S
from app.memory.tool_meaning import MOST_TEXTS, ToolMeaning
from tests.support.access.people import LIMIT_S

pytestmark = pytest.mark.anyio
TOOLS = {"time": "tells the time", "mail": "sends a letter", "file": "reads a file"}


class Letters:
    """Texts are near to those that begin with the same letter."""

    is_local = True
    name = "letters"

    def __init__(self) -> None:
        self.embedded = list[str]()
        self.fails = False

    async def vectors(self, texts: Sequence[str], *, are_queries: bool) -> list[bytes]:
        if self.fails:
            raise EmbeddingFailed("is down")
        self.embedded += texts
        return [array("f", [1.0 if text[0] == letter else 0.1 for letter in "tsrxyz"]).tobytes() for text in texts]

    async def close(self) -> None: ...


async def test_the_nearest_are_known_once_all_texts_have_vectors() -> None:
    raw = Letters()
    meaning = ToolMeaning(Embedder(raw))
    async with asyncio.timeout(LIMIT_S):
        assert await meaning.nearest("the hour", TOOLS) == (), "no run waits for it"
        await meaning.known()
        assert (await meaning.nearest("send it", TOOLS))[0] == "mail"
        assert (await meaning.nearest("tomorrow", TOOLS))[0] == "time"
        made = len(raw.embedded)
        assert await meaning.nearest("x", TOOLS | {"new": "stops it"}) == ()
        await meaning.known()
        assert raw.embedded[made:] == ["stops it"], "each text once"
        assert await meaning.nearest(" ", TOOLS) == ()
        assert await meaning.nearest("x", {str(one): str(one) for one in range(MOST_TEXTS + 1)}) == ()
        await meaning.close()


async def test_a_failing_embedder_has_a_pause() -> None:
    now, raw = 1000.0, Letters()
    meaning = ToolMeaning(Embedder(raw), lambda: now)
    async with asyncio.timeout(LIMIT_S):
        raw.fails = True
        assert await meaning.nearest("send it", TOOLS) == ()
        await meaning.known()
        raw.fails = False
        assert await meaning.nearest("send it", TOOLS) == () and not raw.embedded
        now += PAUSE_S
        assert await meaning.nearest("send it", TOOLS) == ()
        await meaning.known()
        raw.fails = True
        assert await meaning.nearest("send it", TOOLS) == ()
        raw.fails = False
        now += PAUSE_S
        assert (await meaning.nearest("send it", TOOLS))[0] == "mail"
        await meaning.close()
