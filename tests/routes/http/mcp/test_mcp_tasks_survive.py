"""A call that has become a task outlives the server: the next one goes on with it, and makes no second call."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.support.mcp.served import write_list
from tests.support.mcp.tasks import ERAS, TaskServer, requested, until_requested
from tests.support.models.chatting import DONE, chunk, says
from tests.support.models.upstream import Act, announced, stream, upstream
from tests.support.server.approvals import follow
from tests.support.server.dragoman_process import DragomanProcess, server
from tests.support.server.serving import events_of

pytestmark = pytest.mark.anyio
LIMIT_S = 90


def told(text: str) -> Act:
    return stream(says(text), chunk(finish="stop"), DONE)


@asynccontextmanager
async def dragoman(folder: Path, model_url: str, mcp: Path) -> AsyncGenerator[Any, None]:
    async with server(folder, model_url, "--mcp-config", str(mcp), "--unsafe-no-sandbox") as (client, process):
        yield client, process


async def known(client: httpx2.AsyncClient) -> None:
    while not (await client.get("/mcp/servers")).json()["servers"][0]["tools"]:
        pass  # each request waits; the test is bounded


async def ended_at(
    client: httpx2.AsyncClient, process: DragomanProcess, how: signal.Signals, kind: str, **more: str
) -> tuple[str, list[dict[str, Any]]]:
    """The run, and its events until the server ended at the first of this kind."""
    await known(client)
    seen, run = list[dict[str, Any]](), ""
    with suppress(httpx2.TransportError):
        body = {"message": "Go", "approval": "auto", **more}
        async with client.stream("POST", "/chat", json=body) as response:
            run = response.headers["x-run-id"]
            async with aclosing(events_of(response)) as events:
                async for event in events:
                    seen.append(event)
                    if event["type"] == kind:
                        process.send_signal(how)
    await process.wait()
    return run, seen


async def events_from(client: httpx2.AsyncClient, run: str) -> list[dict[str, Any]]:
    async with aclosing(follow(client, run, 0)) as events:
        return [event async for event in events]


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
@pytest.mark.parametrize("era", ERAS[::2])
async def test_the_next_server_goes_on_with_a_task(tmp_path: Path, era: str, how: signal.Signals) -> None:
    mcp = TaskServer(era)
    acts = told("```mcp__s__wait\n```"), told("Done.")
    async with asyncio.timeout(LIMIT_S), upstream(*acts, chats=True) as model, mcp.started() as tasks:
        async with dragoman(tmp_path, model.base_url, mcp.listed_in(tmp_path)) as (client, process):
            run, seen = await ended_at(client, process, how, "tool.progress")
        assert [one["status"] for one in seen if one["type"] == "tool.task"] == ["working"], seen
        await tasks.post("/finish")
        async with dragoman(tmp_path, model.base_url, mcp.listed_in(tmp_path)) as (client, _):
            events = await events_from(client, run)
        kinds = [event["type"] for event in events]
        [finished] = [event for event in events if event["type"] == "tool.finished"]
        assert finished["ok"] and finished["text"].startswith("wait is done"), finished
        assert (kinds.count("tool.started"), events[-1]["reason"]) == (1, "answered")
        assert [one["status"] for one in events if one["type"] == "tool.task"] == ["working", "completed"]
        assert len(await requested(tasks, "tools/call")) == 1
        assert not await requested(tasks, "tasks/cancel")


async def test_a_task_that_was_lost_meanwhile_has_an_unknown_outcome(tmp_path: Path) -> None:
    mcp = TaskServer(ERAS[0])
    acts = told("```mcp__s__wait\n```"), told("Done.")
    async with asyncio.timeout(LIMIT_S), upstream(*acts, chats=True) as model:
        async with mcp.started(), dragoman(tmp_path, model.base_url, mcp.listed_in(tmp_path)) as (client, process):
            run, _ = await ended_at(client, process, signal.SIGKILL, "tool.progress")
        async with mcp.started() as tasks, dragoman(tmp_path, model.base_url, tmp_path / "mcp.json") as (client, _):
            events = await events_from(client, run)
            assert not await requested(tasks, "tools/call")
        [finished] = [event for event in events if event["type"] == "tool.finished"]
        assert not finished["ok"] and "Its outcome is unknown. Check before doing it again." in finished["text"]
        assert events[-1]["reason"] == "answered"


async def test_a_task_that_no_run_goes_on_with_is_cancelled(tmp_path: Path) -> None:
    mcp = TaskServer(ERAS[0])
    acts = told("```mcp__s__wait\n```"), told("Done."), told("```mcp__s__wait\n```")
    async with asyncio.timeout(LIMIT_S), upstream(*acts, chats=True) as model, mcp.started() as tasks:
        listed = mcp.listed_in(tmp_path)
        async with dragoman(tmp_path, model.base_url, listed) as (client, process):
            run, _ = await ended_at(client, process, signal.SIGKILL, "tool.progress")
        write_list(tmp_path, s={"url": mcp.url, "excludeTools": ["wait"]})
        async with dragoman(tmp_path, model.base_url, listed) as (client, _):
            events = await events_from(client, run)
            first = await until_requested(tasks, "tasks/cancel")
        [finished] = [event for event in events if event["type"] == "tool.finished"]
        assert not finished["ok"] and "its outcome is unknown" in finished["text"], "it is not refused: it was made"
        assert events[-1]["reason"] == "answered"
        mcp.listed_in(tmp_path)
        async with dragoman(tmp_path, model.base_url, listed) as (client, process):
            run, _ = await ended_at(client, process, signal.SIGKILL, "tool.progress", on_disconnect="cancel")
        async with dragoman(tmp_path, model.base_url, listed) as (client, _):
            assert (await events_from(client, run))[-1]["code"] == "interrupted"
            while len(cancelled := await requested(tasks, "tasks/cancel")) < 2:
                pass  # each request waits; the test is bounded
        assert cancelled[0] == first and len({one["params"]["taskId"] for one in cancelled}) == 2
        assert len(await requested(tasks, "tools/call")) == 2


@pytest.mark.parametrize("era", ERAS[::2])
async def test_a_question_of_a_task_is_asked_again_after_a_kill(tmp_path: Path, era: str) -> None:
    mcp = TaskServer(era)
    acts = told("```mcp__s__ask\n```"), told("Blue.")
    async with asyncio.timeout(LIMIT_S), upstream(*acts, chats=True) as model, mcp.started() as tasks:
        async with dragoman(tmp_path, model.base_url, mcp.listed_in(tmp_path)) as (client, process):
            run, seen = await ended_at(client, process, signal.SIGKILL, "approval.required")
        assert [one["status"] for one in seen if one["type"] == "tool.task"] == ["working", "input_required"]
        async with dragoman(tmp_path, model.base_url, mcp.listed_in(tmp_path)) as (client, _):
            after, text = seen[-1]["seq"], ""
            async with aclosing(follow(client, run, after)) as events:
                async for event in events:
                    if event["type"] == "approval.required":
                        assert event["arguments"]["message"] == "Which?"
                        body = {"decision": "approve", "arguments": {"colour": "blue"}}
                        assert (await client.post(f"/runs/{run}/approvals/{event['call']}", json=body)).is_success
                    text = event["text"] if event["type"] == "tool.finished" else text
        assert '"accept"' in text and '"blue"' in text, text
        assert len(await requested(tasks, "tools/call")) == 1


async def test_a_run_that_is_cancelled_cancels_its_task(tmp_path: Path) -> None:
    mcp = TaskServer(ERAS[0])
    async with asyncio.timeout(LIMIT_S), upstream(told("```mcp__s__wait\n```"), chats=True) as model:
        async with mcp.started() as tasks, dragoman(tmp_path, model.base_url, mcp.listed_in(tmp_path)) as (client, _):
            await known(client)
            async with client.stream("POST", "/chat", json={"message": "Go", "approval": "auto"}) as response:
                async with aclosing(events_of(response)) as events:
                    async for event in events:
                        if event["type"] == "tool.progress":
                            await client.post(f"/runs/{response.headers['x-run-id']}/cancel")
                            break
                    cancelled = await until_requested(tasks, "tasks/cancel")
                    [task] = {one["params"]["taskId"] for one in await requested(tasks, "tasks/get")}
                    assert cancelled["params"]["taskId"] == task
                    assert [one["reason"] async for one in events if one["type"] == "run.finished"] == ["cancelled"]


async def test_a_dragoman_that_asks_another_goes_on_after_a_kill(tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    asking = told('```mcp__other__ask_agent\n{"message": "Say it."}\n```'), told("Done.")
    killed = asyncio.Event()
    answer = announced(asyncio.Event(), told("The answer."), after=killed)
    async with asyncio.timeout(LIMIT_S), upstream(*asking, chats=True) as model, upstream(answer, chats=True) as second:
        for folder in (one, other):
            (folder / "work").mkdir(parents=True)
        async with server(other, second.base_url, "--unsafe-no-sandbox") as (asked, _):
            servers = write_list(one, other={"url": f"{asked.base_url}/mcp"})
            async with dragoman(one, model.base_url, servers) as (client, process):
                run, _ = await ended_at(client, process, signal.SIGKILL, "tool.progress")
            killed.set()
            async with dragoman(one, model.base_url, servers) as (client, _):
                events = await events_from(client, run)
        [finished] = [event for event in events if event["type"] == "tool.finished"]
        assert finished["ok"] and finished["text"].startswith("The answer."), finished
        assert len(second.chats) == 1
