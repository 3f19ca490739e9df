"""Calls that become tasks: a server of each era, and servers that do something wrong."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import aclosing, asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx2
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mcp_types import CallToolResult
from msgspec.structs import asdict, replace

from tests.support.mcp.faulty_servers import PATIENT, START_S, managing, ready, result_of, tool
from tests.support.mcp.tasks import ERAS, TaskServer, requested, until_requested
from tools.base.access import RemoteTask
from tools.base.outcome import Progress, Result
from tools.mcp.connection.repair import repaired
from tools.mcp.connection.task_following import MOST_ID, MOST_MS, STATUSES, begun
from tools.mcp.manager import Manager
from tools.mcp.model import ElicitationAnswer, ElicitationQuestion, Hooks, Operation, OperationEnd, ServerConfig
from tools.mcp.results import MAX_TEXT
from tools.tool import Context

pytestmark = pytest.mark.anyio

FIELDS = ("taskId", "status", "statusMessage", "ttlMs", "ttl", "pollIntervalMs", "pollInterval", "task", "content")
NOT_HERE = "Check before doing it again."
# What a model receives, in every era.
OUTCOMES: Mapping[str, tuple[bool, str]] = {
    "work": (True, "work is done after 3 polls"),
    "hasty": (True, "hasty is done after 3 polls"),
    "notified": (True, "notified is done after 3 polls"),  # although it is to be polled once an hour
    "away": (True, "away is done"),
    "hiccups": (True, "hiccups is done"),
    "ask": (True, "blue"),
    "breaks": (False, "the disk is full"),
    "plain": (False, "bare\n[unreadable 'odd'"),
    "big": (True, "characters left out"),
    "fails": (False, "did not finish the task of this call: it is broken."),
    "cancels": (False, "no time for it"),
    "other": (False, NOT_HERE),
    "odd": (False, NOT_HERE),
    "forgets": (False, f"Task not found. Its outcome is unknown. {NOT_HERE}"),
    "never": (False, "may still run there"),
    "nameless": (False, "without a usable id"),
}
OF_EXTENSION = {
    "empty": (False, "did not finish the task of this call: "),
    "sampling": (False, "Its outcome is unknown."),
    "quizzes": (False, "it asks more than 20 questions"),
}


async def answer(_: ElicitationQuestion) -> ElicitationAnswer:
    return ElicitationAnswer("accept", {"colour": "blue"})


@asynccontextmanager
async def tasking(era: str) -> AsyncGenerator[tuple[Manager, httpx2.AsyncClient], None]:
    server = TaskServer(era)
    config = ServerConfig("s", "http", url=server.url, timeouts=PATIENT, concurrency=2)
    async with server.started() as client, managing(config, hooks=Hooks(elicit=answer)) as manager:
        await ready(manager)
        yield manager, client


@pytest.mark.parametrize("era", ERAS)
async def test_each_end_of_a_task_is_that_of_a_call(era: str) -> None:
    rows = {**OUTCOMES, **({} if era == "2025-11-25" else OF_EXTENSION)}
    async with asyncio.timeout(START_S), tasking(era) as (manager, client):
        results = await asyncio.gather(*(result_of(tool(manager, f"mcp__s__{name}")) for name in rows))
        for (name, (ok, words)), result in zip(rows.items(), results, strict=True):
            assert (result.ok, words in result.text) == (ok, True), (name, result.text[:500])
            assert len(result.text) <= MAX_TEXT + 200
        called = await requested(client, "tools/call")
        assert sorted(one["params"]["name"] for one in called) == sorted(rows), "each once"
        polls = [one for one in await requested(client, "tasks/get") if one["params"]["taskId"] == one["name"]]
        assert polls or era != "2026-07-28", "the header has the task's id"


class Kept:
    """The log of one call, as a run has it."""

    def __init__(self) -> None:
        self.tasks: list[RemoteTask] = []
        self.goes_on = False

    async def keep(self, task: RemoteTask) -> None:
        self.tasks.append(task)

    def context(self, known: RemoteTask | None = None) -> Context:
        return Context(Path("/"), task=known, keep_task=self.keep, goes_on=lambda: self.goes_on)


async def waiting(manager: Manager, kept: Kept) -> AsyncGenerator[Progress | Result, None]:
    """A call whose task waits, at its first progress."""
    call = tool(manager, "mcp__s__wait").run({}, kept.context())
    progress = await anext(call)
    assert isinstance(progress, Progress)
    assert progress.tail[0] == "working: begun"
    assert [one.status for one in kept.tasks] == ["working"]
    return call


async def told_of(manager: Manager, context: Context) -> Result:
    call = tool(manager, "mcp__s__wait").run({}, context)
    [result] = [one async for one in call if isinstance(one, Result)]
    return result


@pytest.mark.parametrize("era", ERAS)
async def test_a_call_that_is_stopped_cancels_its_task(era: str) -> None:
    async with asyncio.timeout(START_S), tasking(era) as (manager, client):
        kept = Kept()
        async with aclosing(await waiting(manager, kept)):
            pass
        cancelled = await until_requested(client, "tasks/cancel")
        assert cancelled["params"]["taskId"] == kept.tasks[0].task


@pytest.mark.parametrize("era", ERAS)
async def test_the_next_server_goes_on_with_a_task_and_makes_no_second_call(era: str) -> None:
    async with asyncio.timeout(START_S), tasking(era) as (manager, client):
        kept = Kept()
        async with aclosing(await waiting(manager, kept)):
            kept.goes_on = True  # the server of ours is stopping
        async with managing(*(server.config for server in manager._servers.values())) as other:
            await ready(other)
            await client.post("/restart")  # its sessions are gone, and its tasks are not
            call = tool(other, "mcp__s__wait").run({}, kept.context(kept.tasks[-1]))
            async with aclosing(call):
                await anext(call)
                await client.post("/finish")
                [result] = [one async for one in call if isinstance(one, Result)]
        assert result.ok and result.text.startswith("wait is done"), result
        assert [one.status for one in kept.tasks] == ["working", "completed"]
        assert len(await requested(client, "tools/call")) == 1
        assert not await requested(client, "tasks/cancel")


@pytest.mark.parametrize("era", ERAS)
async def test_a_task_is_over_although_its_time_was_up_before_it_was_polled(era: str) -> None:
    async with asyncio.timeout(START_S), tasking(era) as (manager, client):
        kept = Kept()
        async with aclosing(await waiting(manager, kept)):
            kept.goes_on = True
        known = replace(kept.tasks[-1], since=time.time() - 1_000)  # it is kept for 600 s
        unfinished = await told_of(manager, kept.context(known))
        assert not unfinished.ok and "did not answer within 0" in unfinished.text, unfinished
        await client.post("/finish")
        late = await told_of(manager, kept.context(known))
        assert late.ok and late.text.startswith("wait is done"), late


async def test_polls_are_no_operations_of_their_own() -> None:
    seen = list[str]()

    @contextmanager
    def observe(operation: Operation) -> Iterator[OperationEnd]:
        seen.append(operation.method)
        yield OperationEnd()

    server = TaskServer(ERAS[0])
    async with asyncio.timeout(START_S), server.started() as client:
        config = ServerConfig("s", "http", url=server.url, timeouts=PATIENT)
        async with managing(config, hooks=Hooks(observe=observe)) as manager:
            await ready(manager)
            assert (await result_of(tool(manager, "mcp__s__work"))).ok
        assert len(await requested(client, "tasks/get")) == 3
    assert seen == ["tools/call"]


async def test_tasks_hold_up_no_other_calls_of_their_server() -> None:
    async with asyncio.timeout(START_S), tasking(ERAS[0]) as (manager, _):
        calls = [await waiting(manager, Kept()) for _ in range(4)]  # twice what the server takes at a time
        assert (await result_of(tool(manager, "mcp__s__work"))).ok
        for call in calls:
            await call.aclose()


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.just(10**400) | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(FIELDS) | st.text(), inner, max_size=5),
    max_leaves=12,
)


@given(task=st.dictionaries(st.sampled_from(FIELDS), VALUES), is_old=st.booleans())
def test_any_task_is_read_or_refused(task: dict[str, Any], *, is_old: bool) -> None:
    found = {"task": task} if is_old else {**task, "resultType": "task"}
    repaired("tools/call", found)
    with suppress(ValueError):
        if begins := begun("s", CallToolResult.model_validate(found, by_name=False)):
            assert begins.status in STATUSES and len(begins.task) <= MOST_ID
            assert all(one is None or 0 < one < MOST_MS for one in (begins.poll_s, begins.ttl_s))
            json.dumps(asdict(begins), allow_nan=False)
    repaired("tasks/get", {"result": task, **task})
