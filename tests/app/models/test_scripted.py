"""The scripted model: what tests and demonstrations rely on."""

from __future__ import annotations

import asyncio
from contextlib import aclosing

import pytest

from app.core.messages import Message
from app.core.provider import Finished, ModelRequest, Piece, ProviderFailed, TextChunk
from app.models.scripted import DEMO, Pause, Raise, Scripted
from parsing import Call, Thought

pytestmark = pytest.mark.anyio
LIMIT_S = 30
ASKED = ModelRequest([Message("user", "Hello")])


async def pieces_of(model: Scripted, request: ModelRequest = ASKED) -> list[Piece]:
    async with asyncio.timeout(LIMIT_S), aclosing(model.stream(request)) as pieces:
        return [piece async for piece in pieces]


async def test_each_request_takes_the_next_reply() -> None:
    call = Call(0, "bash", {}, "native")
    model = Scripted(["Hi", [Thought("Hm"), "Yes", call], [TextChunk("cut"), Finished("length")]])
    assert await pieces_of(model) == [TextChunk("Hi"), Finished("stop")]
    assert await pieces_of(model) == [Thought("Hm"), TextChunk("Yes"), call, Finished("tool_calls")]
    assert await pieces_of(model) == [TextChunk("cut"), Finished("length")]
    with pytest.raises(ProviderFailed, match="all were given") as failed:
        await pieces_of(model)
    assert failed.value.code == "script_ended"


async def test_requests_are_kept_as_they_were() -> None:
    model, history = Scripted(["Hi"]), [Message("user", "Hello")]
    await pieces_of(model, ModelRequest(history))
    history.append(Message("assistant", "Hi"))
    assert [len(request.messages) for request in model.requests] == [1]


async def test_a_pause_waits_for_its_event_and_a_raise_fails() -> None:
    event, failure = asyncio.Event(), ProviderFailed("model_cut", "Gone.", retryable=True)
    model = Scripted([["a", Pause(event), "b", Raise(failure)]])
    async with asyncio.timeout(LIMIT_S), aclosing(model.stream(ASKED)) as pieces:
        assert await anext(pieces) == TextChunk("a")
        further = asyncio.ensure_future(anext(pieces))
        await asyncio.sleep(0)
        assert not further.done()
        event.set()
        assert await further == TextChunk("b")
        with pytest.raises(ProviderFailed) as failed:
            await anext(pieces)
    assert failed.value is failure
    assert model.unfinished == 0


async def test_a_stream_that_is_closed_early_is_counted() -> None:
    model = Scripted(["Hi"])
    async with aclosing(model.stream(ASKED)) as pieces:
        await anext(pieces)
    assert model.unfinished == 1


async def test_the_demonstration_starts_over() -> None:
    model = Scripted(DEMO, repeat=True)
    first = await pieces_of(model)
    await pieces_of(model)
    assert await pieces_of(model) == first
