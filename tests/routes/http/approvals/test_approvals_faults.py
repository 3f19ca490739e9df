"""What goes wrong around a call that waits for a person: each is decided once, run at most once, and told truly."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from app.core.events import ApprovalResolved, encode
from app.models.scripted import Scripted
from app.policy.stored_grants import Review
from app.storage.approvals import ApprovalDecided, ApprovalRow
from app.storage.principals import LOCAL_USER
from app.storage.runs import EventRow
from app.storage.sqlite.store import SQLiteStore
from app.storage.store import Store
from parsing import Arguments, BadCall, Call, CallOpened
from routes.services import open_services
from tests.support.databases.sqlite import full_disk
from tests.support.server.approvals import decide, follow, note, stop_as_killed, waiting_call
from tests.support.server.serving import Served, chosen, serving, settings_in, until
from tools.base.rights import Risk
from tools.tool import Context, Tool, answering

pytestmark = pytest.mark.anyio

WRITE = "```write_file\nnote.txt\nfirst\n```"
SLOW = "```bash\ntouch began; sleep 1000\n```"
ARGUMENTS = {"path": "note.txt", "content": "first"}


async def rest(served: Served, run: str, after: int) -> list[dict[str, Any]]:
    """All that comes behind a cursor, up to the end of the run."""
    async with aclosing(follow(served.client, run, after)) as events:
        return [event async for event in events]


def decisions(events: list[dict[str, Any]]) -> list[tuple[str, str]]:
    return [(event["decision"], event["by"]) for event in events if event["type"] == "approval.resolved"]


@asynccontextmanager
async def nobody_writes(store: Store) -> AsyncGenerator[None, None]:
    """While open, whoever wants to write to the store waits in line."""
    assert isinstance(store, SQLiteStore)
    async with store._one_writer:
        await store._catch_up_now()  # as each that writes does: nobody who reads has to wait then
        yield


async def until_queued(store: Store) -> None:
    """Until one more waits to write to the store."""
    assert isinstance(store, SQLiteStore)
    before = len(store._one_writer._waiters or ())
    while len(store._one_writer._waiters or ()) == before:
        await store.state("")  # others have their turn meanwhile


async def test_a_name_that_no_database_takes_breaks_nothing(tmp_path: Path) -> None:
    forged = [Call(0, "\ud83d\0\n", {}, "native")]
    async with asyncio.timeout(30), serving(tmp_path, Scripted([forged, "Done."])) as served:
        events = await served.chat("x")
        [row] = (await served.client.get("/audit")).json()["audit"]
    assert events[-1]["type"] == "run.finished"
    assert (row["action"], row["decision"]) == ("\\ud83d\\x00\\n", "refuse")


async def test_a_tool_runs_only_when_its_start_is_stored(tmp_path: Path) -> None:
    started: list[bool] = []

    async def look(_: Arguments, __: Context) -> str:
        [row] = await served.services.store.unfinished_runs()
        started.append(bool(await served.services.store.started_calls(row.id)))
        return "seen"

    tool = Tool("look", "Looks.", {"type": "object"}, Risk.WRITE, answering(look), approval="always")
    async with asyncio.timeout(30), serving(tmp_path, Scripted([[Call(0, "look", {}, "native")], "Done."])) as served:
        served.services.factory.built_in = (tool,)
        question, _ = await waiting_call(served)
        await decide(served.client, question["run"], question["call"], "approve")
        await rest(served, question["run"], question["seq"])
    assert started == [True]  # a server that is killed in the tool does not run it again


async def test_a_decision_is_told_once(tmp_path: Path) -> None:
    provider = Scripted([WRITE, "Done."])
    async with asyncio.timeout(30), serving(tmp_path, provider) as served:
        question, _ = await waiting_call(served)
        run, call = question["run"], question["call"]
        await stop_as_killed(served.services, run)
        store, told = served.services.store, ApprovalResolved(question["call"], "approved", "local", "once")
        await store.decide_approval(ApprovalDecided(run, call, "approved", time.time(), "local", "once"))
        await store.write([EventRow(run, question["seq"] + 1, told.type, encode(told))])
    async with asyncio.timeout(30), serving(tmp_path, provider) as served:
        events = await rest(served, run, question["seq"])
    assert decisions(events) == [("approved", "local")] and events[-1]["reason"] == "answered"
    assert note(tmp_path).read_text() == "first"


async def test_a_call_that_could_not_be_understood_is_not_run_after_a_restart(tmp_path: Path) -> None:
    cut = BadCall(1, "{", "The arguments were cut off.")
    provider = Scripted([[Call(0, "write_file", ARGUMENTS, "native"), CallOpened(1, "write_file"), cut], "Done."])
    async with asyncio.timeout(30), serving(tmp_path, provider) as served:
        question, path = await waiting_call(served)
    async with asyncio.timeout(30), serving(tmp_path, provider) as served:
        await served.client.post(path, json={"decision": "deny"})
        events = await rest(served, question["run"], question["seq"])
    assert [event["type"] for event in events].count("tool.rejected") == 1 and events[-1]["calls"] == 0
    told = [message.text for message in provider.requests[-1].messages if message.role == "tool"]
    assert "denied" in told[0] and told[1] == "The arguments were cut off."


@pytest.mark.parametrize("rule", [{"approval": "never"}, {"risk": "read"}])
async def test_a_denial_holds_when_the_rules_have_changed(tmp_path: Path, rule: dict[str, str]) -> None:
    provider = Scripted([WRITE, "Done."])
    async with asyncio.timeout(30), serving(tmp_path, provider) as served:
        question, path = await waiting_call(served)
    rules = json.dumps([{"match": "write_file"} | rule])
    async with asyncio.timeout(30), serving(tmp_path, provider, tools=rules) as served:
        assert not note(tmp_path).exists()  # it was asked for, so it is still asked
        await served.client.post(path, json={"decision": "deny"})
        events = await rest(served, question["run"], question["seq"])
    assert decisions(events) == [("denied", "local")] and not note(tmp_path).exists()


async def test_what_is_forbidden_by_now_is_not_asked_any_more(tmp_path: Path) -> None:
    provider = Scripted([WRITE, "Done."])
    async with asyncio.timeout(30), serving(tmp_path, provider) as served:
        question, path = await waiting_call(served)
        await stop_as_killed(served.services, question["run"])
        session = f"/sessions/{question['session']}"
        assert (await served.client.patch(session, json={"disabled_tools": ["write_*"]})).status_code == 200
    async with asyncio.timeout(30), serving(tmp_path, provider) as served:
        events = await rest(served, question["run"], question["seq"])
        assert decisions(events) == [("withdrawn", "policy")] and events[-1]["reason"] == "answered"
        assert (await served.client.post(path, json={"decision": "approve"})).status_code == 409
    assert not note(tmp_path).exists()


async def test_a_tool_that_is_disabled_while_its_call_waits_is_not_run(tmp_path: Path) -> None:
    forged = [Call(0, "write_file", ARGUMENTS, "native")]
    async with asyncio.timeout(30), serving(tmp_path, Scripted([WRITE, forged, "Done."])) as served:
        question, path = await waiting_call(served)
        await served.client.patch(f"/sessions/{question['session']}", json={"disabled_tools": ["write_*"]})
        late = await served.client.post(path, json={"decision": "approve"})
        assert late.status_code == 422 and "disabled in this session" in late.json()["error"]["message"]
        await served.client.post(path, json={"decision": "deny"})
        events = await rest(served, question["run"], question["seq"])
    assert [event["type"] for event in events].count("tool.rejected") == 2 and not note(tmp_path).exists()


@pytest.mark.parametrize(
    "review",
    [
        {"decision": "deny", "scope": "session"},
        {"decision": "deny", "arguments": ARGUMENTS},
        {"decision": "approve", "pattern": {"path": "*"}},
        {"decision": "approve", "note": "\ud800"},
        {"decision": "maybe"},
        {},
    ],
    ids=str,
)
async def test_a_decision_that_makes_no_sense_decides_nothing(tmp_path: Path, review: dict[str, Any]) -> None:
    async with asyncio.timeout(30), serving(tmp_path, Scripted([WRITE])) as served:
        _, path = await waiting_call(served)
        refused = await served.client.post(path, content=json.dumps(review))
        assert (refused.status_code, refused.json()["error"]["code"]) == (422, "invalid_request")
        assert "name of a field" not in refused.text
        assert len((await served.client.get("/approvals")).json()["approvals"]) == 1


async def test_a_decision_that_is_no_json_is_told_what_one_looks_like(tmp_path: Path) -> None:
    async with asyncio.timeout(30), serving(tmp_path, Scripted([WRITE])) as served:
        _, path = await waiting_call(served)
        refused = await served.client.post(path, content="yes")
    assert refused.status_code == 400 and '{"decision": ...}' in refused.json()["error"]["message"]


async def test_messages_for_a_run_that_waits_survive_each_restart_in_order(tmp_path: Path) -> None:
    provider = Scripted([WRITE, "Done."])
    async with asyncio.timeout(30), serving(tmp_path, provider) as served:
        question, path = await waiting_call(served)
        messages = f"/runs/{question['run']}/messages"
        assert (await served.client.post(messages, json={"message": "one"})).status_code == 202
    async with asyncio.timeout(30), serving(tmp_path, provider) as served:
        assert (await served.client.post(messages, json={"message": "two"})).status_code == 202
    async with asyncio.timeout(30), serving(tmp_path, provider) as served:
        await served.client.post(path, json={"decision": "approve"})
        events = await rest(served, question["run"], question["seq"])
    assert [event["text"] for event in events if event["type"] == "message.added"] == ["one", "two"]


async def test_a_message_that_comes_as_the_server_starts_is_behind_the_earlier_ones(tmp_path: Path) -> None:
    provider = Scripted([WRITE, "Done."])
    async with asyncio.timeout(30), serving(tmp_path, provider) as served:
        question, path = await waiting_call(served)
        await served.services.runs.steer(question["run"], "one")
    async with asyncio.timeout(30), open_services(settings_in(tmp_path), partial(chosen, provider)) as services:
        await services.runs.steer(question["run"], "two")
    async with asyncio.timeout(30), serving(tmp_path, provider) as served:
        await served.client.post(path, json={"decision": "approve"})
        events = await rest(served, question["run"], question["seq"])
    assert [event["text"] for event in events if event["type"] == "message.added"] == ["one", "two"]


async def test_a_decision_that_was_stored_but_not_heard_counts(tmp_path: Path) -> None:
    async with asyncio.timeout(30), serving(tmp_path, Scripted([WRITE, "Done."]), approval_time_limit_s="4") as served:
        question, _ = await waiting_call(served)
        decided = ApprovalDecided(question["run"], question["call"], "approved", time.time(), "local", "once")
        assert await served.services.store.decide_approval(decided)  # and who did it broke
        events = await rest(served, question["run"], question["seq"])
    assert decisions(events) == [("approved", "local")] and note(tmp_path).read_text() == "first"


async def test_a_run_that_cannot_be_stored_asks_nothing_any_more(tmp_path: Path) -> None:
    async with asyncio.timeout(30), serving(tmp_path, Scripted([WRITE])) as served:
        question, path = await waiting_call(served)
        run = question["run"]
        async with full_disk(served):
            lost = await served.client.post(f"/runs/{run}/messages", json={"message": "x" * 500_000})
            assert lost.status_code == 503
            await served.services.runs.ended(run)
        answer = await served.client.post(path, json={"decision": "approve"})
        assert (answer.status_code, answer.json()["error"]["decision"]) == (409, "withdrawn")
        assert (await served.client.get("/approvals")).json() == {"approvals": []}
        assert (await served.events(run))[-1]["code"] == "storage_failed"


async def test_a_question_of_a_run_that_has_ended_cannot_be_approved(tmp_path: Path) -> None:
    async with asyncio.timeout(30), serving(tmp_path, Scripted(["Hi."])) as served:
        run, now = (await served.chat())[0]["run"], time.time()
        row = ApprovalRow(run, "c1", "s", "local", "write_file", "{}", "0", "why", now, now + 60)
        await served.services.store.write([row])  # the store refused to close it when the run ended
        answer = await served.client.post(f"/runs/{run}/approvals/c1", json={"decision": "approve"})
        assert (answer.status_code, answer.json()["error"]["decision"]) == (409, "withdrawn")
        await served.services.store.write([replace(row, call="c2", expires=now)])
        assert (await served.client.get("/approvals")).json() == {"approvals": []}


async def test_an_approval_is_for_what_the_person_saw(tmp_path: Path) -> None:
    provider = Scripted([WRITE, "Done."])
    async with asyncio.timeout(30), serving(tmp_path, provider) as served:
        question, path = await waiting_call(served)
        await stop_as_killed(served.services, question["run"])
        store = served.services.store
        assert isinstance(store, SQLiteStore)
        await store._writer.execute("UPDATE messages SET message = replace(message, 'note.txt', 'other.txt')")
        await store._writer.commit()
    async with asyncio.timeout(30), serving(tmp_path, provider) as served:
        assert (await served.client.post(path, json={"decision": "approve"})).status_code == 200
        async with aclosing(follow(served.client, question["run"], question["seq"])) as events:
            again = await until(events, "approval.required")  # of what stands there now
            assert again["call"] == f"{question['call']}~2" and again["arguments"]["path"] == "other.txt"
            assert not (tmp_path / "work" / "other.txt").exists()
            await served.client.post(f"{path}~2", json={"decision": "deny"})
            await until(events, "run.finished")
    assert not (tmp_path / "work" / "other.txt").exists()


async def test_a_decision_as_the_run_is_cancelled_is_told_as_it_was(tmp_path: Path) -> None:
    async with asyncio.timeout(30), serving(tmp_path, Scripted([WRITE])) as served:
        question, _ = await waiting_call(served)
        run, call, runs = question["run"], question["call"], served.services.runs
        async with nobody_writes(served.services.store):
            decided = asyncio.create_task(runs.decide(run, call, LOCAL_USER, Review("approve")))
            await until_queued(served.services.store)
            cancelled = asyncio.create_task(runs.cancel(run))
            await until_queued(served.services.store)
        row = await decided
        await cancelled
        events = await served.events(run, question["seq"])
    assert row.state == "approved" and decisions(events) == [("approved", "local")]
    assert events[-1]["reason"] == "cancelled" and not note(tmp_path).exists()


async def test_a_decision_as_the_server_stops_leaves_the_run_to_the_next_server(tmp_path: Path) -> None:
    async with asyncio.timeout(30), serving(tmp_path, Scripted([SLOW])) as served:
        question, _ = await waiting_call(served)
        run, runs, store = question["run"], served.services.runs, served.services.store
        async with aclosing(served.turn(message="Later.", session=question["session"], when_busy="queue")) as turn:
            await anext(turn)
            async with nobody_writes(store):
                decided = asyncio.create_task(runs.decide(run, question["call"], LOCAL_USER, Review("approve")))
                await until_queued(store)
                closed = asyncio.create_task(runs.close())
                await until_queued(store)
            await decided
            await closed
        assert (await served.events(run))[-1]["code"] == "suspended"


async def test_the_audit_has_what_nobody_decided(tmp_path: Path) -> None:
    async with asyncio.timeout(30), serving(tmp_path, Scripted([WRITE, WRITE]), approval_time_limit_s="4") as served:
        question, _ = await waiting_call(served)
        run = question["run"]
        async with aclosing(follow(served.client, run, question["seq"])) as events:
            async for event in events:
                if event["type"] == "approval.required":
                    await served.client.post(f"/runs/{run}/cancel")
        rows = (await served.client.get("/audit")).json()["audit"]
    assert [(row["decision"], row["by"]) for row in rows] == [
        ("withdrawn", "the end of its run"),
        ("ask", "mode"),
        ("expired", "nobody"),
        ("ask", "mode"),
    ]
    assert len({row["fingerprint"] for row in rows}) == 1
