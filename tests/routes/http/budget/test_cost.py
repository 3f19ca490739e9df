"""Cost over HTTP: each round, run, session and month; whatever ends a run, its rounds add up to all of these."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from app.budget.kinds import TOKENS
from app.core.provider import Finished, ProviderFailed, TextChunk, TokenUsage
from app.models.scripted import Line, Pause, Raise, Scripted
from app.storage.usage import ModelUsage
from tests.support.access.people import bearer
from tests.support.models import messages_streams
from tests.support.models.chatting import chat_with, chunk, says
from tests.support.models.messages_streams import claude_at
from tests.support.models.upstream import Upstream, answer, hang, stream, upstream
from tests.support.server.approvals import stop_as_killed, waiting_call
from tests.support.server.events import of_kind
from tests.support.server.serving import Served, Silence, serving, until

pytestmark = pytest.mark.anyio
LIMIT_S = 30
PRICES = json.dumps({"scripted": {"input": 2, "output": 10, "cached": 0.5}})
ONE = '{"*": {"input": 1, "output": 1}}'
LOOK, WRITE = "```list_files\n```\n", "```bash\ntouch a\n```\n"
PAID_FOR = {"prompt_tokens": 1000, "completion_tokens": 10}
HANGS = TextChunk("")  # stands for a model that says no more
LOST = Raise(ProviderFailed("model_cut", "Lost.", retryable=False))


def untimed(usage: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in usage.items() if name != "timing"}


async def got(served: Served, path: str, **headers: str) -> Any:
    answer = await served.client.get(path, headers=headers)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def test_each_round_the_run_the_session_and_the_month_tell_what_they_cost(tmp_path: Path) -> None:
    script: list[list[Line]] = [
        [TokenUsage(1000, 100, 600), LOOK],
        [TokenUsage(1200, 50), "Done."],
        [TokenUsage(10, 1), "Again."],
    ]
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, Scripted(script), prices=PRICES) as served:
        events = await served.chat()
        run, session = events[0]["run"], events[0]["session"]
        assert (await served.chat("And?", session=session))[-1]["usage"]["cost"] == 0.00003
        one = (await got(served, f"/runs/{run}"))["usage"]
        both = await got(served, f"/sessions/{session}")
        [month] = (await got(served, "/usage"))["months"]
        assert (await served.client.delete(f"/sessions/{session}")).status_code == 204
        assert (await got(served, "/usage"))["months"] == [month]  # what was spent is spent
    assert [(one["cost"], one["total_cost"]) for one in of_kind(events, "usage")] == [(0.0021, 0.0021), (0.0029, 0.005)]
    assert untimed(events[-1]["usage"]) == {
        "prompt_tokens": 2200, "completion_tokens": 150, "measured": True, "cost": 0.005,
    }  # fmt: skip
    assert one == {
        **{"requests": 2, "prompt_tokens": 2200, "completion_tokens": 150, "cached_tokens": 600},
        **{"estimated_tokens": 0, "cost": 0.005, "estimated_cost": 0},
    }
    assert both["runs"][0]["usage"] == one and both["usage"]["cost"] == 0.00503
    assert month == {"month": TOKENS.now(time.time())[0], **both["usage"]} | {"models": month["models"]}
    assert month["models"] == [{"model": "default/scripted", **both["usage"]}]


async def test_a_model_without_a_price_tells_of_no_cost(tmp_path: Path) -> None:
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, Scripted([[TokenUsage(7, 2), "Hi."]])) as served:
        events = await served.chat()
        [month] = (await got(served, "/usage"))["months"]
    assert "cost" not in json.dumps(events) and "cost" not in month and month["completion_tokens"] == 2


ENDS: dict[str, tuple[list[Sequence[Line]], dict[str, Any], dict[str, Any]]] = {
    "answered": ([[TokenUsage(100, 10), LOOK], [TokenUsage(200, 20), "Done."]], {}, {}),
    "answered, unmeasured": ([[LOOK], ["Done."]], {}, {}),
    "failed": ([[TokenUsage(100, 10), LOOK], ["Half", LOST]], {}, {}),
    "failed, with usage": ([[TokenUsage(100, 10), LOOK], [TokenUsage(90, 1), "Half", LOST]], {}, {}),
    "failed at once": ([[LOST]], {}, {}),
    "deadline": ([[TokenUsage(100, 10), LOOK], ["Half", HANGS]], {}, {}),
    "cancelled": ([[TokenUsage(100, 10), "A\n", LOOK], ["Half ", HANGS]], {}, {}),
    "left": ([[TokenUsage(90, 1), "Half ", HANGS]], {}, {"on_disconnect": "cancel"}),
    "round_limit": (
        [[TokenUsage(100, 10), LOOK], [TokenUsage(9, 9), LOOK], [TokenUsage(80, 8), "Sum."]],
        {},
        {"max_rounds": 2},
    ),
    "no tokens left": ([["word " * 100] * 400], {"tokens_per_month": "6000"}, {}),
    "no money left": ([["word " * 100] * 400], {"cost_per_month": "0.02"}, {}),
    "cut by length": ([[TokenUsage(900, 3000), "Half", Finished("length")]], {"cost_per_month": "0.02"}, {}),
    "judged": (
        [[TokenUsage(100, 10), WRITE], [TokenUsage(50, 5), "SAFE"], ["Done."], ["SAFE"]],
        {"judge_output": "true"},
        {},
    ),
    "judge fails": (
        [[TokenUsage(9, 9), WRITE], ["SA", LOST], ["No."], ["SAFE"]],
        {"judge_output": "true"},
        {"when_absent": "deny"},
    ),
    "cancelled, judged": ([["A\n", WRITE], ["SA", HANGS]], {"judge_output": "true"}, {}),
    "verified": ([[TokenUsage(99, 9), WRITE], ["Done."], [TokenUsage(50, 5), "SUCCESS"]], {"verify": "true"}, {}),
}


@pytest.mark.parametrize("name", ENDS)
async def test_whatever_ends_a_run_its_rounds_are_its_sum_and_the_month_s(tmp_path: Path, name: str) -> None:
    script, settings, wish = ENDS[name]
    silence = Silence()
    provider = Scripted([[Pause(silence) if line is HANGS else line for line in reply] for reply in script])
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, provider, prices=PRICES, **settings) as served:
        async with aclosing(served.turn(message="x", **wish)) as turn:
            run = (await until(turn, "run.started"))["run"]
            if name.startswith(("cancelled", "left", "deadline")):
                await silence.noticed.wait()
            if name.startswith("cancelled"):
                await served.client.post(f"/runs/{run}/cancel")
            if name == "deadline":
                await served.end_time(run)
            if name != "left":
                assert [event async for event in turn]
        await served.services.runs.ended(run)
        events = await served.events(run)
        of_run = (await got(served, f"/runs/{run}"))["usage"]
        usage = await got(served, "/usage")
    rounds, [month] = of_kind(events, "usage"), usage["months"]
    tokens = {name: sum(one[name] for one in rounds) for name in ("prompt_tokens", "completion_tokens")}
    cost = round(sum(one["cost"] for one in rounds), 9)
    assert of_run == {key: month[key] for key in of_run} and rounds[-1]["total_cost"] == cost == of_run["cost"] > 0
    assert tokens == {name: of_run[name] for name in tokens} and of_run["requests"] == len(rounds)
    assert (usage["usage"]["cost_per_month"]["used"], usage["usage"]["cost_per_month"]["reserved"]) == (cost, 0)
    assert (usage["usage"][TOKENS.budget]["used"], usage["usage"][TOKENS.budget]["reserved"]) == (
        sum(tokens.values()),
        0,
    )
    estimated = [one for one in rounds if not one["measured"]]
    assert of_run["estimated_tokens"] == sum(one["prompt_tokens"] + one["completion_tokens"] for one in estimated)
    assert of_run["estimated_cost"] == round(sum(one["cost"] for one in estimated), 9)
    if events[-1]["type"] == "run.finished":
        assert untimed(events[-1]["usage"]) == {**tokens, "measured": not estimated, "cost": cost}


async def test_whoever_has_spent_the_money_is_refused_until_the_next_month(tmp_path: Path) -> None:
    script: list[list[Line]] = [[TokenUsage(1_000_000, 300_000), "Hi."]]
    settings: dict[str, Any] = {"prices": PRICES, "cost_per_month": "5"}
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, Scripted(script), **settings) as served:
        assert (await served.chat())[-1]["usage"]["cost"] == 5
        answer = await served.client.post("/chat", json={"message": "x"})
        error, cost = answer.json()["error"], (await got(served, "/usage"))["usage"]["cost_per_month"]
    assert (answer.status_code, error["code"], error["budget"]) == (429, "budget", "cost_per_month")
    assert (cost["used"], cost["limit"], cost["reset"]) == (5, 5, error["reset"])
    assert "local may use 5 units of money a month and has used 5. The budget resets at" in error["message"]
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, Scripted(["Hi."]), cost_per_month="5") as served:
        assert (await served.chat())[-1]["reason"] == "answered"  # a model without a price is for everybody


async def test_money_that_is_left_bounds_the_answer_and_the_run(tmp_path: Path) -> None:
    provider = Scripted([[TokenUsage(500, 500), LOOK], ["Half of it", TokenUsage(500, 450), Finished("length")]])
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, provider, prices=PRICES, cost_per_month="0.012") as served:
        events = await served.chat()
    assert all(0 < (asked.max_tokens or 0) <= 1200 for asked in provider.requests)
    assert events[-1]["reason"] == "budget" and events[-1]["usage"]["cost"] == 0.0115


async def test_everybody_sees_their_own_cost_and_admins_everybody_s(tmp_path: Path) -> None:
    script: list[list[Line]] = [[TokenUsage(10, 5), "Hi."], [TokenUsage(100, 50), "Hi."]]
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, Scripted(script), prices=PRICES) as served:
        await served.chat()
        root, bob = await bearer(served, "root", "admin"), await bearer(served, "bob", budget='{"cost_per_month": 2.5}')
        assert "answered" in (await served.client.post("/chat", json={"message": "x"}, headers=bob)).text
        everybody = await got(served, "/usage?principal=*", **root)
        own = await got(served, "/usage", **bob)
        assert await got(served, "/usage?principal=bob", **root) == own
        refused = [await served.client.get(f"/usage?principal={who}", headers=bob) for who in ("*", "local", "root")]
        none = await got(served, "/usage?month=2020-01", **bob)
        odd = await served.client.get("/usage?month=November", headers=bob)
    assert [(one["principal"], one["cost"]) for one in everybody["principals"]] == [("bob", 0.0007), ("local", 0.00007)]
    assert everybody["cost"] == 0.00077 and everybody["month"] == own["months"][0]["month"]
    assert (own["months"][0]["cost"], own["usage"]["cost_per_month"]["limit"]) == (0.0007, 2.5)
    assert [answer.status_code for answer in refused] == [403] * 3 and none["months"] == []
    assert (odd.status_code, odd.json()["error"]["code"]) == (400, "invalid_query")


async def test_a_run_that_goes_on_after_a_restart_goes_on_counting(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"prices": PRICES, "approval_user": "ask", "approval_admin": "ask"}
    script: list[list[Line]] = [[TokenUsage(100, 10), WRITE]]
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, Scripted(script), **settings) as served:
        question, path = await waiting_call(served)
        await stop_as_killed(served.services, question["run"])
    async with (
        asyncio.timeout(LIMIT_S),
        serving(tmp_path, Scripted([[TokenUsage(200, 20), "Done."]]), **settings) as served,
    ):
        await served.client.post(path, json={"decision": "deny"})
        await served.services.runs.ended(question["run"])
        events = await served.events(question["run"])
        of_run = (await got(served, f"/runs/{question['run']}"))["usage"]
    assert events[-1]["usage"]["cost"] == of_run["cost"] == 0.0009 and of_run["requests"] == 2


EARLY = {"choices": [], "usage": {"prompt_tokens": 5000, "completion_tokens": 0, "total_tokens": 5000}}
BROKEN_OFF: dict[str, tuple[Any, list[str]]] = {
    "openai": (chat_with, [f"data: {json.dumps(EARLY)}\n\n", says("x" * 400)]),
    "anthropic": (claude_at, [messages_streams.start(5000), messages_streams.says("x" * 400)]),
}


@pytest.mark.parametrize("name", BROKEN_OFF)
async def test_what_a_server_said_early_counts_when_its_stream_is_cancelled(tmp_path: Path, name: str) -> None:
    client, parts = BROKEN_OFF[name]
    async with asyncio.timeout(LIMIT_S), upstream(stream(*parts, then=hang), chats=True) as at, client(at) as provider:
        async with serving(tmp_path, provider, prices=ONE) as served, aclosing(served.turn(message="x")) as turn:
            run = (await until(turn, "run.started"))["run"]
            await until(turn, "text.delta")
            await served.client.post(f"/runs/{run}/cancel")
            [usage] = [event async for event in turn if event["type"] == "usage"]
    assert (usage["prompt_tokens"], usage["completion_tokens"], usage["measured"]) == (5000, 100, False)


async def stand_in(
    folder: Path, wanted: Upstream, other: Upstream, prices: dict[str, object], **more: str
) -> tuple[list[dict[str, Any]], Any]:
    """A turn that `wanted/big` was to answer, with `other/small` behind it; its events, and what was used."""
    fields = {"tool_calls": "fenced", "window": 32_000}
    endpoints = {
        "wanted": {"url": wanted.base_url, "model": "big"} | fields,
        "other": {"url": other.base_url, "model": "small"} | fields,
    }
    flags = {"endpoints": json.dumps(endpoints), "prices": json.dumps(prices), "fallback": "other/small"} | more
    async with asyncio.timeout(LIMIT_S), serving(folder, None, None, **flags) as served:
        return await served.chat(), await got(served, "/usage")


CHEAP, DEAR = {"input": 1, "output": 2}, {"input": 100, "output": 200}
GONE = answer('{"error": {"message": "There is no such model."}}', 404)
PAID = stream(
    says("Hi."), chunk(finish="stop"), f"data: {json.dumps({'choices': [], 'usage': PAID_FOR})}\n\n", "data: [DONE]\n\n"
)


async def test_a_model_that_stands_in_costs_its_own_price(tmp_path: Path) -> None:
    async with upstream(GONE, chats=True) as wanted, upstream(PAID, chats=True) as other:
        events, usage = await stand_in(tmp_path, wanted, other, {"big": DEAR, "other/*": CHEAP})
    assert events[-1]["usage"]["cost"] == 0.00102
    assert [(one["model"], one["cost"]) for one in usage["months"][0]["models"]] == [("other/small", 0.00102)]


async def test_what_a_model_had_counted_before_it_failed_is_not_its_stand_in_s(tmp_path: Path) -> None:
    early = f"data: {json.dumps({'choices': [], 'usage': {'prompt_tokens': 5000, 'completion_tokens': 1}})}\n\n"
    failed = stream(early, 'data: {"error": {"code": 404, "message": "gone"}}\n\n')
    silent = stream(says("x" * 400), chunk(finish="stop"), "data: [DONE]\n\n")
    async with upstream(failed, chats=True) as wanted, upstream(silent, chats=True) as other:
        events, usage = await stand_in(tmp_path, wanted, other, {"other/*": CHEAP})
    [told] = [event for event in events if event["type"] == "usage"]
    assert (told["completion_tokens"], told["measured"]) == (100, False)
    assert told["prompt_tokens"] < 5000
    assert usage["months"][0]["estimated_tokens"] == told["prompt_tokens"] + 100


async def test_a_stand_in_that_nobody_can_pay_is_not_asked(tmp_path: Path) -> None:
    async with upstream(GONE, chats=True) as wanted, upstream(PAID, chats=True) as other:
        events, usage = await stand_in(tmp_path, wanted, other, {"big": CHEAP, "small": DEAR}, cost_per_month="0.02")
        assert (len(wanted.asked), other.asked) == (1, [])
    assert events[-1]["reason"] == "budget" and usage["usage"]["cost_per_month"]["used"] == 0


async def test_sums_of_sessions_that_are_gone_stay_and_add_up(tmp_path: Path) -> None:
    async with serving(tmp_path, Scripted([])) as served:
        store = served.services.store
        for number in range(6):
            cost = None if number % 3 == 0 else 10.0 * number
            row = ModelUsage(
                "ann", "2026-11", f"m{number % 2}", f"run_{number}", f"ses_{number // 2}", 1, 5, 7, 0, 0, cost, cost
            )
            await store.write([row, row])
        whole = await store.spent(principal="ann")
        for session in ("ses_0", "ses_2", "ses_1"):
            await store.delete_session(session)
            assert await store.spent(principal="ann") == whole
            assert await store.spent_by_runs(session) == []
        assert (await store.sizes())["spent"] == 2
    assert [(row.model, row.requests, row.prompt_tokens, row.cost) for row in whole] == [
        ("m0", 6, 30, 120),
        ("m1", 6, 30, 120),
    ]
