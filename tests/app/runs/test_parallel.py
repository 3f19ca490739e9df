"""Calls that only read, side by side: one result each, in the order called, and nothing left behind."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.budget.kinds import TOOL_SECONDS
from app.core.messages import unanswered
from app.models.scripted import Pause, Scripted
from app.runs.merge_streams import merge_streams
from app.runs.tool_executor import SIDE_BY_SIDE
from app.storage.changes import Change
from app.storage.principals import LOCAL_USER
from parsing import Arguments, Call
from tests.support.server.events import Event, of_kind
from tests.support.server.serving import Served, serving, until
from tools.base.outcome import Progress, Result, ToolFailed
from tools.base.rights import Risk, Role
from tools.catalogue import TOOLS
from tools.tool import Context, Tool

pytestmark = pytest.mark.anyio

LIMIT_S = 30


class Broken(Exception):
    """What a stream fails with."""


async def counted(number: int, steps: int, open_now: Counter[int], *, fails: bool = False) -> AsyncGenerator[int, None]:
    """Tells 0, 1, 2 ...; others have their turn in between."""
    open_now[number] += 1
    try:
        for step in range(steps):
            for _ in range(number % 3):
                await asyncio.sleep(0)
            yield step
        if fails:
            raise Broken(number)
    finally:
        open_now[number] -= 1


@given(st.lists(st.integers(0, 6), max_size=6))
@settings(max_examples=40)
def test_each_stream_is_told_whole_and_in_its_order(steps: list[int]) -> None:
    async def told() -> dict[int, list[int]]:
        heard: dict[int, list[int]] = {number: [] for number in range(len(steps))}
        streams = [counted(number, many, Counter()) for number, many in enumerate(steps)]
        async with asyncio.timeout(LIMIT_S), aclosing(merge_streams(streams)) as news:
            async for number, one in news:
                heard[number].append(one)
        return heard

    assert asyncio.run(told()) == {number: list(range(many)) for number, many in enumerate(steps)}


async def test_a_stream_goes_on_only_when_what_it_told_was_taken() -> None:
    """What it tells first may have to be durable before it does the next thing."""
    gone_on = asyncio.Event()

    async def telling() -> AsyncGenerator[str, None]:
        yield "started"
        gone_on.set()
        yield "done"

    async with asyncio.timeout(LIMIT_S), aclosing(merge_streams([telling(), telling()])) as news:
        await anext(news)
        for _ in range(20):
            await asyncio.sleep(0)
        assert not gone_on.is_set()
        assert [one async for _, one in news].count("done") == 2


@pytest.mark.parametrize("taken", [0, 1, 3])
async def test_leaving_closes_every_stream(taken: int) -> None:
    open_now, tasks = Counter[int](), asyncio.all_tasks()
    async with asyncio.timeout(LIMIT_S), aclosing(merge_streams([counted(n, 9, open_now) for n in range(4)])) as news:
        for _ in range(taken):
            await anext(news)
    assert not +open_now and asyncio.all_tasks() == tasks


async def test_the_first_that_fails_ends_the_others() -> None:
    open_now, tasks = Counter[int](), asyncio.all_tasks()
    streams = [counted(number, 2 if number == 2 else 10**6, open_now, fails=number == 2) for number in range(4)]
    with pytest.raises(Broken):
        async with asyncio.timeout(LIMIT_S), aclosing(merge_streams(streams)) as news:
            async for _ in news:
                pass
    assert not +open_now and asyncio.all_tasks() == tasks


class Room:
    """Tools that see each other: `look` waits until `crowd` calls are in the room, `change` must be alone there."""

    def __init__(self, crowd: int = 1) -> None:
        self.crowd = crowd
        self.inside = 0
        self.most = 0
        self.left = 0
        self.order: list[str] = []
        self.full = asyncio.Event()
        self.gone: dict[str, asyncio.Event] = {}
        self.tools = [
            self._tool("look", Risk.READ, self._look),
            self._tool("change", Risk.WRITE, self._change),
            self._tool("hang", Risk.READ, self._hang),
        ]

    def _tool(self, name: str, risk: Risk, run: Any) -> Tool:
        parameters = {"type": "object", "properties": {"name": {"type": "string"}, "after": {"type": "string"}}}
        return Tool(name, f"{name}.", parameters, risk, run, Role.GUEST, confined=True)

    def ended(self, name: str) -> asyncio.Event:
        return self.gone.setdefault(name, asyncio.Event())

    async def _look(self, arguments: Arguments, _: Context) -> AsyncGenerator[Progress | Result, None]:
        """With `after` it ends only after that one has."""
        name = str(arguments.get("name", ""))
        self._enter(name)
        try:
            yield Progress(0.1, (name,))
            if self.inside >= self.crowd:
                self.full.set()
            await self.full.wait()
            if after := arguments.get("after"):
                await self.ended(str(after)).wait()
            if name == "bad":
                raise ToolFailed("It was too dark.")
            yield Result(ok=True, text=f"saw {name}")
        finally:
            self._leave(name)

    async def _change(self, arguments: Arguments, _: Context) -> AsyncGenerator[Progress | Result, None]:
        assert self.inside == 0
        self.order.append("change")
        yield Result(ok=True, text="changed")

    async def _hang(self, arguments: Arguments, _: Context) -> AsyncGenerator[Progress | Result, None]:
        self._enter("hang")
        try:
            yield Progress(0.1)
            await asyncio.Event().wait()
        finally:
            self._leave("hang")

    def _enter(self, name: str) -> None:
        self.inside += 1
        self.most = max(self.most, self.inside)
        self.order.append(name)

    def _leave(self, name: str) -> None:
        self.inside -= 1
        self.left += 1
        self.ended(name).set()


def calls(*wanted: tuple[str, dict[str, Any]]) -> list[Call]:
    return [Call(index, name, arguments, "native") for index, (name, arguments) in enumerate(wanted)]


def look(name: str, **more: str) -> tuple[str, dict[str, Any]]:
    return "look", {"name": name} | more


def install(served: Served, room: Room) -> None:
    served.services.factory.built_in = [*TOOLS, *room.tools]


async def told(folder: Path, room: Room, reply: Sequence[Call], **flags: object) -> tuple[list[Event], list[str]]:
    """The events of a turn with that reply, and the results that the model is sent then."""
    model = Scripted([reply, "Done."])
    async with asyncio.timeout(LIMIT_S), serving(folder, model, None, **flags) as served:
        install(served, room)
        events = await served.chat("Look.")
    assert events[-1]["type"] == "run.finished"
    return events, [message.text for message in model.requests[-1].messages if message.role == "tool"]


async def test_neighbours_that_read_are_under_way_at_the_same_time(tmp_path: Path) -> None:
    room = Room(crowd=3)
    events, results = await told(tmp_path, room, calls(look("a"), look("b"), look("c")))
    assert results == ["saw a", "saw b", "saw c"]
    for call in {event["call"] for event in of_kind(events, "tool.started")}:
        kinds = [event["type"] for event in events if event.get("call") == call]
        assert [kind for kind in kinds if kind != "tool.delta"] == ["tool.started", "tool.progress", "tool.finished"]


async def test_results_stand_in_the_order_called_whoever_was_first(tmp_path: Path) -> None:
    reply = calls(look("a", after="c"), look("b", after="a"), look("c"))
    events, results = await told(tmp_path, Room(), reply)
    assert results == ["saw a", "saw b", "saw c"]
    finished = [event["call"] for event in of_kind(events, "tool.finished")]
    assert finished == [event["call"] for event in of_kind(events, "tool.started")]


async def test_the_setting_switches_it_off(tmp_path: Path) -> None:
    room = Room()
    await told(tmp_path, room, calls(look("a"), look("b"), look("c")), parallel_reads="false")
    assert (room.most, room.order) == (1, ["a", "b", "c"])


async def test_no_more_than_some_at_once(tmp_path: Path) -> None:
    room = Room(crowd=SIDE_BY_SIDE)
    _, results = await told(tmp_path, room, calls(*(look(str(number)) for number in range(2 * SIDE_BY_SIDE + 1))))
    assert room.most == SIDE_BY_SIDE and results == [f"saw {number}" for number in range(2 * SIDE_BY_SIDE + 1)]


async def test_what_changes_something_stays_in_its_place(tmp_path: Path) -> None:
    room = Room()
    reply = calls(look("a"), look("b"), ("change", {}), look("c"), look("d"), ("change", {}))
    _, results = await told(tmp_path, room, reply)
    assert results == ["saw a", "saw b", "changed", "saw c", "saw d", "changed"]
    assert [set(room.order[:2]), set(room.order[3:5])] == [{"a", "b"}, {"c", "d"}]
    assert room.order[2] == room.order[5] == "change"


async def test_one_that_fails_or_may_not_run_leaves_the_others_alone(tmp_path: Path) -> None:
    reply = calls(look("a"), look("bad"), look("b"), ("look", {"name": 7}), ("nothing", {}), look("c"))
    events, results = await told(tmp_path, Room(), reply)
    assert [results[at] for at in (0, 1, 2, 5)] == ["saw a", "It was too dark.", "saw b", "saw c"]
    assert len(of_kind(events, "tool.rejected")) == 2 and len(results) == 6 and events[-1]["calls"] == 4


async def test_a_question_waits_until_the_reads_before_it_are_done(tmp_path: Path) -> None:
    room, model = Room(crowd=2), Scripted([calls(look("a"), look("b"), ("change", {}), look("c")), "Done."])
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, model) as served:
        install(served, room)
        async with aclosing(served.turn(message="x", approval="ask")) as turn:
            run = (await until(turn, "run.started"))["run"]
            question = await until(turn, "approval.required")
            assert (room.inside, room.left, question["name"]) == (0, 2, "change")
            path = f"/runs/{run}/approvals/{question['call']}"
            assert (await served.client.post(path, json={"decision": "approve"})).status_code == 200
            await until(turn, "run.finished")
    assert room.order[2:] == ["change", "c"]


@pytest.mark.parametrize("how", ["cancel", "deadline"])
async def test_stopping_ends_all_of_them_and_answers_each(tmp_path: Path, how: str) -> None:
    """One that has ended, behind one that has not, keeps its result."""
    reply = calls(look("a"), ("hang", {}), look("b", after="a"), ("change", {}), ("hang", {}))
    room, model = Room(), Scripted([reply, "Again."])
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, model) as served:
        install(served, room)
        async with aclosing(served.turn(message="x")) as turn:
            run = await until(turn, "run.started")
            await until(turn, "tool.finished")
            await room.ended("b").wait()
            if how == "cancel":
                assert (await served.client.post(f"/runs/{run['run']}/cancel")).status_code in (200, 202)
            else:
                await served.end_time(run["run"])
            await until(turn, "run.finished")
        assert (room.inside, room.left) == (0, 3)
        await served.chat("And?", session=run["session"])
    sent = model.requests[-1].messages
    assert not list(unanswered(sent))
    results = [message.text for message in sent if message.role == "tool"]
    assert (results[0], results[2]) == ("saw a", "saw b") and "stopped before it finished" in results[1]
    assert ["was not run" in text for text in results[3:]] == [True, True]


async def test_what_only_the_others_hold_of_the_time_is_waited_for(tmp_path: Path) -> None:
    """A budget smaller than one slice is taken whole by the first: that is no reason to end the run."""
    events, results = await told(tmp_path, Room(), calls(*map(look, "abcd")), tool_seconds_per_day="20")
    assert results == ["saw a", "saw b", "saw c", "saw d"] and events[-1]["reason"] == "answered"


async def test_a_budget_that_somebody_else_holds_ends_the_run_before_any_of_them_begins(tmp_path: Path) -> None:
    taken = asyncio.Event()
    room, model = Room(), Scripted([[Pause(taken), *calls(look("a"), look("b"))]])
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, model, None, tool_seconds_per_day="20") as served:
        install(served, room)
        async with aclosing(served.turn(message="x")) as turn:
            session = (await until(turn, "run.started"))["session"]
            ledger, record = served.services.runs.ledger, list[Change]().append
            held = await ledger.reserve(LOCAL_USER, TOOL_SECONDS, record, 20.0)
            taken.set()
            events = [event async for event in turn]
        held.settle(0)
        messages = (await served.client.get(f"/sessions/{session}")).json()["messages"]
    assert events[-1]["reason"] == "budget" and not room.order and not of_kind(events, "tool.started")
    results = [message for message in messages if message["role"] == "tool"]
    assert len(results) == 2 and all("was not run" in message["text"] for message in results)
