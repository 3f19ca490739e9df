"""`kill -9` in the middle of a helper: both runs go on, and the call finds the helper that it had begun."""

from __future__ import annotations

import asyncio
from contextlib import aclosing, suppress
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.support.models.chatting import DONE, chunk, says
from tests.support.models.replies import tool_call
from tests.support.models.upstream import stream, upstream
from tests.support.server.delegating import delegates
from tests.support.server.dragoman_process import server
from tests.support.server.serving import events_of

pytestmark = pytest.mark.anyio


@pytest.mark.timeout(90)
async def test_a_killed_helper_goes_on_with_its_run(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    replies = (delegates("Write."), tool_call("write_file", path="a.txt", content="x"), "Well.", "Done.")
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
            while not (waiting := (await client.get("/approvals")).json()["approvals"]):
                pass
            assert [one["run"] for one in waiting] == [helper], "it waits on"
            decide = f"/runs/{helper}/approvals/{waiting[0]['call']}"
            assert (await client.post(decide, json={"decision": "approve"})).is_success
            log = (await client.get(f"/runs/{seen[0]['run']}/events")).text
            assert log.count("event: run.finished") == 1 and log.count("event: helper.started") == 1
            assert log.count("event: helper.finished") == 1 and log.count("event: tool.started") == 1
            below = (await client.get(f"/runs/{helper}/events")).text
            assert below.count("event: run.finished") == 1 and below.count("event: tool.started") == 1
            session = (await client.get(f"/sessions/{seen[0]['session']}")).json()
            result = next(one for one in session["messages"] if one["role"] == "tool")
            assert "Well." in result["text"], result
    assert (tmp_path / "work" / "a.txt").read_text() == "x"
