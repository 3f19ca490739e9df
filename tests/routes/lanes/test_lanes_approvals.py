"""Calls that need approval on a lane: asked where a person can answer, else refused; decided by a later request."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from app.models.scripted import Scripted
from tests.support.access.people import bearer
from tests.support.lanes.small_lane import PATH, Plain, holds, serving_plain, streamed, user, whole
from tests.support.server.events import kinds

pytestmark = pytest.mark.anyio

# Needs approval in every mode: git would run the file.
HOOK = '<tool_call>{"name": "write_file", "arguments": {"path": ".git/hooks/pre-commit", "content": "x"}}</tool_call>'
ASKS: dict[str, Any] = {"model": "dragoman/agent", "asks": True, "thread": "t"}


def hook(folder: Path) -> Path:
    return folder / "work" / ".git" / "hooks" / "pre-commit"


def runs_of(served: Plain) -> list[str]:
    return list(served.services.runs._live)


async def test_where_no_one_can_answer_a_call_is_refused(tmp_path: Path) -> None:
    model = Scripted([HOOK, "So not."])
    async with serving_plain(tmp_path, model) as served:
        events = await streamed(served, user("Do it"), model="dragoman/agent")
    assert "approval.required" not in kinds(events)
    assert events[-1]["reason"] == "answered" and not hook(tmp_path).exists()


async def test_with_an_open_page_the_stream_stays_and_the_page_decides(tmp_path: Path) -> None:
    async with serving_plain(tmp_path, Scripted([HOOK, "Done."])) as served:
        async with served.client.stream("GET", "/events") as page:
            assert page.status_code == 200
            task = asyncio.create_task(streamed(served, user("Do it"), model="dragoman/agent"))
            await holds(lambda: any(map(served.services.runs.approvals.is_waiting, runs_of(served))))
            [waiting] = (await served.client.get("/approvals")).json()["approvals"]
            path = f"/runs/{waiting['run']}/approvals/{waiting['call']}"
            assert (await served.client.post(path, json={"decision": "approve"})).status_code == 200
            events = await task
        await holds(lambda: not served.services.presence.has_page("local"))
    assert events[-1]["reason"] == "answered" and hook(tmp_path).read_text() == "x"


@pytest.mark.parametrize("approved", [True, False])
async def test_a_later_request_decides_and_streams_the_run_on(tmp_path: Path, approved: bool) -> None:
    async with serving_plain(tmp_path, Scripted([HOOK, "Done."])) as served:
        first = await streamed(served, user("Do it"), **ASKS)
        question = first[-1]
        assert question["type"] == "approval.required"
        run = first[0]["run"]
        assert await served.services.runs.is_active(run)  # though its client has gone
        rest = await streamed(served, verdicts={question["call"]: approved}, **ASKS)
        log = await served.events(run)
    assert kinds(rest)[0] == "approval.resolved" and rest[-1]["reason"] == "answered"
    assert kinds(first) + kinds(rest) == kinds(log)  # nothing twice, nothing lost
    assert hook(tmp_path).exists() == approved


async def test_a_whole_answer_ends_where_the_run_waits(tmp_path: Path) -> None:
    async with serving_plain(tmp_path, Scripted([["I will.", HOOK], "Done."])) as served:
        first = await whole(served, user("Do it"), **ASKS)
        assert (first["text"], first["reason"]) == ("I will.", "")
        [waiting] = (await served.client.get("/approvals")).json()["approvals"]
        then = await whole(served, verdicts={waiting["call"]: True}, **ASKS)
    assert (then["run"], then["text"], then["reason"]) == (first["run"], "Done.", "answered")


async def test_a_decision_of_somebody_else_stands(tmp_path: Path) -> None:
    async with serving_plain(tmp_path, Scripted([HOOK, "So not."])) as served:
        question = (await streamed(served, user("Do it"), **ASKS))[-1]
        [waiting] = (await served.client.get("/approvals")).json()["approvals"]
        path = f"/runs/{waiting['run']}/approvals/{question['call']}"
        assert (await served.client.post(path, json={"decision": "deny"})).status_code == 200
        rest = await streamed(served, verdicts={question["call"]: True}, **ASKS)
    assert (rest[0]["decision"], rest[-1]["reason"]) == ("denied", "answered")
    assert not hook(tmp_path).exists()


async def test_a_verdict_on_nothing_is_refused(tmp_path: Path) -> None:
    async with serving_plain(tmp_path, Scripted([])) as served:
        response = await served.client.post(PATH, json={"messages": [], "verdicts": {"c1": True}} | ASKS)
    assert (response.status_code, response.json()["plain"]["code"]) == (400, "no_approval")


async def test_a_verdict_is_on_a_call_of_the_run_that_is_named(tmp_path: Path) -> None:
    async with serving_plain(tmp_path, Scripted(["Hi.", HOOK, "Done."])) as served:
        other = (await streamed(served, user("Hello"), model="dragoman/agent"))[0]["run"]
        question = (await streamed(served, user("Do it"), **ASKS))[-1]
        body = {"messages": [], "verdicts": {question["call"]: True}, "previous": other} | ASKS
        response = await served.client.post(PATH, json=body)
        assert (response.status_code, response.json()["plain"]["code"]) == (400, "no_approval")
        assert len((await served.client.get("/approvals")).json()["approvals"]) == 1


async def test_the_gate_holds_for_a_guest_of_a_lane(tmp_path: Path) -> None:
    model = Scripted(["```bash\nid\n```", "No."])
    async with serving_plain(tmp_path, model) as served:
        served.client.headers.update(await bearer(served, "gus", role="guest"))
        events = await streamed(served, user("Do it"), model="dragoman/agent")
    assert "tool.started" not in kinds(events)
    assert "bash" not in events[0]["tools"]
