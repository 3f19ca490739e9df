"""What happens while nobody is there: a call waits without an end, or is refused at once, as the request says."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path

import pytest

from app.models.scripted import Scripted
from app.runs.composition.unattended import UnattendedRuns
from tests.support.server.approvals import note, wait_until, waiting_call
from tests.support.server.serving import serving

pytestmark = pytest.mark.anyio

LIMIT_S = 60
WRITE = "```write_file\nnote.txt\nfirst\n```"
HOOK = '<tool_call>{"name": "write_file", "arguments": {"path": ".git/hooks/pre-commit", "content": "x"}}</tool_call>'


async def test_a_call_waits_without_an_end_also_for_the_next_server(tmp_path: Path) -> None:
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, Scripted([WRITE])) as served:
        question, path = await waiting_call(served)
        assert "expires_at" in question and question["expires_at"] is None
        [listed] = (await served.client.get("/approvals")).json()["approvals"]
        assert listed["call"] == question["call"] and listed["expires_at"] is None
        row = await served.services.store.approval(question["run"], question["call"])
        assert row and row.expires is None
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, Scripted(["Done."])) as served:
        [listed] = (await served.client.get("/approvals")).json()["approvals"]
        assert listed["expires_at"] is None and not note(tmp_path).exists()
        assert (await served.client.post(path, json={"decision": "approve"})).status_code == 200
        await served.services.runs.ended(question["run"])
        events = await served.events(question["run"])
    assert events[-1]["reason"] == "answered" and note(tmp_path).read_text() == "first"


async def test_the_time_of_a_run_stands_still_while_it_waits(tmp_path: Path) -> None:
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, Scripted([WRITE, WRITE, "Done."])) as served:
        question, path = await waiting_call(served, time_limit_s=4)
        await asyncio.to_thread(wait_until, time.time() + 5)
        assert (await served.client.post(path, json={"decision": "approve", "scope": "session"})).status_code == 200
        await served.services.runs.ended(question["run"])
        events = await served.events(question["run"])
    assert events[-1]["reason"] == "answered" and note(tmp_path).read_text() == "first"


@pytest.mark.parametrize("approval", ["sandboxed", "ask", "auto"])
async def test_where_nobody_will_come_what_asks_is_refused_at_once(tmp_path: Path, approval: str) -> None:
    provider = Scripted([HOOK, "Done."])
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, provider) as served:
        events = await served.chat("Write.", approval=approval, when_absent="deny")
        row = await served.services.store.run(events[0]["run"])
        assert row and json.loads(row.policy) == {"approval": approval, "when_absent": "deny"}
        unattended = UnattendedRuns(served.services.factory)
        again, _ = await unattended.restored_agent(row)  # after a restart, and for follow-ups
    assert again.scope.gate.policy.unattended == "when_absent: deny"
    assert events[0]["limits"]["when_absent"] == "deny"
    [rejected] = [event for event in events if event["type"] == "tool.rejected"]
    about, others = rejected["reason"].split("This run does not ask for approval (when_absent: deny).")
    if approval == "ask":  # in which it is not offered at all
        assert about.startswith("write_file may not be used: ") and others == " There are: read_file, list_files."
    else:
        assert about.startswith("This call of write_file is refused: ") and not others
    assert "approval.required" not in {event["type"] for event in events} and events[-1]["reason"] == "answered"
    assert not (tmp_path / "work" / ".git").exists()
    told = provider.requests[-1].messages
    assert any("does not ask for approval" in message.text for message in told)


async def test_what_asks_nobody_runs_where_nobody_will_come(tmp_path: Path) -> None:
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, Scripted([WRITE, "Done."])) as served:
        events = await served.chat("Write.", when_absent="deny")
    assert events[-1]["reason"] == "answered" and note(tmp_path).read_text() == "first"


async def test_another_word_says_what_is_allowed(tmp_path: Path) -> None:
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, Scripted([])) as served:
        answer = await served.client.post("/chat", json={"message": "x", "when_absent": "perhaps"})
    assert answer.status_code == 422
    assert "when_absent" in answer.text and "wait" in answer.text and "deny" in answer.text
