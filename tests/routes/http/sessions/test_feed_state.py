"""GET /events tells how things are: all of it first, then what has changed, long rows once."""

from __future__ import annotations

import asyncio
import json
import signal
import time
from pathlib import Path

import pytest

from app.models.scripted import Pause, Scripted
from app.storage.approvals import ApprovalRow
from routes.http.dashboard_state import ROOM
from tests.support.access.people import LIMIT_S
from tests.support.models import chatting
from tests.support.models.chatting import DONE, chunk
from tests.support.models.replies import in_background, says
from tests.support.models.upstream import stream, upstream
from tests.support.server.background_jobs import WAIT, job_of
from tests.support.server.dragoman_process import server
from tests.support.server.feeding import begin, feeding
from tests.support.server.serving import serving

pytestmark = pytest.mark.anyio
SECRET = "sk-proj-Zb81Qe72KdLm"


async def test_the_state_comes_whole_and_then_by_what_has_changed(tmp_path: Path) -> None:
    go_on = asyncio.Event()
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, Scripted([["Hi.", Pause(go_on)]])) as served:
        async with feeding(served) as feed:
            whole = (await feed.until("state")).data
            keys = {"type", "me", "server", "paused", "runs", "approvals", "jobs", "mcp", "list"}
            keys |= {"reminders", "downloads"}
            assert whole.keys() == keys
            about = {"version", "model", "endpoint", "embedded", "sandbox", "boxed", "networked"}
            assert whole["server"].keys() == about
            began = await begin(served, "1")
            assert (await feed.until("state")).data.keys() == {"type", "runs"}
            await feed.until_state(lambda state: [run["state"] for run in state["runs"]] == ["running"])
            assert feed.state["runs"][0]["id"] == began["run"]
            await served.client.post("/pause")
            news = await feed.until(lambda one: "paused" in one.data)
            assert news.data == {"type": "state", "paused": True}
            go_on.set()
            await feed.until_state(lambda state: state["runs"] == [])


async def test_what_waits_is_told_once_in_full_and_much_of_it_piece_by_piece(tmp_path: Path) -> None:
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, Scripted([["Hi."]])) as served:
        store, notifier = served.services.store, served.services.runs.notifier
        served.services.redactor.add(SECRET)

        async def wait_for(call: str, words: str) -> None:
            arguments, now = json.dumps({"command": words}), time.time()
            row = ApprovalRow("run_1", call, "ses_1", "local", "bash", arguments, "", "why", now, now + 60)
            await store.write([row])

        for number in range(3):
            await wait_for(f"long_{number}", "x" * ROOM * 2)
        async with feeding(served) as feed:
            for count in (1, 2, 3):
                told = (await feed.until(lambda one: "approvals" in one.data)).data["approvals"]
                assert [len(json.dumps(row)) > ROOM for row in told] == [False] * (count - 1) + [True]
            await wait_for("short", f"echo {SECRET}")
            notifier.notify("local")
            news = (await feed.until("state")).data
            assert news["approvals"][:3] == [{"run": "run_1", "call": f"long_{number}"} for number in range(3)]
            assert news["approvals"][3]["arguments"] == {"command": "echo [redacted]"}
            assert (await served.client.get("/approvals")).json()["approvals"] == feed.state["approvals"]
            decided = await served.client.post("/runs/run_1/approvals/long_1", json={"decision": "deny"})
            assert decided.status_code == 200
            notifier.notify("local")
            news = (await feed.until("state")).data
            assert [row["call"] for row in news["approvals"]] == ["long_0", "long_2", "short"]
            assert len(json.dumps(news)) < 400


async def test_a_job_shows_its_last_lines_while_it_runs_and_afterwards(tmp_path: Path) -> None:
    provider = Scripted([in_background(f"echo one; {WAIT}; echo {SECRET}"), says("It runs.")])
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, provider, job_follow_up="false") as served:
        served.services.redactor.add(SECRET)
        async with feeding(served) as feed, feeding(served) as other:
            _, job = await job_of(served)
            await feed.until_state(lambda state: [row.get("tail") for row in state["jobs"]] == [["one"]])
            [row] = feed.state["jobs"]
            assert (row["id"], row["state"], row["lines"], row["bytes"]) == (job, "running", 1, 4)
            assert "elapsed_s" not in row and row["started"]
            (tmp_path / "work" / "go").touch()
            for one in (feed, other):
                await one.until_state(lambda state: [row["state"] for row in state["jobs"]] == ["exited"])
                [row] = one.state["jobs"]
                assert row["tail"] == ["one", "[redacted]"]
                assert row["ended"] >= row["started"]
            await served.client.post("/pause")
            assert "jobs" not in (await feed.until(lambda one: "paused" in one.data)).data


async def test_an_open_page_does_not_hold_up_the_end_of_the_server(tmp_path: Path) -> None:
    words = stream(chatting.says("Hello"), chunk(finish="stop"), DONE)
    async with asyncio.timeout(LIMIT_S), upstream(words, chats=True) as model:
        async with server(tmp_path, model.base_url) as (client, process):
            began = await client.post("/chat", json={"message": "Go"}, headers={"prefer": "respond-async"})
            session, seen = began.json()["session"], b""
            async with client.stream("GET", "/events", params={"session": session}) as response:
                async for block in response.aiter_bytes():  # raises if the stream is cut instead of ended
                    seen += block
                    if b"run.finished" in seen and process.returncode is None:
                        process.send_signal(signal.SIGTERM)
                assert await process.wait() == 0
            assert seen.count(b"event: run.finished") == 1 and seen.endswith(b"\n\n")
