"""Durable before visible: what a client has seen survives `kill -9` of the server, and each run still ends once."""

from __future__ import annotations

import asyncio
import random
import socket
from contextlib import aclosing
from pathlib import Path

import pytest

from tests.support.models.chatting import DONE, chunk, says
from tests.support.models.upstream import stream, upstream
from tests.support.nightly import at_night
from tests.support.sandbox.processes import all_gone, endless
from tests.support.server.dragoman_process import server
from tests.support.server.killing import SERVERS, check_kept, killed_turn
from tests.support.server.serving import events_of

pytestmark = pytest.mark.anyio

KILLS = at_night(200, 12)
MOST_EVENTS = 30


async def killed_again_and_again(folder: Path, chance: random.Random) -> None:
    sleeper = endless()
    words = f"I run it.\n```bash\n{sleeper} &\nfor i in 1 2 3; do echo $i; sleep 0.05; done\nkill $!\n```\n"
    said = [says(word + " ") for word in words.split(" ")]
    (folder / "work").mkdir(parents=True)
    async with upstream(stream(*said, chunk(finish="stop"), DONE), repeat=True, chats=True) as model:
        run, seen = "", list[str]()
        for _ in range(KILLS // SERVERS):
            async with asyncio.timeout(60), server(folder, model.base_url) as (client, process):
                if run:
                    await check_kept(client, run, seen)
                run, seen = await killed_turn(client, process, chance.randrange(1, MOST_EVENTS))
            assert await asyncio.to_thread(all_gone, sleeper)
        async with server(folder, model.base_url) as (client, _):
            await check_kept(client, run, seen)


@pytest.mark.timeout(30 + KILLS * 10)
async def test_what_was_seen_survives_a_kill_at_any_moment(tmp_path: Path) -> None:
    async with asyncio.TaskGroup() as side_by_side:
        for seed in range(SERVERS):
            side_by_side.create_task(killed_again_and_again(tmp_path / str(seed), random.Random(seed)))


async def test_a_second_signal_ends_the_time_of_grace(tmp_path: Path) -> None:
    """Its clients are told to return, and the server leaves cleanly."""
    (tmp_path / "work").mkdir()
    text = "```bash\necho up; sleep 60\n```\n"
    flags = ("--shutdown-grace-s", "50")
    async with asyncio.timeout(40), upstream(stream(says(text), chunk(finish="stop"), DONE), chats=True) as model:
        async with server(tmp_path, model.base_url, *flags) as (client, process):
            seen = ""
            async with client.stream("POST", "/chat", json={"message": "Go"}) as response:
                async with aclosing(events_of(response)) as events:
                    async for event in events:
                        seen = event.get("code", "")
                        if "up" in event.get("tail", ()):
                            process.terminate()
                            await asyncio.to_thread(gone, client.base_url.port)
                            process.terminate()
            assert seen == "suspended"
            assert await process.wait() == 0


def gone(port: int | None) -> None:
    """Wait until nobody listens there any more: the first signal has been taken."""
    while True:
        try:
            socket.create_connection(("127.0.0.1", port or 0), timeout=5).close()
        except OSError:
            return
