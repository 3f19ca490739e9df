"""A request leaves nothing that only the garbage collector would find: it would stop the server for milliseconds."""

from __future__ import annotations

import asyncio
import gc
import tracemalloc
from collections import Counter
from collections.abc import Generator
from contextlib import AsyncExitStack, aclosing, contextmanager, suppress
from pathlib import Path

import httpx2
import pytest

from app.models.http.client import model_client
from app.models.wire.openai.provider import OpenAIChat
from tests.support.models.chatting import WHOLE, says
from tests.support.models.upstream import answer, hang, hang_up, stream, upstream
from tests.support.server.serving import serving, until

pytestmark = pytest.mark.anyio

OURS = ("app", "parsing", "routes", "tools")
ROOT = Path(__file__).parents[3]
HOLDERS = [tracemalloc.Filter(True, f"{ROOT}/{floor}/*") for floor in OURS] + [tracemalloc.Filter(True, "*/uvicorn/*")]
STREAMS, MOST_HELD = 20, 52_000


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


async def test_a_live_stream_holds_few_bytes(tmp_path: Path) -> None:
    """What our code and uvicorn's has allocated, and not those who read the streams: `benchmarks.serving.stream_memory`
    has all of it."""
    hangs = stream(says("Hi"), then=hang)
    async with asyncio.timeout(60), upstream(hangs, repeat=True, chats=True) as server:
        provider = OpenAIChat(model_client(server.base_url), server.base_url, "m")
        async with serving(tmp_path, provider) as served, AsyncExitStack() as streams:

            async def begin() -> None:
                turn = await streams.enter_async_context(aclosing(served.turn(message="Hello")))
                await until(turn, "text.delta")

            await begin()
            gc.collect()
            tracemalloc.start()
            try:
                for _ in range(STREAMS):
                    await begin()
                gc.collect()
                stats = tracemalloc.take_snapshot().filter_traces(HOLDERS).statistics("filename")
            finally:
                tracemalloc.stop()
            for run in [*await served.services.runs.of("local")]:
                await served.services.runs.cancel(run.id)
    held = sum(one.size for one in stats) / STREAMS
    assert held < MOST_HELD, "\n".join(map(str, stats[:20]))
