"""The event loop while a model's answer is read: it runs others, however much has arrived at once."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, asynccontextmanager, suppress
from functools import partial
from types import SimpleNamespace
from typing import Any

import httpx2
import pytest

from app.core.events import AgentEvent, Notice
from app.core.log_context import task_of_run
from app.core.provider import PictureChunk, Piece, TextChunk, TextPiece
from app.core.time_slice import BYTES, CHARACTERS, HEAVY, SLICE_S, TimeSlice, Turns, in_heavy_thread, parts
from app.models.http.exchange import read_pieces, small
from app.models.wire.openai.answer import ChatAnswer
from app.policy.guards import Guards
from app.runs.agent import Agent
from app.runs.run_context import RunContext
from app.transcript.reply import Reply
from app.transcript.run_totals import RunTotals
from app.transcript.unfit_arguments import MOST_VALUES, unfit
from parsing import CallDelta, Thought
from tests.support.models.pictures import png
from tests.support.parsing.quoting import conversation

pytestmark = pytest.mark.anyio
TOOLS = {"bash": {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]}}
LENGTH = 1 << 18
# What a stranger's server may send without end; each is no call, or none that ends.
HOSTILE = ("<tool", "<think>", "<|tool", "</tool", '<tool"', "<", "\n<tool", "<tool_call>", "`a", '<invoke name="')


def events(text: str, size: int, field: str = "content") -> bytes:
    """The stream of an answer, in deltas of this many characters."""
    deltas = [{field: text[at : at + size]} for at in range(0, len(text), size)]
    chunks: list[dict[str, Any]] = [
        {"choices": [{"index": 0, "delta": delta, "finish_reason": None}]} for delta in deltas
    ]
    chunks.append({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
    return b"".join(b"data: %s\n\n" % json.dumps(chunk).encode() for chunk in chunks) + b"data: [DONE]\n\n"


def whole(text: str) -> bytes:
    """The answer of a server that does not stream."""
    message = {"role": "assistant", "content": text}
    return json.dumps({"choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}).encode()


def native(text: str, size: int) -> bytes:
    """A native call with these arguments."""
    arguments = json.dumps({"command": text})
    pieces = [arguments[at : at + size] for at in range(0, len(arguments), size)]
    heads: list[dict[str, Any]] = [{"id": "c1", "function": {"name": "bash", "arguments": ""}}]
    calls = [*heads, *({"function": {"arguments": piece}} for piece in pieces)]
    chunks: list[dict[str, Any]] = [
        {"choices": [{"index": 0, "delta": {"tool_calls": [{"index": 0, **call}]}}]} for call in calls
    ]
    chunks.append({"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]})
    return b"".join(b"data: %s\n\n" % json.dumps(chunk).encode() for chunk in chunks) + b"data: [DONE]\n\n"


async def body_of(data: bytes) -> AsyncGenerator[bytes, None]:
    yield data


@asynccontextmanager
async def turns() -> AsyncGenerator[list[int], None]:
    """How often another task has had the loop since."""
    counted = [0]

    async def count() -> None:
        while True:
            await asyncio.sleep(0)
            counted[0] += 1

    task = asyncio.create_task(count())
    await asyncio.sleep(0)
    try:
        yield counted
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def read(data: bytes) -> tuple[Reply, int, list[int]]:
    """The reply to an answer that has all arrived, the turns of others meanwhile, and the lengths of its texts."""
    reply = Reply(TOOLS, fences=lambda: False, new_id=iter(map(str, range(10_000))).__next__)
    response = httpx2.Response(200, content=body_of(data))
    lengths = []
    async with turns() as counted, aclosing(read_pieces(response, ChatAnswer("test"))) as pieces:
        async for piece in pieces:
            lengths.append(len(getattr(piece, "text", "")))
            list(reply.add(piece))
        list(reply.end())
        return reply, counted[0], lengths


@pytest.mark.parametrize("size", [100, LENGTH])
@pytest.mark.parametrize("repeated", HOSTILE)
async def test_others_have_turns_while_hostile_text_is_read(repeated: str, size: int) -> None:
    """How many is a matter of the machine's speed: at least one for each 20 ms that the fastest would need."""
    _, counted, lengths = await read(events(repeated * (LENGTH // len(repeated)), size))
    assert counted >= 2
    assert max(lengths) <= CHARACTERS


@pytest.mark.parametrize(
    "data",
    [
        whole("<tool" * (LENGTH // 5)),
        events("<tool" * (LENGTH // 5), 4_000, "reasoning_content"),
        native("<tool" * (LENGTH // 5), 4_000),
        native("<tool" * (LENGTH // 5), LENGTH * 2),
    ],
    ids=["whole", "reasoning", "arguments", "arguments at once"],
)
async def test_no_field_is_handled_in_long_pieces(data: bytes) -> None:
    _, _, lengths = await read(data)
    assert sum(lengths) > LENGTH - 5
    assert max(lengths) <= CHARACTERS


async def test_what_is_read_in_slices_is_what_was_sent() -> None:
    text = "The harbour lies open. <b>é</b>\n" * 5_000
    reply, _, _ = await read(events(text, 30_000))
    assert reply.shown == text


@pytest.mark.parametrize(("length", "taken"), [(CHARACTERS, True), (CHARACTERS + 1, False)])
def test_a_long_text_is_not_handled_where_the_socket_is_read(length: int, taken: bool) -> None:
    answer, got = ChatAnswer("test"), list[TextPiece]()
    head = events("word word", 4).partition(b"data: [DONE]")[0].rpartition(b"data: ")[0]
    list(answer.feed(head))

    def take(piece: TextPiece) -> bool:
        got.append(piece)
        return True

    chunk = events("x" * length, length).partition(b"\n\n")[0] + b"\n\n"
    assert answer.offer(take, chunk) == taken
    assert got == ([TextChunk("x" * length)] if taken else [])
    if not taken:
        assert [*answer.feed(chunk)] == [TextChunk("x" * length)], "and nothing has changed"


@pytest.mark.parametrize(
    "text",
    [
        '<tool_call>\n{"name": "bash", "arguments": {"command": {'
        + ", ".join(f'"k{number}": {number}' for number in range(8_000))
        + "}}}\n</tool_call>",
        "[bash(command=[" + '{"a": 1}, ' * 20_000 + "1])]",
    ],
    ids=["JSON", "Python"],
)
async def test_others_have_turns_while_a_long_call_is_read_at_its_end(text: str) -> None:
    """It cannot be divided, so a thread reads it."""
    reply = Reply(TOOLS, fences=lambda: False, new_id=iter(map(str, range(10_000))).__next__)
    at_the_end = len(text) - 100
    for at in range(0, at_the_end, CHARACTERS):
        list(reply.add(TextChunk(text[at : min(at + CHARACTERS, at_the_end)])))
    async with turns() as counted:
        list(await reply.added(TextChunk(text[at_the_end:])))
        list(await reply.ended())
        assert counted[0] > 1


async def test_a_caller_that_is_cancelled_waits_for_the_thread() -> None:
    begun, may_end, has_ended = threading.Event(), threading.Event(), list[bool]()

    def work() -> None:
        begun.set()
        may_end.wait()
        has_ended.append(True)

    task = asyncio.create_task(in_heavy_thread(work))
    await asyncio.to_thread(begun.wait)
    task.cancel()
    await asyncio.sleep(0)
    assert not task.done()
    may_end.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert has_ended


async def test_principals_take_turns_in_the_thread() -> None:
    """Ten long works of one wait for it; that of another waits for one of them, and one that is cancelled for none."""
    begun, may_end, done = threading.Event(), threading.Event(), list[str]()

    def first() -> None:
        begun.set()
        may_end.wait()

    def start(principal: str, work: Callable[[], object]) -> asyncio.Task[None]:
        async def run() -> None:
            await in_heavy_thread(work)

        return task_of_run(run(), principal, "session", principal)

    tasks = [start("mallory", first), *(start("mallory", partial(done.append, "mallory")) for _ in range(9))]
    await asyncio.to_thread(begun.wait)
    ann, bob = (start(name, partial(done.append, name)) for name in ("ann", "bob"))
    await asyncio.sleep(0)
    for cancelled in (tasks.pop(), bob):
        cancelled.cancel()
        with pytest.raises(asyncio.CancelledError):
            await cancelled  # although the thread is busy
    may_end.set()
    await asyncio.gather(*tasks, ann)
    assert done == ["ann", *["mallory"] * 8]


async def test_only_what_is_read_again_goes_to_the_thread() -> None:
    """A picture is stored by way of the event loop, and a thought of any length is decided as it comes."""
    threads = list[int]()
    reply = Reply(
        TOOLS,
        fences=lambda: False,
        new_id=iter(map(str, range(10))).__next__,
        keep_file=lambda _: threads.append(threading.get_ident()),
    )
    for _ in range(HEAVY // CHARACTERS + 2):
        list(reply.add(TextChunk("<think>\n" if not reply.characters else "word " * (CHARACTERS // 5))))
    assert reply.undecided < CHARACTERS
    list(reply.add(TextChunk('</think>\n<tool_call>\n{"name": "bash", "arguments": {"command": "')))
    for _ in range(HEAVY // CHARACTERS + 2):
        list(reply.add(TextChunk("word " * (CHARACTERS // 5))))
    assert reply.undecided > HEAVY
    list(await reply.added(PictureChunk(png())))
    assert threads == [threading.get_ident()]


@pytest.mark.parametrize("undecided", [HEAVY, HEAVY + 1])
def test_text_behind_a_long_undecided_one_is_not_handled_where_the_socket_is_read(undecided: int) -> None:
    reply = Reply(TOOLS, fences=lambda: False, new_id=str)
    reply.undecided = undecided
    shown = list[AgentEvent]()
    context: Any = SimpleNamespace(sink=SimpleNamespace(full=False), emit_now=lambda event, _: shown.append(event))
    agent: Any = SimpleNamespace(_corrected=lambda events: events)
    metered: Any = SimpleNamespace(has_room=lambda _: True)
    take = Agent._taking(agent, context, reply, metered)
    assert take is not None
    assert take(TextChunk("word")) == (undecided <= HEAVY)
    assert len(shown) == (undecided <= HEAVY)


@pytest.mark.parametrize(("values", "is_fit"), [(MOST_VALUES - 1, True), (MOST_VALUES, False)])
def test_a_call_with_too_many_values_is_refused(values: int, is_fit: bool) -> None:
    for arguments in ({"a": [1] * values}, {str(number): None for number in range(values + 1)}):
        assert (unfit(arguments) is None) == is_fit
    assert unfit({"a": [[[]] * 100] * values}) is not None


async def test_a_task_that_has_waited_begins_its_time_anew() -> None:
    now = 100.0
    time_slice = TimeSlice(lambda: now)
    async with turns() as counted:
        for _ in range(50):
            await time_slice.pause_if_over()
        assert counted == [0], "it has hardly worked"
        now += 2 * SLICE_S
        await time_slice.pause_if_over()
        assert counted == [2], "it has worked for long"
        await time_slice.pause_if_over()
        assert counted == [2], "it has just paused"


async def test_principals_share_the_loop_however_many_runs_one_has() -> None:
    """One of ten runs with hostile answers, another of one: each gets every second slice."""
    slices, now = list[str](), 0.0

    async def work(principal: str, times: int) -> None:
        nonlocal now
        time_slice = TimeSlice(lambda: now)
        for _ in range(times):
            await time_slice.pause_if_over()
            slices.append(principal)
            now += SLICE_S  # and each piece of its work takes a whole slice
            await time_slice.pause_if_over()

    hostile = [task_of_run(work("mallory", 20), f"run{number}", "session", "mallory") for number in range(10)]
    other = task_of_run(work("ann", 20), "run", "session", "ann")
    hostile[0].cancel()  # while it waits or before: no turn is lost
    await other
    begun = slices[slices.index("ann") :]
    assert begun.count("mallory") <= begun.count("ann") + 12, "one slice of each before the first turns"
    assert slices.count("ann") == 20
    await asyncio.gather(*hostile, return_exceptions=True)
    assert slices.count("mallory") == 9 * 20


async def test_a_cancelled_task_loses_nobody_a_turn() -> None:
    turns = Turns.of_loop()
    first, second, third = (asyncio.create_task(turns.next(name)) for name in ("a", "a", "b"))
    await asyncio.sleep(0)
    first.cancel()
    await asyncio.wait([second, third])
    assert turns is Turns.of_loop()


@pytest.mark.parametrize("event", [b"data: {}\n\n", b"x" * 100, b"data: " + b"y" * BYTES + b"\n\n", b"\n\n", b"\n"])
def test_parts_are_cut_between_events_where_that_can_be(event: bytes) -> None:
    data = event * (4 * BYTES // len(event) + 1)
    found = list(parts(data))
    assert b"".join(found) == data
    assert max(map(len, found)) <= BYTES
    if len(event) < BYTES and event.endswith(b"\n\n"):
        assert all(part.endswith(b"\n\n") for part in found)
    assert list(parts(b"")) == [b""]


def test_long_pieces_are_cut_and_the_others_stay() -> None:
    given: list[Piece] = [TextChunk("a" * 5_000), Thought("b"), CallDelta(3, "c" * 2_049), Thought("d" * 2_048)]
    found = [
        (type(piece), piece.index if type(piece) is CallDelta else 0, len(getattr(piece, "text", "")))
        for piece in small(given)
    ]
    assert found == [
        *[(TextChunk, 0, size) for size in (2_048, 2_048, 904)],
        (Thought, 0, 1),
        *[(CallDelta, 3, size) for size in (2_048, 1)],
        (Thought, 0, 2_048),
    ]


async def test_others_have_turns_between_many_events() -> None:
    """How many is a matter of the machine's speed: at least one in the 40 ms that the fastest would need."""
    context = RunContext("run", conversation([]), Guards(), RunTotals())

    async def body() -> None:
        for _ in range(20_000):
            await context.emit(Notice("note", "Note."))

    async with turns() as counted, aclosing(context.events(body)) as seen:
        assert len([event async for event in seen]) == 20_000
        assert counted[0] >= 1
