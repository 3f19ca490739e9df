"""Runs that plan first: only reading tools, at both layers of the gate, until a person has accepted the plan."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from app.core.events import ToolFinished, ToolStarted
from app.core.rules import ApprovalMode
from app.models.scripted import Scripted
from app.policy.gate import decide
from app.policy.grants import Grant
from app.policy.policy_context import PolicyContext
from app.runs.composition.unattended import UnattendedRuns
from app.runs.follow_up import ROUNDS
from app.storage.principals import LOCAL_USER
from app.storage.runs import RunRow
from app.transcript.run_totals import RunTotals
from tests.support.models.replies import tool_call
from tests.support.page.browser import browsing, expect, home, say
from tests.support.server.approvals import follow, stop_as_killed
from tests.support.server.events import of_kind
from tests.support.server.serving import Served, serving, until
from tests.support.terminal.terminals import terminal
from tools.base.rights import Risk
from tools.builtin.submit_plan import ACCEPTED, with_texts
from tools.catalogue import SUBMIT_PLAN, TOOLS
from tools.toolbox import Ask, Refuse

pytestmark = pytest.mark.anyio
LIMIT_S = 60
STEPS = ["Write the file", "Look at it"]


WRITE = tool_call("write_file", path="note.txt", content="made")
SUBMIT = tool_call("submit_plan", steps=STEPS)


@pytest.mark.parametrize("mode", ApprovalMode)
@pytest.mark.parametrize("tool", [*TOOLS, SUBMIT_PLAN], ids=lambda tool: tool.name)
def test_the_gate_refuses_all_that_does_more_than_read(tool: Any, mode: ApprovalMode) -> None:
    policy = PolicyContext(mode, boxed=True, planning=True, grants=(Grant(tool.name, pattern={}),))
    at_all, this_call = decide(LOCAL_USER, tool, None, policy), decide(LOCAL_USER, tool, {}, policy)
    if tool.plans:
        expected = Refuse if mode is ApprovalMode.DENY else Ask
        assert isinstance(at_all, expected) and isinstance(this_call, expected), "a person accepts, in every mode"
    elif tool.risk is not Risk.READ:
        assert isinstance(at_all, Refuse) and isinstance(this_call, Refuse)
        handed = replace(tool, handed=True, risk=Risk.READ)
        assert isinstance(decide(LOCAL_USER, handed, {}, policy), Refuse), "what a client runs is not known"
    elif not (tool.needs_person and mode is ApprovalMode.DENY):
        assert not isinstance(at_all, Refuse)


async def test_nothing_is_written_until_the_plan_is_accepted_and_then_the_run_goes_on(tmp_path: Path) -> None:
    note = tmp_path / "work" / "note.txt"
    provider = Scripted([WRITE, SUBMIT, SUBMIT, WRITE, "Done.", WRITE, "Done again."])
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, provider) as served:
        async with aclosing(served.turn(message="Write it.", mode="plan", approval="auto")) as turn:
            started = await until(turn, "run.started")
            assert {"read_file", "submit_plan"} <= set(started["tools"])
            assert not {"bash", "python", "write_file", "web_fetch"} & set(started["tools"]), "layer 1"
            assert "Only reading tools run" in (await until(turn, "tool.rejected"))["reason"], "layer 2"
            question = await until(turn, "approval.required")
            assert (question["name"], question["arguments"]) == ("submit_plan", {"steps": STEPS})
            url = f"/runs/{started['run']}/approvals/{question['call']}"
            body: dict[str, Any] = {"decision": "deny", "note": "First look at it."}
            assert (await served.client.post(url, json=body)).status_code == 200
            assert "First look at it." in (await until(turn, "tool.rejected"))["reason"]
            question = await until(turn, "approval.required")
            assert not note.exists() and "write_file" not in {tool.name for tool in provider.requests[-1].tools}
            url = f"/runs/{started['run']}/approvals/{question['call']}"
            body |= {"decision": "approve", "arguments": {"steps": ["Write the file well"]}}
            assert (await served.client.post(url, json=body)).status_code == 200
            assert (await until(turn, "plan"))["steps"] == [{"step": "Write the file well", "state": "pending"}]
            assert (await until(turn, "tool.finished"))["text"].endswith(ACCEPTED)
            assert (await until(turn, "tool.finished"))["ok"]
            assert (await until(turn, "run.finished"))["reason"] == "answered"
        assert note.read_text() == "made"
        assert "write_file" in {tool.name for tool in provider.requests[-1].tools}
        note.unlink()
        events = await served.chat("Again.", session=started["session"])
        assert note.exists() and "submit_plan" not in events[0]["tools"], "the next run acts"


@pytest.mark.parametrize("wish", [{"approval": "deny"}, {"when_absent": "deny"}])
async def test_where_nobody_can_accept_the_run_answers_with_its_plan(tmp_path: Path, wish: dict[str, str]) -> None:
    provider = Scripted([SUBMIT, WRITE, "1. Write."])
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, provider) as served:
        events = await served.chat("Write it.", mode="plan", **wish)
    assert "submit_plan" not in events[0]["tools"] and events[-1]["reason"] == "answered"
    assert len(of_kind(events, "tool.rejected")) == 2 and not (tmp_path / "work" / "note.txt").exists()


async def test_no_person_is_asked_about_an_empty_plan(tmp_path: Path) -> None:
    provider = Scripted([tool_call("submit_plan", steps=[]), "There is nothing to do."])
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, provider) as served:
        events = await served.chat("x", mode="plan")
    [rejected] = of_kind(events, "tool.rejected")
    assert "steps" in rejected["reason"] and not of_kind(events, "approval.required")


async def test_named_tools_narrow_what_is_there_after_the_plan_too(tmp_path: Path) -> None:
    provider = Scripted(["Hm."], repeat=True)
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, provider) as served:
        events = await served.chat("x", mode="plan", tools=["read_file", "write_file"])
        assert events[0]["tools"] == ["read_file", "submit_plan"]
        for wrong in ({"tools": ["read_file", "nothing"]}, {"mode": "perhaps"}, {"mode": None}):
            body = {"message": "x", "mode": "plan"} | wrong
            assert (await served.client.post("/chat", json=body)).status_code in (400, 422), wrong
        assert "submit_plan" not in (await served.chat("x"))[0]["tools"]
        assert "Plan first" not in provider.requests[-1].whole()[0].text


async def approve(served: Served, turn: AsyncGenerator[dict[str, Any], None], run: str, name: str) -> None:
    """Approve the run's next question, which is about a call of this tool."""
    question = await until(turn, "approval.required")
    assert question["name"] == name
    answer = await served.client.post(f"/runs/{run}/approvals/{question['call']}", json={"decision": "approve"})
    assert answer.status_code == 200, answer.text


async def test_an_accepted_plan_holds_after_a_restart_and_for_the_follow_up_of_a_job(tmp_path: Path) -> None:
    provider = Scripted([SUBMIT, WRITE, tool_call("bash", command="#!bg\ntrue"), "It runs.", WRITE, "Done."])
    async with asyncio.timeout(LIMIT_S):
        async with serving(tmp_path, provider) as served:
            async with aclosing(served.turn(message="Write it.", mode="plan", approval="ask")) as turn:
                started = await until(turn, "run.started")
                await approve(served, turn, run := started["run"], "submit_plan")
                last = await until(turn, "approval.required")
            await stop_as_killed(served.services, run)
        async with serving(tmp_path, provider) as served:
            async with aclosing(follow(served.client, run, last["seq"] - 1)) as turn:
                await approve(served, turn, run, "write_file")
                assert (await until(turn, "run.finished"))["reason"] == "answered"
            assert (tmp_path / "work" / "note.txt").exists()
            runs: list[RunRow] = []
            while len(runs) < 2:
                runs = await served.services.store.runs(started["session"])
            async with aclosing(follow(served.client, runs[1].id, 0)) as turn:
                assert "submit_plan" not in (await until(turn, "run.started"))["tools"]
                await approve(served, turn, runs[1].id, "write_file")
                await until(turn, "run.finished")
            again, _ = await UnattendedRuns(served.services.factory).restored_agent(runs[1])
            assert again.discipline.limits.rounds == ROUNDS, "of a follow-up, after a restart too"


def test_a_plan_is_accepted_by_its_call_and_by_no_words() -> None:
    asked = ToolStarted("c1", "submit_plan", {"steps": STEPS}, "hermes")
    for name, ok, accepted in (("submit_plan", True, True), ("submit_plan", False, False), ("read_file", True, False)):
        totals = RunTotals()
        totals.record(replace(asked, name=name))
        totals.record(ToolFinished("c1", name, ok, ACCEPTED, 0.1))
        assert totals.has_accepted_plan is accepted


@pytest.mark.parametrize("steps", [STEPS, [{"content": "a"}], [{"step": {"step": "a"}}], [3], "x", None, [{}]])
def test_the_normal_form_of_a_plan_is_reached_at_once(steps: Any) -> None:
    once = with_texts({"steps": steps})
    assert with_texts(once) == once


async def test_a_plan_is_accepted_in_the_terminal(tmp_path: Path) -> None:
    provider = Scripted([SUBMIT, WRITE, "Done.", WRITE, "Again."])
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, provider) as served:
        async with terminal("chat", "--plan", "--url", str(served.client.base_url), home=tmp_path) as shown:
            await shown.ends_with("\n>")
            shown.press("Write it.\r")
            text = await shown.ends_with("answer:")
            assert "submit_plan wants to run." in text and STEPS[0] in text
            shown.press("y\r")
            await shown.until("Done.")
            assert (tmp_path / "work" / "note.txt").exists()


@pytest.mark.usefixtures("chromium")
async def test_a_plan_is_accepted_on_the_page(tmp_path: Path) -> None:
    async with serving(tmp_path, Scripted([SUBMIT, WRITE, "Done."])) as served, browsing() as browser:
        page = await browser.page()
        await page.goto(home(served))
        first = page.get_by_role("checkbox", name="Plan first")
        await first.check()
        await say(page, "Write it.")
        question = page.get_by_role("group", name="Accept this plan?")
        await expect(question.get_by_role("listitem")).to_have_text(STEPS)
        await expect(question.get_by_role("button", name="Approve for this conversation")).to_have_count(0)
        assert not (tmp_path / "work" / "note.txt").exists()
        await question.get_by_role("button", name="Approve once").click()
        await expect(page.get_by_text("Done.", exact=True)).to_be_visible()
        assert (tmp_path / "work" / "note.txt").exists()
        await expect(first).not_to_be_checked()
