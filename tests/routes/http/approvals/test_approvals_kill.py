"""A server that is killed around a question: whatever the moment, no call runs twice, or without its yes."""

from __future__ import annotations

import asyncio
import random
from contextlib import aclosing, suppress
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.support.models.chatting import DONE, chunk, says
from tests.support.models.upstream import stream, upstream
from tests.support.nightly import at_night
from tests.support.server.dragoman_process import DragomanProcess, server
from tests.support.server.killing import SERVERS, TERMINAL
from tests.support.server.serving import events_of

pytestmark = pytest.mark.anyio

KILLS = at_night(200, 20)
CALLS = "".join(f"```bash\necho {word} >> ran\n```\n" for word in ("one", "two"))
BODY = {"message": "Go", "approval": "ask", "max_rounds": 2}
MOST_EVENTS = 14
MOST_WAITED = 5  # requests between an event and the kill: some milliseconds


async def followed(
    client: httpx2.AsyncClient, run: str, process: DragomanProcess, chance: random.Random | None
) -> None:
    """Say yes to the first call and no to the second; with `chance`, kill the server at some moment."""
    left = chance.randrange(1, MOST_EVENTS) if chance else -1
    said = set[asyncio.Task[Any]]()
    with suppress(httpx2.TransportError):  # it dies with the server
        async with client.stream("GET", f"/runs/{run}/events") as response, aclosing(events_of(response)) as events:
            async for event in events:
                left -= 1
                if event["type"] == "approval.required":
                    decision = "approve" if "one" in str(event["arguments"]) else "deny"
                    path = f"/runs/{run}/approvals/{event['call']}"
                    said.add(asyncio.create_task(client.post(path, json={"decision": decision})))
                if chance and left == 0:
                    for _ in range(chance.randrange(MOST_WAITED)):
                        await client.get("/livez")
                    process.kill()
    await asyncio.gather(*said, return_exceptions=True)


async def check(client: httpx2.AsyncClient, run: str, ran: list[str]) -> str:
    """One end; each question answered once, one result per call; how the run ended."""
    async with client.stream("GET", f"/runs/{run}/events") as response, aclosing(events_of(response)) as stored:
        events = [event async for event in stored]
    kinds = [event["type"] for event in events]
    assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
    assert [kind for kind in kinds if kind in TERMINAL] == [kinds[-1]]
    for kind in ("approval.required", "approval.resolved", "tool.started", "tool.finished"):
        told = [event["call"] for event in events if event["type"] == kind]
        assert len(told) == len(set(told)), (kind, kinds)
    session = events[0]["session"]
    messages = (await client.get(f"/sessions/{session}")).json()["messages"]
    called = [call["id"] for message in messages for call in message.get("calls", [])]
    assert [message["call"] for message in messages if message["role"] == "tool"] == called
    assert ran in ([], ["one"]), kinds
    assert not ran or "tool.started" in kinds, kinds
    return str(kinds[-1])


def lines(file: Path) -> list[str]:
    return file.read_text().split() if file.exists() else []


async def killed_again_and_again(folder: Path, model_url: str, chance: random.Random) -> list[str]:
    """How the runs ended."""
    ends, run = list[str](), ""
    ran = folder / "work" / "ran"
    ran.parent.mkdir(parents=True)
    kills = KILLS // SERVERS
    for number in range(kills + 1):
        async with asyncio.timeout(60), server(folder, model_url) as (client, process):
            if run:
                await followed(client, run, process, None)
                ends.append(await check(client, run, lines(ran)))
            if number < kills:
                ran.unlink(missing_ok=True)
                async with client.stream("POST", "/chat", json=BODY) as response:
                    run = response.headers["x-run-id"]
                await followed(client, run, process, chance)
    return ends


@pytest.mark.timeout(60 + KILLS * 15)
async def test_no_call_runs_twice_or_without_its_yes(tmp_path: Path) -> None:
    async with upstream(stream(says(CALLS), chunk(finish="stop"), DONE), repeat=True) as model:
        async with asyncio.TaskGroup() as side_by_side:
            tasks = [
                side_by_side.create_task(
                    killed_again_and_again(tmp_path / str(seed), model.base_url, random.Random(5 + seed))
                )
                for seed in range(SERVERS)
            ]
    ends = {end for task in tasks for end in task.result()}
    assert ends == {"run.finished"}  # those that waited went on, and those in the middle too
