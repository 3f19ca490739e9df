"""Two whole servers on one PostgreSQL: what is changed at one holds at the other, and one of them does what one may."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import httpx2
import pytest

from app.core.events import RunFailed, encode
from app.models.scripted import Pause, Scripted
from app.notifications.targets import Targets
from app.runs.shared.shared_runs import SharedRuns
from app.storage.runs import EventRow, RunRow
from app.storage.schedules import ScheduleMoved
from app.storage.sessions import SessionRow
from tests.support.databases.postgres import Cluster
from tests.support.models.replies import tool_call
from tests.support.server.receivers import receiver
from tests.support.server.serving import LEASE_S, Served, serving

pytestmark = pytest.mark.anyio
LIMIT_S = 40
Pair = tuple[Served, Served]


@asynccontextmanager
async def pair(folder: Path, postgres: Cluster, replies: Any = (), **flags: object) -> AsyncGenerator[Pair, None]:
    """Two servers, each with the same replies and a data directory of its own."""
    url = postgres.database()
    places = [folder / "a", folder / "b"]
    (folder / "work").mkdir()
    for place in places:
        place.mkdir()
    common: dict[str, Any] = {
        "database_url": url,
        "workspace": str(folder / "work"),
        "lease_s": str(LEASE_S),
        "max_schedules": "9",
    }
    common |= {"private_hosts": "127.0.0.1", "secret_key": "a key of tests, the same at both servers"} | flags
    first, second = Scripted(list(replies)), Scripted(list(replies))
    async with (
        asyncio.timeout(LIMIT_S),
        serving(places[0], first, node="a", **common) as one,
        serving(places[1], second, node="b", **common) as other,
    ):
        yield one, other


async def until(served: Served, holds: Callable[[], object]) -> None:
    """Wait until something that a server holds in memory is so."""
    while not holds():
        await served.services.store.check()


async def frames(response: httpx2.Response, kind: str) -> AsyncGenerator[dict[str, Any], None]:
    async for message in httpx2.EventSource(response):
        if message.event == kind:
            yield json.loads(message.data)


async def test_what_one_server_changes_the_other_goes_by(tmp_path: Path, postgres: Cluster) -> None:
    async with pair(tmp_path, postgres) as (one, other):
        there = other.services
        assert (await one.client.patch("/settings", json={"changes": {"max_rounds": 7}})).status_code == 200
        await until(other, lambda: there.factory.settings.max_rounds == 7)
        assert (await other.client.patch("/settings", json={"changes": {"max_calls": 8}})).status_code == 200
        await until(one, lambda: one.services.factory.settings.max_calls == 8)
        assert one.services.factory.settings.max_rounds == 7, "the change of the other server was made of this one"
        spec = {"name": "near", "url": "http://127.0.0.1:9/v1", "keys": ["sk-of-tests-1"]}
        assert (await one.client.post("/endpoints", json=spec)).status_code < 300
        await until(other, lambda: "near" in there.endpoints)
        assert not there.endpoints["near"].problem, "its key is there, too"
        entry = {"name": "near", "url": "http://127.0.0.1:9/mcp"}
        assert (await one.client.post("/mcp/servers", json=entry)).status_code < 300
        await until(other, lambda: [status.name for status in there.mcp.status()] == ["near"])
        hook = (await other.client.post("/webhooks", json={"url": "http://127.0.0.1:9/hook"})).json()
        await until(one, lambda: [row.id for row in one.services.notifications.targets] == [hook["id"]])
        [row] = one.services.notifications.targets
        assert one.services.notifications.secret(row) == hook["secret"]
        (tmp_path / "work/AGENTS.md").write_text("Be brief.")
        [file] = (await one.client.get("/project")).json()["files"]
        wish = {"path": "AGENTS.md", "digest": file["digest"], "decision": "accept"}
        assert (await one.client.post("/project", json=wish)).status_code == 200
        await until(
            other, lambda: there.factory.project.context(tmp_path / "work", tmp_path / "data").agents == "Be brief."
        )


async def test_a_pause_holds_at_every_server_and_ends_what_runs_there(tmp_path: Path, postgres: Cluster) -> None:
    held = Pause(asyncio.Event())
    async with pair(tmp_path, postgres, [["One ", held, "two."]]) as (one, other):
        async with other.client.stream("POST", "/chat", json={"message": "Go."}) as started:
            run = started.headers["x-run-id"]
        assert (await one.client.post("/pause", json={"cancel": True})).json() == {"paused": True}
        assert other.services.switch.paused
        await other.services.runs.ended(run)
        assert (await one.client.get(f"/runs/{run}")).json()["state"] == "paused"
        assert (await one.client.post("/chat", json={"message": "Go."})).status_code == 503
        assert (await other.client.post("/resume")).json() == {"paused": False}
        await until(one, lambda: not one.services.switch.paused)


async def test_the_page_of_one_server_shows_what_another_one_does(tmp_path: Path, postgres: Cluster) -> None:
    held = Pause(asyncio.Event())
    async with pair(tmp_path, postgres, [["One ", held, "two."]]) as (one, other):
        async with other.client.stream("GET", "/events") as page, aclosing(frames(page, "state")) as states:
            assert not (await anext(states))["runs"]
            async with one.client.stream("POST", "/chat", json={"message": "Go."}) as started:
                run = started.headers["x-run-id"]
            async for state in states:
                if run in json.dumps(state):
                    break
            held.event.set()
            async for state in states:
                if state.get("runs") == []:
                    break


async def test_a_time_of_a_schedule_begins_one_run(tmp_path: Path, postgres: Cluster) -> None:
    async with pair(tmp_path, postgres, [["Well."]] * 3) as (one, other):
        wish = {"name": "often", "message": "Look.", "every": "90m"}
        made = (await one.client.post("/schedules", json=wish)).json()
        for place in (one, other):
            now = time.time()
            await until(other, lambda: [row.run for row in rows_of(other)] == [row.run for row in rows_of(one)])
            async with place.services.automation.scheduler.lock:  # else the scheduler's own write may come behind it
                known = rows_of(place)[0]
                moved = ScheduleMoved(made["id"], now - 1, now - 60, known.session, known.run)
                await place.services.store.write([moved])
            for each in (one, other):
                await until(each, partial(has_moved, each, known.run))
                await each.services.runs.ended(rows_of(each)[0].run)  # else the next time is skipped
        occurrences = await one.services.store.occurrences(made["id"])
        assert [row.outcome for row in occurrences] == ["started", "started"]


async def test_a_reminder_answers_once_in_its_conversation_and_ends_with_it_everywhere(
    tmp_path: Path, postgres: Cluster
) -> None:
    async with pair(tmp_path, postgres, [["Well."]] * 3) as (one, other):
        session = (await one.chat())[0]["session"]
        wish = {"name": "tea", "message": "Tea.", "every": "90m", "session": session}
        made = (await other.client.post("/schedules", json=wish)).json()
        await until(one, lambda: [row.session for row in rows_of(one)] == [session])
        known, now = rows_of(one)[0], time.time()
        async with other.services.automation.scheduler.lock:
            await other.services.store.write([ScheduleMoved(made["id"], now - 1, now - 60, session, None)])
        for each in (one, other):
            await until(each, partial(has_moved, each, known.run))
            await each.services.runs.ended(rows_of(each)[0].run)
        [begun] = await one.services.store.occurrences(made["id"])
        assert [row.id for row in await one.services.store.runs(session)][1:] == [begun.run]
        assert await one.services.store.forget_before(time.time() + 10**6, 0) == 0, "it has a time to come"
        assert (await other.client.delete(f"/sessions/{session}")).status_code == 204
        for each in (one, other):
            await until(each, partial(lambda served: not rows_of(served), each))
        assert await one.services.store.schedules() == []


def has_moved(served: Served, run: str | None) -> bool:
    return rows_of(served)[0].run not in (None, run)


def all_sent(targets: Targets) -> bool:
    return not any(targets.pending.values())


def rows_of(served: Served) -> list[Any]:
    return list(served.services.automation.scheduler._rows.values())


async def test_an_event_at_either_server_is_delivered_once(tmp_path: Path, postgres: Cluster) -> None:
    async with receiver() as there, pair(tmp_path, postgres, [["Well."]]) as (one, other):
        hook = (await one.client.post("/webhooks", json={"url": there.url})).json()
        await until(other, lambda: other.services.notifications.targets.get(hook["id"]))
        runs = [(await served.chat("Look."))[0]["run"] for served in (one, other)]
        requests = await there.got(2)
        assert sorted(json.loads(request.body)["data"]["run"] for request in requests) == sorted(runs)
        targets = [served.services.notifications.targets for served in (one, other)]
        for served, known in zip((one, other), targets, strict=True):
            await until(served, partial(all_sent, known))
        assert len(there.requests) == 2


async def test_edits_of_a_document_at_two_servers_are_not_lost(tmp_path: Path, postgres: Cluster) -> None:
    make = '```create_document\n{"title": "Plan", "kind": "text", "text": "One."}\n```'
    async with pair(tmp_path, postgres, [[make], ["Done."], ["I see."]]) as (one, other):
        session = (await one.chat("Write."))[0]["session"]
        [row] = await one.services.store.documents(session)
        saves = [
            served.client.put(f"/documents/{row.id}", json={"version": 1, "text": f"Two, by {name}."})
            for name, served in (("a", one), ("b", other))
        ]
        answers = await asyncio.gather(*saves)
        assert sorted(answer.status_code for answer in answers) == [200, 409], [one.text for one in answers]
        [row] = await one.services.store.documents(session)
        assert row.version == 2
        saved = (await one.client.get(f"/documents/{row.id}")).json()["text"]
        for served in (one, other):  # the model of either learns of it, once
            events = await served.chat("And?", session=session)
            notices = [event for event in events if event["type"] == "notice" and event["code"] == "document_edited"]
            assert len(notices) == (served is one), saved


class Recorder:
    """The other servers, as far as a takeover is concerned: it keeps what is sent to them."""

    def __init__(self) -> None:
        self.moved: list[str] = []
        self.nodes = self
        self.take_over: Callable[[str], Awaitable[None]]

    def begin_taking(self, take_over: Callable[[str], Awaitable[None]]) -> None:
        self.take_over = take_over

    async def asked_of(self, _: str) -> None:
        return None

    def session_moved(self, session: str) -> None:
        self.moved.append(session)


async def test_others_hear_of_each_end_that_a_takeover_brings(
    tmp_path: Path, postgres: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next run of the session may be anywhere: without a word it would wait for the next beat."""
    goes_on = {"ended here": False, "ended there": False, "taken up": True}

    async def resume(row: RunRow, _: str | None) -> bool:
        return goes_on[row.id]

    async def none(_: RunRow) -> Any:
        raise AssertionError

    async with pair(tmp_path, postgres) as (one, _):
        runs, store, others = one.services.runs, one.services.store, Recorder()
        assert isinstance(runs, SharedRuns)
        for run in goes_on:
            await store.write([SessionRow(f"of {run}", "local", 1.0, "t")])
            await store.write([RunRow(run, f"of {run}", "local", "m", "running", 1.0)])
        failed = RunFailed("storage_failed", "", retryable=True)
        runs._lost.add("ended here", EventRow("ended here", 1, failed.type, encode(failed)))  # not stored yet
        with monkeypatch.context() as patch:
            patch.setattr(runs, "replicas", others)
            await runs.recover(resume, none)
            for run in goes_on:
                await others.take_over(run)
        assert others.moved == ["of ended here", "of ended there"]
        assert [row.state for row in await store.runs("of ended here")] == ["storage_failed"]


async def test_servers_with_one_key_file_share_secrets_and_one_without_it_says_so(
    tmp_path: Path, postgres: Cluster
) -> None:
    key = tmp_path / "shared.key"
    key.write_text("a key of tests, the same at all servers, with no space".replace(" ", "-"))
    call = tool_call("bash", command="printenv GITHUB_TOKEN || echo none", network=["api.github.com"])
    replies, seen = [call, "Done."] * 2, []
    body = {"name": "github", "value": "ghp_0123456789abcdef", "env": "GITHUB_TOKEN", "hosts": ["api.github.com"]}
    async with pair(tmp_path, postgres, replies, secrets_key_file=str(key)) as (one, other):
        assert (await one.client.post("/secrets", json=body)).status_code == 201
        await until(other, lambda: other.services.factory.secrets.rights.all)
        for served in (one, other):
            events = await served.chat("Go.", approval="auto")
            seen += [event["text"] for event in events if event["type"] == "tool.finished"]
        assert all(text.startswith("dragoman_placeholder_") for text in seen) and len(set(seen)) == 2
        second = {**body, "name": "second", "env": "SECOND_TOKEN"}
        assert (await other.client.post("/secrets", json=second)).status_code == 201
        await until(one, lambda: len(one.services.factory.secrets.rights.all) == 2)
        assert (await one.client.delete("/secrets/second")).status_code == 204
        await until(other, lambda: len(other.services.factory.secrets.rights.all) == 1)
        url = other.services.settings.postgres_url
    (tmp_path / "c").mkdir()
    flags: dict[str, Any] = {
        "database_url": url,
        "lease_s": str(LEASE_S),
        "secret_key": "a key of tests, the same at both servers",
    }
    async with asyncio.timeout(LIMIT_S), serving(tmp_path / "c", Scripted([call, "Done."]), node="a", **flags) as third:
        events = await third.chat("Go.", approval="auto")
        [refused] = [event["text"] for event in events if event["type"] == "tool.finished"]
        assert "secrets.key" in refused and "secrets_key_file" in refused
