"""A request leaves nothing that only the garbage collector would find: it would stop the server for milliseconds."""

from __future__ import annotations

import asyncio
import gc
from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx2
import pytest

from app.models.http.client import model_client
from app.models.wire.openai.provider import OpenAIChat
from tests.support.models.chatting import WHOLE
from tests.support.models.upstream import answer, hang_up, upstream
from tests.support.server.serving import serving

pytestmark = pytest.mark.anyio

OURS = ("app", "parsing", "routes", "tools")


@contextmanager
def collecting() -> Generator[Counter[str]]:
    """The garbage of our own classes that is made meanwhile, counted at the end."""
    found = Counter[str]()
    gc.collect()
    gc.freeze()  # a server of a test before may become garbage meanwhile, whole
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        yield found
        gc.collect()
        found.update(type(one).__qualname__ for one in gc.garbage if type(one).__module__.split(".")[0] in OURS)
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()


async def test_a_turn_leaves_no_garbage(tmp_path: Path) -> None:
    async with asyncio.timeout(60), upstream(WHOLE, repeat=True, chats=True) as server:
        provider = OpenAIChat(model_client(server.base_url), server.base_url, "m")
        async with serving(tmp_path, provider, {"connection": "close"}) as served:
            await served.chat("Hello")
            with collecting() as found:
                for _ in range(3):
                    await served.chat("Hello again")
    assert not found


async def test_a_new_connection_and_one_that_breaks_leave_none() -> None:
    """A parser that was fed nothing, or half a response, too."""
    async with asyncio.timeout(60), upstream(answer("{}"), hang_up, repeat=False) as server:
        client = model_client(server.base_url)
        with collecting() as found:
            for _ in range(2):
                with suppress(httpx2.TransportError):
                    await client.get(f"{server.base_url}/models", headers={"connection": "close"})
        await client.aclose()
    assert not found


class Counting:
    """Looks like one of ours."""

    itself: Counting


Counting.__module__ = "app.counting"


def test_only_what_is_made_meanwhile_is_counted() -> None:
    def cycle() -> Counting:
        one = Counting()
        one.itself = one
        return one

    before = [cycle()]
    with collecting() as found:
        before.clear()
        cycle()
    assert found == {"Counting": 1}
