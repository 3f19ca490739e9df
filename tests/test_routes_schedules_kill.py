"""A server that is killed around the time of a schedule: that time has exactly one run, whatever the moment."""

from __future__ import annotations

import asyncio
import random
import time
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.chatting import DONE, chunk, says
from tests.dragoman_process import server
from tests.nightly import at_night
from tests.upstream import stream, upstream

pytestmark = pytest.mark.anyio
KILLS = at_night(40, 3)  # each leaves a schedule, of which there are 50 at most
AHEAD_S = 0.15  # of the time when it is stored
AROUND_S = 0.02  # of the time, in which the kill comes


async def killed_around(client: httpx2.AsyncClient, kill_at: float, due: float) -> str:
    """Add a schedule for `due` and use the server until `kill_at`; the schedule's id."""
    once = datetime.fromtimestamp(due, UTC).isoformat()
    answer = await client.post("/schedules", json={"name": "once", "message": "Go", "once": once})
    assert answer.status_code == 201, answer.text
    while time.time() < kill_at:
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


@pytest.mark.timeout(60 + KILLS * 10)
async def test_a_time_has_one_run_whenever_the_server_is_killed(tmp_path: Path) -> None:
    chance, done = random.Random(1), list[tuple[str, str]]()
    (tmp_path / "work").mkdir()
    async with upstream(stream(says("Well."), chunk(finish="stop"), DONE), repeat=True, chats=True) as model:
        schedule = ""
        for _ in range(KILLS + 1):
            async with asyncio.timeout(60), server(tmp_path, model.base_url) as (client, process):
                if schedule:
                    last = await outcome(client, schedule)
                    assert last["outcome"] == "started" and last["state"] in ("answered", "interrupted")
                    done.append((schedule, last["run"]))
                due = time.time() + AHEAD_S
                with suppress(httpx2.TransportError):
                    schedule = await killed_around(client, due + chance.uniform(-AROUND_S, AROUND_S), due)
                process.kill()
                await process.wait()
        async with asyncio.timeout(60), server(tmp_path, model.base_url) as (client, _):
            await outcome(client, schedule)
            sessions = (await client.get("/sessions")).json()["sessions"]
            assert len(sessions) == KILLS + 1, "one for each time"
    assert len({run for _, run in done}) == len(done) == KILLS
