"""Labels survive `kill -9`, also in the middle of a call that copies labelled data."""

from __future__ import annotations

import asyncio
from contextlib import aclosing, suppress
from pathlib import Path

import httpx2
import pytest

from tests.support.access.labelled import LABELS, SECRET, Replies
from tests.support.models.upstream import upstream
from tests.support.server.dragoman_process import server
from tests.support.server.serving import events_of

pytestmark = pytest.mark.anyio
COPY = "```bash\ncp customers/a.txt copy.txt; echo copied; sleep 600\n```"
ONLY_LOCAL = LABELS.replace('endpoints = ["local"]', 'endpoints = ["default"]')


async def test_a_kill_in_the_middle_of_a_copy_leaves_no_file_without_its_label(tmp_path: Path) -> None:
    work = tmp_path / "work"
    (work / "customers").mkdir(parents=True)
    (work / "customers" / "a.txt").write_text(SECRET)
    toml = tmp_path / "dragoman.toml"
    toml.write_text(ONLY_LOCAL)
    replies = Replies(COPY, "I look.", "```read_file\ncopy.txt\n```", "Read.")
    async with asyncio.timeout(120), upstream(replies, repeat=True) as model:
        replies.server = model
        more = ("--config", str(toml))
        async with server(tmp_path, model.base_url, *more) as (client, process):
            session = run = ""
            with suppress(httpx2.TransportError):
                async with client.stream("POST", "/chat", json={"message": "Copy it."}) as response:
                    async with aclosing(events_of(response)) as events:
                        async for event in events:
                            session, run = event.get("session", session), event.get("run", run)
                            if event["type"] == "tool.progress" and "copied" in str(event["tail"]):
                                process.kill()
            await process.wait()
        assert (work / "copy.txt").read_text() == SECRET
        async with server(tmp_path, model.base_url, *more) as (client, _):
            assert (await client.get(f"/sessions/{session}")).json()["labels"] == ["customer"]
            assert "event: run.finished" in (await client.get(f"/runs/{run}/events")).text
            async with client.stream("POST", "/chat", json={"message": "Read the copy."}) as response:
                async with aclosing(events_of(response)) as events:
                    seen = [event async for event in events]
            assert [event["labels"] for event in seen if event["type"] == "labels.added"] == [["customer"]]
