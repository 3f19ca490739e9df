"""Relays where things go wrong: messages for them, their audit and usage, repairs that cannot be made."""

from __future__ import annotations

import asyncio
import json
from contextlib import aclosing, suppress
from dataclasses import replace
from pathlib import Path

import pytest

from app.core.messages import Message
from app.core.provider import CallForm, TokenUsage
from app.models.scripted import Line, Pause, Scripted
from app.runs.relay.relay_agent import TOO_MANY
from app.runs.run_options import ClientTool, RunOptions
from app.storage.audit import AuditRow
from app.storage.changes import StoreFailed
from app.storage.principals import LOCAL_USER
from app.storage.sqlite.store import SQLiteStore
from app.transcript.run_request import RunRequest
from parsing import Call
from tests.support.databases.earlier import set_pragma
from tests.support.models.replies import native_call
from tests.support.server.events import end_reason, of_kind
from tests.support.server.relaying import WEATHER, relayed
from tests.support.server.serving import serving
from tools.base.rights import CLIENT_TOOLS

pytestmark = pytest.mark.anyio
TOOL = ClientTool.model_validate(WEATHER)


async def test_a_relay_takes_no_message_and_says_so(tmp_path: Path) -> None:
    begun = asyncio.Event()
    async with asyncio.timeout(30), serving(tmp_path, Scripted([["hm", Pause(begun), "x"]])) as served:
        runs, history = served.services.runs, [Message("user", "x", at=1.0)]
        relay = served.services.factory.relay(LOCAL_USER, RunOptions())
        row = await runs.start(relay, LOCAL_USER, RunRequest("", history=history, unlisted=True))
        refused = await served.client.post(f"/runs/{row.id}/messages", json={"message": "also Rome"})
        assert (refused.status_code, "takes no message" in refused.json()["error"]["message"]) == (409, True)
        begun.set()
        await runs.ended(row.id)


async def test_a_relayed_call_is_in_the_audit_and_its_usage_in_one_sum(tmp_path: Path) -> None:
    replies: list[list[Line]] = [[native_call("get_weather", city=city)] for city in ("Bern", "Rome", "Oslo")]
    async with asyncio.timeout(30), serving(tmp_path, Scripted(replies, call_form=CallForm.NATIVE)) as served:
        for _ in replies:
            events = await relayed(served, [Message("user", "Weather?", at=1.0)], WEATHER)
        [newest, *_] = rows = (await served.client.get("/audit")).json()["audit"]
        assert (len(rows), newest["action"], newest["decision"]) == (3, "get_weather", "allow")
        assert (newest["run"], newest["call"]) == (events[0]["run"], of_kind(events, "tool.handed")[0]["call"])
        assert (await served.services.store.sizes())["spent"] == 1
        [sums] = await served.services.store.spent(principal=LOCAL_USER.name)
        assert sums.requests == 3


async def test_calls_are_handed_over_as_they_are_when_no_budget_is_left_for_their_repair(tmp_path: Path) -> None:
    first: list[Line] = ["Hm.", native_call("get_weather", town="Bern"), TokenUsage(9_000, 990)]
    provider = Scripted([first], call_form=CallForm.NATIVE)
    served_with = serving(tmp_path, provider, relay_repair="true", tokens_per_month="10_000")
    async with asyncio.timeout(30), served_with as served:
        events = await relayed(served, [Message("user", "Weather?", at=1.0)], WEATHER)
        assert [one["name"] for one in of_kind(events, "tool.handed")] == ["get_weather"]
        assert ([one["code"] for one in of_kind(events, "notice")], end_reason(events)) == (["budget"], CLIENT_TOOLS)


async def test_a_paused_server_asks_for_no_repair(tmp_path: Path) -> None:
    begun = asyncio.Event()
    provider = Scripted([["Hm.", Pause(begun), native_call("get_weather", town="Bern")]], call_form=CallForm.NATIVE)
    async with asyncio.timeout(30), serving(tmp_path, provider, relay_repair="true") as served:
        runs, history = served.services.runs, [Message("user", "Weather?", at=1.0)]
        relay = served.services.factory.relay(LOCAL_USER, RunOptions(client_tools=[TOOL]))
        row = await runs.start(relay, LOCAL_USER, RunRequest("", history=history, unlisted=True))
        async with aclosing(runs.watch(row.id, 0)) as pages:
            async for page in pages:
                if any(one.type == "text.delta" for one in page):
                    await served.services.switch.set(paused=True)
                    begun.set()
        assert (json.loads(page[-1].data)["reason"], len(provider.requests)) == ("paused", 1)


async def test_a_relay_whose_usage_cannot_be_stored_fails(tmp_path: Path) -> None:
    replies: list[list[Line]] = [[native_call("get_weather", city="Bern")], [native_call("get_weather", city="Rome")]]
    async with asyncio.timeout(30), serving(tmp_path, Scripted(replies, call_form=CallForm.NATIVE)) as served:
        store = served.services.store
        assert isinstance(store, SQLiteStore)
        [[pages]] = await store._writer.execute_fetchall("PRAGMA page_count")
        await set_pragma(store, f"max_page_count = {pages}")
        with suppress(StoreFailed):
            while True:
                await store.write([AuditRow(1.0, LOCAL_USER.name, "x", "allow", "", "policy")])
        events = await relayed(served, [Message("user", "Weather?", at=1.0)], WEATHER)
        assert (events[-1]["type"], events[-1]["code"]) == ("run.failed", "storage_failed")
        assert not of_kind(events, "tool.handed")
        await set_pragma(store, "max_page_count = 1000000")
        assert end_reason(await relayed(served, [Message("user", "Weather?", at=1.0)], WEATHER)) == CLIENT_TOOLS


async def test_a_relay_hands_nothing_over_without_the_right_to_client_tools(tmp_path: Path) -> None:
    both: list[Line] = ["Hm.", native_call("get_weather", city="Bern"), Call(1, "undeclared", {}, "native")]
    bob = replace(LOCAL_USER, tools=("read_file",))
    async with asyncio.timeout(30), serving(tmp_path, Scripted([both], call_form=CallForm.NATIVE)) as served:
        runs, history = served.services.runs, [Message("user", "Weather?", at=1.0)]
        relay = served.services.factory.relay(bob, RunOptions(client_tools=[TOOL]))
        row = await runs.start(relay, bob, RunRequest("", history=history, unlisted=True))
        async with aclosing(runs.watch(row.id, 0)) as pages:
            events = [json.loads(one.data) async for page in pages for one in page]
        assert [one["code"] for one in of_kind(events, "tool.rejected")] == ["token"] * 2
        assert not of_kind(events, "tool.handed")
        assert end_reason(events) == "answered"
        audit = (await served.client.get("/audit")).json()["audit"]
        assert [one["decision"] for one in audit] == ["refuse", "refuse"]


async def test_a_call_is_text_for_a_client_without_tools_whatever_its_rights(tmp_path: Path) -> None:
    bob = replace(LOCAL_USER, tools=("read_file",))
    reply: list[Line] = ["Hm. ", native_call("get_weather", city="Bern")]
    async with asyncio.timeout(30), serving(tmp_path, Scripted([reply], call_form=CallForm.NATIVE)) as served:
        runs, history = served.services.runs, [Message("user", "Weather?", at=1.0)]
        relay = served.services.factory.relay(bob, RunOptions())
        row = await runs.start(relay, bob, RunRequest("", history=history, unlisted=True))
        async with aclosing(runs.watch(row.id, 0)) as pages:
            events = [json.loads(one.data) async for page in pages for one in page]
        shown = "".join(one["text"] for one in of_kind(events, "text.delta"))
        assert shown == 'Hm. {"name": "get_weather", "arguments": {"city": "Bern"}}'
        assert (of_kind(events, "tool.rejected"), end_reason(events)) == ([], "answered")


async def test_a_relay_hands_over_no_more_calls_than_a_run_may_make(tmp_path: Path) -> None:
    many: list[Line] = [Call(at, "get_weather", {"city": f"Bern {at}"}, "native") for at in range(9)]
    served_with = serving(tmp_path, Scripted([many, many], call_form=CallForm.NATIVE), max_calls="4")
    async with asyncio.timeout(30), served_with as served:
        events = await relayed(served, [Message("user", "Weather?", at=1.0)], WEATHER)
        assert [one["arguments"]["city"] for one in of_kind(events, "tool.handed")] == [f"Bern {at}" for at in range(4)]
        rejected = of_kind(events, "tool.rejected")
        assert [one["reason"] for one in rejected] == [TOO_MANY.format(limit=4)] * 5
        assert (end_reason(events), of_kind(events, "run.finished")[0]["calls"]) == (CLIENT_TOOLS, 4)
        assert len((await served.client.get("/audit")).json()["audit"]) == 4
        tools = [{"type": "function", "function": WEATHER}]
        body = {"model": "scripted", "messages": [{"role": "user", "content": "Weather?"}], "tools": tools}
        answer = await served.client.post("/v1/chat/completions", json=body)
        [choice] = answer.json()["choices"]
        assert (len(choice["message"]["tool_calls"]), choice["finish_reason"]) == (4, "tool_calls")


@pytest.mark.usefixtures("replayed")
async def test_a_relay_needs_no_tool_seconds(tmp_path: Path) -> None:
    replies: list[list[Line]] = [
        *[[native_call("bash", command="sleep 60")]] * 2,
        [native_call("get_weather", city="Bern")],
    ]
    provider = Scripted(replies, call_form=CallForm.NATIVE)
    async with asyncio.timeout(30), serving(tmp_path, provider, tool_seconds_per_day="1") as served:
        assert end_reason(await served.chat()) == "budget"
        assert (await served.client.post("/chat", json={"message": "x"})).status_code == 429
        assert end_reason(await relayed(served, [Message("user", "Weather?", at=1.0)], WEATHER)) == CLIENT_TOOLS
