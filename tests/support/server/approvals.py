"""Calls that wait for a person: asked, decided, and left by a server that is killed."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from pathlib import Path
from typing import Any

import httpx2

from routes.services import Services
from tests.support.server.serving import Served, events_of, until

WRITE = "```write_file\nnote.txt\nfirst\n```"


async def asked_turn(
    served: Served, **more: object
) -> tuple[AsyncGenerator[dict[str, Any], None], dict[str, Any], str]:
    """A turn in mode `ask` up to its first question: the stream, the question, and the path to decide it."""
    turn = served.turn(message="Write.", **({"approval": "ask"} | more))
    started = await until(turn, "run.started")
    question = await until(turn, "approval.required")
    return turn, started | question, f"/runs/{started['run']}/approvals/{question['call']}"


async def rest_of(turn: AsyncGenerator[dict[str, Any], None]) -> list[dict[str, Any]]:
    return [event async for event in turn]  # the caller closes it


def note(folder: Path) -> Path:
    return folder / "work" / "note.txt"


async def waiting_call(served: Served, **more: object) -> tuple[dict[str, Any], str]:
    """A run that waits for its first call, nobody watching; its question, and the path to decide it."""
    turn, question, path = await asked_turn(served, **more)
    await turn.aclose()
    return question, path


async def stop_as_killed(services: Services, run: str) -> None:
    """What a `kill -9` leaves: the run's task ends without a word."""
    live = services.runs._live[run]
    assert live.task
    live.stopping = "suspended"
    live.task.cancel()
    with suppress(asyncio.CancelledError):
        await live.task


async def follow(client: httpx2.AsyncClient, run: str, after: int) -> AsyncGenerator[dict[str, Any], None]:
    async with client.stream("GET", f"/runs/{run}/events", headers={"Last-Event-ID": str(after)}) as response:
        async with aclosing(events_of(response)) as events:
            async for event in events:
                yield event


async def decide(client: httpx2.AsyncClient, run: str, call: str, decision: str) -> None:
    answer = await client.post(f"/runs/{run}/approvals/{call}", json={"decision": decision})
    assert answer.status_code == 200, answer.text


def wait_until(moment: float) -> None:
    """Busy, because the clock is what is waited for; at most some seconds."""
    while time.time() <= moment:
        pass
