"""Runs of one call that no model makes: decided on, asked about, logged and replayed as any other call."""

from __future__ import annotations

import json
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from app.core.rules import WhenAbsent
from app.models.scripted import Scripted
from app.policy.stored_grants import Review
from app.runs.composition.refusals import UnknownTool
from app.runs.run_options import RunOptions
from app.storage.principals import LOCAL_USER, Principal
from app.storage.runs import ALL, RunRow
from app.transcript.run_request import DirectCall, RunRequest
from tests.support.replays import outcomes, recorded
from tests.support.server.serving import Served, serving
from tools.base.rights import Role

pytestmark = pytest.mark.anyio

GUEST = Principal("gus", Role.GUEST)
Event = dict[str, Any]


async def begin(
    served: Served, name: str, principal: Principal = LOCAL_USER, session: str | None = None, **arguments: object
) -> RunRow:
    options = RunOptions(tools=[name], when_absent=WhenAbsent.WAIT)
    agent = await served.services.factory.agent(principal, options, session)
    turn = RunRequest("", session, policy=options.policy(), call=DirectCall(name, arguments, "mcp"), subject="A client")
    return await served.services.runs.start(agent, principal, turn)


async def events_of(served: Served, row: RunRow) -> list[Event]:
    """All events of a run, which has exactly one terminal event."""
    async with aclosing(served.services.runs.watch(row.id, 0)) as pages:
        found = [json.loads(one.data) async for page in pages for one in page]
    assert [one["type"] for one in found if one["type"] in ("run.finished", "run.failed")] == [found[-1]["type"]]
    return found


def only(events: list[Event], kind: str) -> Event:
    [event] = [one for one in events if one["type"] == kind]
    return event


async def waiting_call(served: Served, row: RunRow) -> str:
    async with aclosing(served.services.runs.watch(row.id, 0)) as pages:
        async for page in pages:
            for one in page:
                if one.type == "approval.required":
                    return str(json.loads(one.data)["call"])
    raise AssertionError("it did not wait")


async def test_a_call_runs_without_a_model(tmp_path: Path) -> None:
    model = Scripted([])
    async with serving(tmp_path, model, max_rounds=1) as served:
        row = await begin(served, "bash", command="echo hi")
        events = await events_of(served, row)
        assert only(events, "run.started")["source"] == "mcp"
        assert only(events, "tool.started")["arguments"] == {"command": "echo hi"}
        assert only(events, "tool.finished")["text"].startswith("hi")
        assert events[-1]["reason"] == "answered"
        assert [one.role for one in await served.services.store.messages(row.session)] == ["assistant", "tool"]
        [audit] = [one for _, one in await served.services.store.audit(1 << 40, 10) if one.action == "bash"]
        assert (audit.run, audit.decision) == (row.id, "allow")
    assert not model.requests


async def test_its_session_goes_on_with_calls_and_with_a_model(tmp_path: Path) -> None:
    async with serving(tmp_path, Scripted(["It printed 1 and 2."])) as served:
        first = await begin(served, "bash", command="echo 1")
        await events_of(served, first)
        await events_of(served, await begin(served, "bash", session=first.session, command="echo 2"))
        events = await served.chat("What did it print?", session=first.session)
        assert events[-1]["text"] == "It printed 1 and 2."


async def test_the_gate_refuses_what_the_principal_may_not_use(tmp_path: Path) -> None:
    async with serving(tmp_path, Scripted([])) as served:
        with pytest.raises(UnknownTool):
            await begin(served, "bash", GUEST, command="echo hi")
        row = await begin(served, "write_file", path="../up.txt", content="x")
        rejected = only(await events_of(served, row), "tool.finished")
        assert not rejected["ok"]


@pytest.mark.parametrize("decision", ["approve", "deny"])
async def test_a_call_that_needs_approval_waits(tmp_path: Path, decision: Any) -> None:
    async with serving(tmp_path, Scripted([]), approval_admin="ask") as served:
        row = await begin(served, "write_file", path="a.txt", content="x")
        call = await waiting_call(served, row)
        await served.services.runs.decide(row.id, call, LOCAL_USER, Review(decision, door="mcp"))
        events = await events_of(served, row)
        assert only(events, "approval.resolved")["door"] == "mcp"
        assert (tmp_path / "work/a.txt").exists() == (decision == "approve")


async def test_a_stopped_server_leaves_a_waiting_call_to_the_next_one(tmp_path: Path) -> None:
    async with serving(tmp_path, Scripted([]), approval_admin="ask") as served:
        row = await begin(served, "write_file", path="a.txt", content="x")
        await waiting_call(served, row)
    async with serving(tmp_path, Scripted([]), approval_admin="ask") as served:
        [waiting] = await served.services.store.approvals(LOCAL_USER.name)
        await served.services.runs.decide(row.id, waiting.call, LOCAL_USER, Review("approve"))
        assert only(await events_of(served, row), "tool.finished")["ok"]
    assert (tmp_path / "work/a.txt").read_text() == "x"


async def test_it_is_replayed(tmp_path: Path) -> None:
    async with serving(tmp_path, Scripted([]), record=True) as served:
        row = await begin(served, "bash", command="echo hi")
        await events_of(served, row)
        assert await served.services.store.events(row.id, 0, ALL)
        [outcome] = await outcomes(await recorded(served))
    assert outcome.state == "same", outcome
