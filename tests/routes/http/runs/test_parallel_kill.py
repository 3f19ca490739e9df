"""A server that is killed while calls run side by side: each that was started is reported as unknown, once."""

from __future__ import annotations

import asyncio
from contextlib import aclosing, suppress
from pathlib import Path
from typing import Any

import httpx2
import pytest

from app.transcript.conversation import NOT_RUN, STOPPED
from tests.support.models.chatting import DONE, chunk, says
from tests.support.models.upstream import stream, upstream
from tests.support.sandbox.processes import all_gone, endless, until_alive
from tests.support.server.dragoman_process import server
from tests.support.server.serving import events_of

pytestmark = pytest.mark.anyio

READS = '[{"match": "bash", "risk": "read"}]'


async def test_calls_that_only_read_are_made_again_side_by_side(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    sleepers = [endless(), endless()]
    reply = "".join(f"```bash\n{command}\n```\n" for command in ["echo done", *sleepers])
    reply += "```write_file\nnote.txt\nnever\n```\n"
    seen: list[dict[str, Any]] = []
    async with (
        asyncio.timeout(30),
        upstream(stream(says(reply), chunk(finish="stop"), DONE), repeat=True, chats=True) as model,
    ):
        async with server(tmp_path, model.base_url, "--tools", READS) as (client, process):
            with suppress(httpx2.TransportError):  # it dies with the server
                async with client.stream("POST", "/chat", json={"message": "Go"}) as response:
                    async with aclosing(events_of(response)) as events:
                        async for event in events:
                            seen.append(event)
                            kinds = [one["type"] for one in seen]
                            if kinds.count("tool.started") == 3 and "tool.finished" in kinds:
                                process.kill()
                                break
            await process.wait()
        assert all(all_gone(sleeper) for sleeper in sleepers)
        started = [event["call"] for event in seen if event["type"] == "tool.started"]
        async with server(tmp_path, model.base_url, "--tools", READS) as (client, _):
            run = f"/runs/{seen[0]['run']}"
            for sleeper in sleepers:
                await until_alive(sleeper)
            await client.post(f"{run}/cancel")
            log = (await client.get(f"{run}/events")).text
            session = (await client.get(run)).json()["session"]
            messages = (await client.get(f"/sessions/{session}")).json()["messages"]
    results = {message["call"]: message["text"] for message in messages if message["role"] == "tool"}
    assert [*results][:3] == started and log.count("event: tool.started") == 3
    assert [*results.values()] == ["done", STOPPED, STOPPED, NOT_RUN]
    assert not (tmp_path / "work" / "note.txt").exists()
