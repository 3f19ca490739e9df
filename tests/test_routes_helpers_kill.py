"""`kill -9` in the middle of a helper: both runs end once, and the call is not made again."""

from __future__ import annotations

import asyncio
from contextlib import aclosing, suppress
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.chatting import DONE, chunk, says
from tests.dragoman_process import server
from tests.serving import events_of
from tests.test_routes_helpers import call, delegates
from tests.upstream import stream, upstream

pytestmark = pytest.mark.anyio


@pytest.mark.timeout(90)
async def test_a_killed_helper_is_interrupted_with_its_run(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    replies = (delegates("Write."), call("write_file", path="a.txt", content="x"), "Done.", "Well.")
    acts = [stream(says(text), chunk(finish="stop"), DONE) for text in replies]
    flags = ("--helpers",)
    seen = list[dict[str, Any]]()
    async with asyncio.timeout(80), upstream(*acts, chats=True) as model:
        async with server(tmp_path, model.base_url, *flags) as (client, process):
            body = {"message": "Ask", "approval": "ask", "tools": ["delegate", "write_file"]}
            with suppress(httpx2.TransportError):
                async with (
                    client.stream("POST", "/chat", json=body) as response,
                    aclosing(events_of(response)) as events,
                ):
                    async for event in events:
                        seen.append(event)
                        if event["type"] == "helper.approval":
                            process.kill()
            await process.wait()
        async with server(tmp_path, model.base_url, *flags) as (client, _):
            helper = next(event["helper"] for event in seen if event["type"] == "helper.started")
            log = (await client.get(f"/runs/{seen[0]['run']}/events")).text
            assert log.count("event: run.finished") == 1 and log.count("event: helper.started") == 1
            state = (await client.get(f"/runs/{helper}")).json()
            assert state["state"] == "interrupted", "a helper that waits for a person does not outlive its call"
            assert not (await client.get("/approvals")).json()["approvals"]
            session = (await client.get(f"/sessions/{seen[0]['session']}")).json()
            result = next(one for one in session["messages"] if one["role"] == "tool")
            assert "not known" in result["text"] or "unknown" in result["text"], result
            done = await client.post("/chat", json={"message": "And now?", "session": seen[0]["session"]})
            assert "run.finished" in done.text and "helper.started" not in done.text
    assert not (tmp_path / "work" / "a.txt").exists()
