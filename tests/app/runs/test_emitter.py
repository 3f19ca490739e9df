"""Items from coroutines to one consumer: its pace, their order, and an end that leaves nothing open."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.runs.emitter import Emitter

pytestmark = pytest.mark.anyio

LIMIT_S = 30


@given(st.lists(st.integers(0, 3), max_size=8))
@settings(max_examples=40)
def test_items_keep_their_order_whatever_is_awaited_between_them(waits: list[int]) -> None:
    emitter = Emitter[int]()

    async def nested(number: int, times: int) -> None:
        for _ in range(times):
            await asyncio.sleep(0)
        await emitter.emit(number)

    async def body() -> None:
        for number, times in enumerate(waits):
            await nested(number, times)
        await asyncio.sleep(0)

    async def received() -> list[int]:
        async with asyncio.timeout(LIMIT_S), aclosing(emitter.stream(body)) as items:
            return [item async for item in items]

    assert asyncio.run(received()) == list(range(len(waits)))


async def test_the_coroutine_proceeds_only_when_the_next_item_is_asked_for() -> None:
    emitter, steps = Emitter[str](), list[str]()

    async def body() -> None:
        await emitter.emit("first")
        steps.append("behind first")
        await emitter.emit("second")

    async with aclosing(emitter.stream(body)) as items:
        assert not steps
        assert await anext(items) == "first"
        for _ in range(20):
            await asyncio.sleep(0)
        assert not steps
        assert await anext(items) == "second"
        assert steps == ["behind first"]


async def test_the_coroutine_runs_in_the_task_of_its_consumer() -> None:
    emitter = Emitter[asyncio.Task[object] | None]()

    async def body() -> None:
        await emitter.emit(asyncio.current_task())
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.001):
                await asyncio.Event().wait()
        await emitter.emit(asyncio.current_task())

    async with asyncio.timeout(LIMIT_S), aclosing(emitter.stream(body)) as items:
        assert {item async for item in items} == {asyncio.current_task()}


async def test_exceptions_pass_through_in_both_directions() -> None:
    emitter, failed = Emitter[str](), asyncio.get_running_loop().create_future()

    async def body() -> None:
        with pytest.raises(LookupError):
            await failed
        await emitter.emit("caught")
        raise ZeroDivisionError("planted")

    received = list[str]()
    with pytest.raises(ZeroDivisionError, match="planted"):
        async with asyncio.timeout(LIMIT_S), aclosing(emitter.stream(body)) as items:
            asyncio.get_running_loop().call_soon(failed.set_exception, LookupError())
            received.append(await anext(items))
            await anext(items)
    assert received == ["caught"]


async def connection(closed: list[str]) -> AsyncGenerator[int, None]:
    """A stream whose closing has to be awaited."""
    try:
        for number in range(10**6):
            await asyncio.sleep(0)
            yield number
    finally:
        await asyncio.sleep(0)
        closed.append("connection")


@pytest.mark.parametrize("taken", [1, 3])
async def test_closing_the_stream_closes_what_the_coroutines_hold_open(taken: int) -> None:
    emitter, closed, tasks = Emitter[int](), list[str](), asyncio.all_tasks()

    async def inner() -> None:
        async with aclosing(connection(closed)) as numbers:
            async for number in numbers:
                await emitter.emit(number)

    async def body() -> None:
        try:
            await inner()
        finally:
            await asyncio.sleep(0)
            closed.append("body")

    async with asyncio.timeout(LIMIT_S), aclosing(emitter.stream(body)) as items:
        for _ in range(taken):
            await anext(items)
    assert closed == ["connection", "body"] and asyncio.all_tasks() == tasks


async def test_cancelling_the_consumer_cancels_the_coroutine_where_it_waits() -> None:
    emitter, closed, waits = Emitter[int](), list[str](), asyncio.Event()

    async def body() -> None:
        try:
            await emitter.emit(1)
            waits.set()
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await asyncio.sleep(0)
            closed.append("body")
            raise

    async def consume() -> None:
        async with aclosing(emitter.stream(body)) as items:
            async for _ in items:
                pass

    task = asyncio.create_task(consume())
    async with asyncio.timeout(LIMIT_S):
        await waits.wait()
        task.cancel()
        await asyncio.wait([task])
    assert task.cancelled() and closed == ["body"]


async def test_cancelling_the_consumer_while_the_stream_is_closed_is_not_lost() -> None:
    emitter, closing = Emitter[int](), asyncio.Event()

    async def body() -> None:
        try:
            await emitter.emit(1)
        finally:
            closing.set()
            await asyncio.Event().wait()

    async def consume() -> None:
        async with aclosing(emitter.stream(body)) as items:
            await anext(items)

    task = asyncio.create_task(consume())
    async with asyncio.timeout(LIMIT_S):
        await closing.wait()
        task.cancel()
        await asyncio.wait([task])
    assert task.cancelled()


async def test_a_closed_stream_takes_no_item() -> None:
    emitter = Emitter[int]()

    async def body() -> None:
        try:
            await emitter.emit(1)
        finally:
            await emitter.emit(2)

    items = emitter.stream(body)
    assert await anext(items) == 1
    with pytest.raises(RuntimeError, match="stream was closed"):
        await items.aclose()


async def test_an_error_in_closing_reaches_the_consumer() -> None:
    emitter = Emitter[int]()

    async def body() -> None:
        try:
            await emitter.emit(1)
        finally:
            raise LookupError("planted")

    items = emitter.stream(body)
    assert await anext(items) == 1
    with pytest.raises(LookupError, match="planted"):
        await items.aclose()


async def test_an_exception_thrown_into_the_stream_closes_it() -> None:
    emitter, closed = Emitter[int](), list[str]()

    async def body() -> None:
        async with aclosing(connection(closed)) as numbers:
            async for number in numbers:
                await emitter.emit(number)

    items = emitter.stream(body)
    await anext(items)
    with pytest.raises(LookupError, match="planted"):
        await items.athrow(LookupError("planted"))
    assert closed == ["connection"]


async def test_a_coroutine_below_two_streams_emits_to_either() -> None:
    outer, inner, received = Emitter[str](), Emitter[str](), list[str]()

    async def both() -> None:
        await outer.emit("outer 1")
        await inner.emit("inner")
        await asyncio.sleep(0)
        await outer.emit("outer 2")

    async def body() -> None:
        async with aclosing(inner.stream(both)) as items:
            async for item in items:
                received.append(item)

    async with asyncio.timeout(LIMIT_S), aclosing(outer.stream(body)) as items:
        async for item in items:
            received.append(item)
    assert received == ["outer 1", "inner", "outer 2"]
