"""Budgets over HTTP: 429 before a run, the reason `budget` within one, and GET /usage beside them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import aclosing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from app.budget.kinds import BudgetSpent
from app.core.provider import Finished, ProviderFailed, TextChunk, TokenUsage
from app.models.scripted import Line, Pause, Raise, Scripted
from app.storage.principals import LOCAL_USER as LOCAL
from app.storage.runs import RunRow
from app.transcript.run_request import RunRequest
from routes.protocol.requests import ChatRequest
from tests.support.access.people import bearer
from tests.support.budgets import DAY, MONTH, refused_by_budget, used_of_budget
from tests.support.models.chatting import says
from tests.support.models.upstream import hang, stream, upstream
from tests.support.server.dragoman_process import server
from tests.support.server.killing import killed_turn
from tests.support.server.serving import Served, answer_in, serving, until

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("database")]

SPENT: list[list[Line]] = [[TokenUsage(90_000, 9_990), "Hi."]]  # of 100,000
SLEEP = "```bash\necho up; sleep 60\n```\n"
LOST = Raise(ProviderFailed("model_cut", "The connection was lost.", retryable=False))


async def start(served: Served, **more: Any) -> RunRow:
    agent = await served.services.factory.agent(LOCAL, ChatRequest(message="x"))
    return await served.services.runs.start(agent, LOCAL, RunRequest("x", **more))


async def test_whoever_has_spent_the_month_is_told_when_the_next_begins(tmp_path: Path) -> None:
    async with asyncio.timeout(30), serving(tmp_path, Scripted(SPENT), tokens_per_month="100_000") as served:
        first = await served.client.post("/chat", json={"message": "x"}, headers={"Idempotency-Key": "k"})
        assert "answered" in first.text
        again = await served.client.post("/chat", json={"message": "x"}, headers={"Idempotency-Key": "k"})
        assert again.text == first.text  # what was done before costs nothing
        error, _ = await refused_by_budget(served)
        tokens = await used_of_budget(served)
    month = datetime.now(UTC).replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    after = ((month + timedelta(days=32)).replace(day=1)).timestamp()
    assert (error["budget"], error["reset"]) == (MONTH, after)
    assert "99,990" in error["message"] and "100,000" in error["message"]
    assert tokens == {"period": f"{month:%Y-%m}", "used": 99_990, "reserved": 0, "limit": 100_000, "reset": after}
    async with asyncio.timeout(30), serving(tmp_path, Scripted([]), tokens_per_month="100_000") as served:
        await refused_by_budget(served)  # a restart gives nothing back
    async with asyncio.timeout(30), serving(tmp_path, Scripted(["Hi."])) as served:
        assert (await served.chat())[-1]["reason"] == "answered"


async def test_a_run_that_spends_the_rest_ends_with_the_reason_budget(tmp_path: Path) -> None:
    script: list[Sequence[Line]] = [[TokenUsage(9_000, 500), "```list_files\n```\n"], ["Never."]]
    async with asyncio.timeout(30), serving(tmp_path, Scripted(script), tokens_per_month="10_000") as served:
        events = await served.chat()
        session = (await served.client.get(f"/sessions/{events[0]['session']}")).json()
    assert [event["type"] for event in events][-4:] == ["round.started", "notice", "text.delta", "run.finished"]
    assert events[-3]["code"] == events[-1]["reason"] == "budget"
    assert "The budget resets at" in events[-3]["message"] and answer_in(events[-1]["text"]) == events[-2]["text"] != ""
    assert [message["role"] for message in session["messages"]] == ["user", "assistant", "tool", "assistant"]


async def test_an_answer_gets_no_more_tokens_than_are_left(tmp_path: Path) -> None:
    provider = Scripted([["Half of it", TokenUsage(900, 2100), Finished("length")]])
    async with asyncio.timeout(30), serving(tmp_path, provider, tokens_per_month="3000") as served:
        events = await served.chat()
        assert (await used_of_budget(served))["used"] == 3000
    [asked] = provider.requests
    assert asked.max_tokens and 64 <= asked.max_tokens < 3000
    assert (events[-1]["reason"], events[-1]["text"]) == ("budget", "Half of it")


async def test_a_server_that_writes_more_is_cut_off(tmp_path: Path) -> None:
    provider = Scripted([[TextChunk("word ") for _ in range(20_000)]])
    async with asyncio.timeout(30), serving(tmp_path, provider, tokens_per_month="3000") as served:
        events = await served.chat()
        tokens = await used_of_budget(served)
    assert events[-1]["reason"] == "budget" and 1000 < len(events[-1]["text"]) < 3000 * 8 + 5
    assert (tokens["used"], tokens["reserved"], provider.unfinished) == (3000, 0, 1)


async def test_a_server_that_reports_more_exceeds_a_budget_by_one_request(tmp_path: Path) -> None:
    """The prompt is estimated: what its server reports is used, however much, and then nothing is left."""
    provider = Scripted([["Hi.", TokenUsage(50_000, 7)], ["Never."]])
    async with asyncio.timeout(30), serving(tmp_path, provider, tokens_per_month="3000") as served:
        assert (await served.chat())[-1]["reason"] == "answered"
        assert (await used_of_budget(served))["used"] == 50_007
        await refused_by_budget(served)
    assert len(provider.requests) == 1


async def test_an_answer_that_goes_on_after_such_a_report_is_cut_off(tmp_path: Path) -> None:
    script: list[list[Line]] = [[TokenUsage(50_000, 1), TextChunk("Hi."), *[TextChunk(" word") for _ in range(99)]]]
    async with asyncio.timeout(30), serving(tmp_path, Scripted(script), tokens_per_month="3000") as served:
        events = await served.chat()
        assert events[-1]["reason"] == "budget" and len(events[-1]["text"]) < 20
        assert 50_001 <= (await used_of_budget(served))["used"] < 50_010
        await refused_by_budget(served)


async def test_a_long_answer_takes_more_as_it_grows(tmp_path: Path) -> None:
    provider = Scripted([[TextChunk("word " * 100) for _ in range(200)]])
    async with asyncio.timeout(30), serving(tmp_path, provider, tokens_per_month="100_000") as served:
        events = await served.chat()
        tokens = await used_of_budget(served)
    assert events[-1]["reason"] == "answered" and provider.requests[0].max_tokens is None
    assert 25_000 <= tokens["used"] < 30_000 and tokens["reserved"] == 0


CUT: list[tuple[list[Line], str]] = [
    ([LOST], "run.failed"),
    ([TokenUsage(700, 30), "Half", LOST], "run.failed"),
    (["Half", Pause(asyncio.Event())], "deadline"),
    ([TokenUsage(700, 30), "Half", Pause(asyncio.Event())], "deadline"),
    (["Half", Pause(asyncio.Event())], "cancelled"),
    ([TokenUsage(700, 30), "Half", Pause(asyncio.Event())], "cancelled"),
]


@pytest.mark.parametrize(("script", "end"), CUT)
async def test_a_run_that_is_cut_off_is_charged(tmp_path: Path, script: list[Line], end: str) -> None:
    script = [Pause(asyncio.Event()) if isinstance(step, Pause) else step for step in script]  # of this test's loop
    async with asyncio.timeout(30), serving(tmp_path, Scripted([script]), tokens_per_month="100_000") as served:
        async with aclosing(served.turn(message="x")) as turn:
            run = (await until(turn, "run.started"))["run"]
            if end != "run.failed":
                await until(turn, "text.delta")
                assert (await used_of_budget(served))["reserved"] > 4096
                await (served.end_time(run) if end == "deadline" else served.client.post(f"/runs/{run}/cancel"))
            *_, last = [event async for event in turn]
        tokens = await used_of_budget(served)
    assert end in (last["type"], last.get("reason"))
    assert tokens["reserved"] == 0 and 100 < tokens["used"] < 4096
    assert TokenUsage(700, 30) not in script or tokens["used"] == 730


@pytest.mark.parametrize("code", ["model_down", "model_busy", "model_cut"])
async def test_a_model_that_read_nothing_costs_nothing(tmp_path: Path, code: str) -> None:
    failure = Raise(ProviderFailed(code, "It did not work.", retryable=False))
    script: list[list[Line]] = [[failure], ["Half", failure]]
    async with asyncio.timeout(30), serving(tmp_path, Scripted(script), tokens_per_month="100_000") as served:
        await served.chat()
        before = await used_of_budget(served)
        await served.chat()
        after = await used_of_budget(served)
    assert (before["used"] == 0) == (code != "model_cut") and before["reserved"] == after["reserved"] == 0
    assert after["used"] > before["used"]


async def test_tools_stop_when_the_seconds_of_the_day_are_over(tmp_path: Path) -> None:
    provider = Scripted([SLEEP, SLEEP, "Without tools."])
    async with asyncio.timeout(30), serving(tmp_path, provider, tool_seconds_per_day="1") as served:
        events = await served.chat()
        [finished] = [event for event in events if event["type"] == "tool.finished"]
        assert not finished["ok"] and "stopped after 1 s, the time limit" in finished["text"]
        assert events[-1]["reason"] == "budget" and "seconds of tools a day" in events[-3]["message"]
        seconds = await used_of_budget(served, DAY)
        assert seconds["used"] >= 1 and seconds["reserved"] == 0
        error, wait_s = await refused_by_budget(served)
        assert (error["budget"], error["reset"]) == (DAY, seconds["reset"]) and wait_s <= 86_401
        assert (await served.chat(tools=[]))[-1]["text"] == "Without tools."


async def test_a_tool_that_is_stopped_is_charged_for_its_time(tmp_path: Path) -> None:
    async with asyncio.timeout(30), serving(tmp_path, Scripted([SLEEP]), tool_seconds_per_day="100") as served:
        async with aclosing(served.turn(message="x")) as turn:
            run = (await until(turn, "run.started"))["run"]
            await until(turn, "tool.progress")
            assert (await used_of_budget(served, DAY))["reserved"] == 30
            await served.client.post(f"/runs/{run}/cancel")
        seconds = await used_of_budget(served, DAY)
        kept = await served.services.store.usage("local", "tool_seconds", seconds["period"])
    assert 0 < seconds["used"] < 20 and seconds["reserved"] == 0 and kept == pytest.approx(seconds["used"], abs=0.001)


async def test_only_so_many_runs_at_a_time(tmp_path: Path) -> None:
    go_on = asyncio.Event()
    provider = Scripted([["One.", Pause(go_on)], "Two.", "Three."])
    async with asyncio.timeout(30), serving(tmp_path, provider, max_runs="1") as served:
        async with aclosing(served.turn(message="x")) as turn:
            session = (await until(turn, "run.started"))["session"]
            await until(turn, "text.delta")
            error, wait_s = await refused_by_budget(served)
            assert error["budget"] == "runs" and "1 active runs and may have 1" in error["message"] and wait_s == 5
            assert await used_of_budget(served, "runs") == {"used": 1, "limit": 1}
            behind = asyncio.create_task(served.chat(session=session, when_busy="queue"))  # one at a time all the same
            while (await served.client.get(f"/sessions/{session}")).json()["runs"][1:] == []:
                pass
            go_on.set()
        assert (await behind)[-1]["text"] == "Two."
        assert (await served.chat())[-1]["text"] == "Three."
        assert await used_of_budget(served, "runs") == {"used": 0, "limit": 1}


async def test_starts_at_the_same_moment_cannot_pass_together(tmp_path: Path) -> None:
    provider = Scripted([[Pause(asyncio.Event())]], repeat=True)
    async with asyncio.timeout(30), serving(tmp_path, provider, max_runs="3") as served:
        begun = await asyncio.gather(*(start(served) for _ in range(12)), return_exceptions=True)
        assert sum(isinstance(one, BudgetSpent) for one in begun) == 9
        assert sum(isinstance(one, RunRow) for one in begun) == 3
        await served.services.runs.cancel_all("cancelled")
        assert (await used_of_budget(served, "runs"))["used"] == 0


async def test_what_the_server_begins_by_itself_is_not_refused_and_ends_with_the_reason(tmp_path: Path) -> None:
    async with asyncio.timeout(30), serving(tmp_path, Scripted(SPENT), tokens_per_month="100_000") as served:
        session = (await served.chat())[0]["session"]
        row = await start(served, session=session, asked=False)
        assert (await served.events(row.id))[-1]["reason"] == "budget"
        messages = (await served.client.get(f"/sessions/{session}")).json()["messages"]
    assert [message["role"] for message in messages[-2:]] == ["user", "assistant"]  # it is not lost


async def test_a_killed_server_gives_nothing_back(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    flags = ("--tokens-per-month", "100000")
    async with asyncio.timeout(60), upstream(*[stream(says("Hm"), then=hang)] * 2, chats=True) as model:
        async with server(tmp_path, model.base_url, *flags) as (client, process):
            await killed_turn(client, process, 3)
        async with server(tmp_path, model.base_url, *flags) as (client, _):
            tokens = (await client.get("/usage")).json()["usage"][MONTH]
    assert 4096 < tokens["used"] < 10_000  # beside what the run reserves that goes on


async def test_everybody_sees_their_own_usage_and_admins_everybody_s(tmp_path: Path) -> None:
    script: list[list[Line]] = [[TokenUsage(10, 5), "Hi."], [TokenUsage(100, 50), "Hi."]]
    async with asyncio.timeout(30), serving(tmp_path, Scripted(script), tokens_per_month="9999") as served:
        await served.chat()
        root, bob = await bearer(served, "root", "admin"), await bearer(served, "bob", budget=f'{{"{MONTH}": 5000}}')
        assert "answered" in (await served.client.post("/chat", json={"message": "x"}, headers=bob)).text
        asked: dict[tuple[str, str], Any] = {}
        for name, headers in (("root", root), ("bob", bob)):
            for whose in ("", "?principal=bob", "?principal=local", "?principal=nobody"):
                asked[name, whose] = await served.client.get(f"/usage{whose}", headers=headers)
    assert asked["bob", ""].json() == asked["bob", "?principal=bob"].json() == asked["root", "?principal=bob"].json()
    told = {key: answer.json()["usage"][MONTH] for key, answer in asked.items() if answer.status_code == 200}
    numbers = {key: (one["used"], one["limit"]) for key, one in told.items()}
    assert numbers["bob", ""] == (150, 5000)
    assert numbers["root", "?principal=local"] == (15, 9999) and numbers["root", ""] == (0, 9999)
    assert asked["root", "?principal=nobody"].status_code == 404
    assert {asked["bob", whose].status_code for whose in ("?principal=local", "?principal=nobody")} == {403}


async def test_requests_per_minute_have_a_setting_too(tmp_path: Path) -> None:
    async with asyncio.timeout(30), serving(tmp_path, Scripted([]), requests_per_minute="3") as served:
        codes = [(await served.client.get("/usage")).status_code for _ in range(5)]
        assert codes == [200] * 3 + [429] * 2
        bob = await bearer(served, "bob", budget='{"requests_per_minute": 1}')
        assert [(await served.client.get("/usage", headers=bob)).status_code for _ in range(2)] == [200, 429]
