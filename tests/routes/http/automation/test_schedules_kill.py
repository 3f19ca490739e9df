"""A server that is killed around the time of a schedule: that time has exactly one run, whatever the moment."""

from __future__ import annotations

import asyncio
import random
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.support.models.chatting import DONE, chunk, says
from tests.support.models.upstream import stream, upstream
from tests.support.nightly import at_night
from tests.support.server.dragoman_process import server

pytestmark = pytest.mark.anyio
KILLS = at_night(40, 3)  # each leaves a schedule, of which there are 50 at most
AHEAD_S = 0.15  # of the time when it is sent; more where that takes longer
LIMIT_S = 120  # for one start and one run
AROUND_S = 0.02  # of the time, in which the kill comes


async def used_around_a_time(client: httpx2.AsyncClient, apart_s: float) -> str:
    """Add a schedule and use the server until `apart_s` seconds after its time; the schedule's id."""
    ahead_s = AHEAD_S
    while True:
        due = time.time() + ahead_s
        once = datetime.fromtimestamp(due, UTC).isoformat()
        answer = await client.post("/schedules", json={"name": "once", "message": "Go", "once": once})
        if "is over" not in answer.text:
            break
        ahead_s *= 2  # its time had come before the server looked at it
    assert answer.status_code == 201, answer.text
    while time.time() < due + apart_s:
        await client.get("/livez")
    name: str = answer.json()["id"]
    return name


async def outcome(client: httpx2.AsyncClient, schedule: str) -> dict[str, Any]:
    """The one occurrence of the schedule, once its run has ended."""
    while True:
        shown = (await client.get(f"/schedules/{schedule}")).json()
        if shown["last"] and shown["last"][-1]["ended"]:
            assert len(shown["last"]) == 1 and shown["next"] is None
            last: dict[str, Any] = shown["last"][0]
            return last


@pytest.mark.timeout(LIMIT_S * (KILLS + 2))
async def test_a_time_has_one_run_whenever_the_server_is_killed(tmp_path: Path) -> None:
    chance, done = random.Random(1), list[tuple[str, str]]()
    (tmp_path / "work").mkdir()
    async with upstream(stream(says("Well."), chunk(finish="stop"), DONE), repeat=True, chats=True) as model:
        schedule = ""
        for _ in range(KILLS + 1):
            async with asyncio.timeout(LIMIT_S), server(tmp_path, model.base_url) as (client, process):
                if schedule:
                    last = await outcome(client, schedule)
                    assert last["outcome"] == "started" and last["state"] in ("answered", "interrupted")
                    done.append((schedule, last["run"]))
                schedule = await used_around_a_time(client, chance.uniform(-AROUND_S, AROUND_S))
                process.kill()
                await process.wait()
        async with asyncio.timeout(LIMIT_S), server(tmp_path, model.base_url) as (client, _):
            await outcome(client, schedule)
            sessions = (await client.get("/sessions")).json()["sessions"]
            assert len(sessions) == KILLS + 1, "one for each time"
    assert len({run for _, run in done}) == len(done) == KILLS
