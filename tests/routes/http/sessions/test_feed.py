"""GET /events follows a session from run to run: each event once, wherever the connection broke."""

from __future__ import annotations

import asyncio
import logging
import shutil
import sqlite3
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from app.core.events import RunFinished, encode
from app.models.scripted import Line, Pause, Scripted
from app.storage.runs import EventRow, RunEnded, RunRow
from tests.support.access.people import LIMIT_S, bearer
from tests.support.databases.sqlite import full_disk
from tests.support.server.feeding import Feed, begin, feeding
from tests.support.server.serving import Served, serving

pytestmark = pytest.mark.anyio


def knows_its_place(served: Served) -> asyncio.Event:
    """Set once a stream without a place has found the run that it begins behind; its first `state` may come before."""
    known, last_runs = asyncio.Event(), served.services.store.last_runs

    async def noted(*asked: Any) -> Any:
        rows = await last_runs(*asked)
        known.set()
        return rows

    served.services.store.last_runs = noted  # type: ignore[method-assign, assignment]
    return known


def whole(runs: dict[str, int]) -> list[str]:
    """The ids of all events of these runs, whose last ones have these numbers."""
    return [f"{run}:{seq}" for run, last in runs.items() for seq in range(last + 1)]


async def lasts(served: Served, session: str) -> dict[str, int]:
    rows = await served.services.store.runs(session)
    return {row.id: await served.services.store.last_seq(row.id) for row in rows}


async def test_a_session_is_told_run_by_run_each_event_once_wherever_one_comes_back(tmp_path: Path) -> None:
    go_on = asyncio.Event()
    replies: list[Sequence[Line]] = [["One.", Pause(go_on), " More."], ["Two."], ["Three."], ["Four."]]
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, Scripted(replies)) as served:
        first = await begin(served, "1")
        session = first["session"]
        async with feeding(served, session) as feed:
            asked = await feed.until("run.asked")
            assert (asked.id, asked.data["run"], asked.data["message"]["text"]) == (
                f"{first['run']}:0",
                first["run"],
                "1",
            )
            queued = [await begin(served, text, session) for text in ("2", "3")]
            assert [one["state"] for one in queued] == ["queued", "queued"]
            for one in queued:  # told at once, without a place to come back to
                waiting = await feed.until("run.asked")
                assert (waiting.id, waiting.data["run"]) == ("", one["run"])
            go_on.set()
            await feed.until_end(queued[1]["run"])
            last = await begin(served, "4", session)
            await feed.until_end(last["run"])
        assert feed.ids == whole(await lasts(served, session))
        for seen in feed.ids[:-1]:  # in the middle of runs, at their ends, between them
            async with feeding(served, session, seen) as again:
                await again.until_end(last["run"])
            assert again.ids == feed.ids[feed.ids.index(seen) + 1 :]


async def test_who_listens_without_a_place_hears_of_runs_that_begin_and_end_at_once(tmp_path: Path) -> None:
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, Scripted([["Hi."]], repeat=True)) as served:
        session = (await served.chat("1"))[0]["session"]
        known = knows_its_place(served)
        async with feeding(served, session) as feed:
            await known.wait()
            runs = [(await served.chat(str(number), session=session))[0]["run"] for number in range(5)]
            await feed.until_end(runs[-1])
        told = await lasts(served, session)
        assert feed.ids == whole({run: told[run] for run in runs}), "the run before was over"


async def test_a_run_that_is_stored_before_it_begins_is_not_passed_over(tmp_path: Path) -> None:
    """Whoever looks between the two finds no event of it, and must not take that for its end."""
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, Scripted([["Hi."]], repeat=True)) as served:
        session = (await served.chat("1"))[0]["session"]
        store, notifier, now = served.services.store, served.services.runs.notifier, time.time()
        known = knows_its_place(served)
        async with feeding(served, session) as feed:
            await known.wait()
            row = RunRow("run_by_hand", session, "local", "m", "running", now)
            await store.write([row, RunRow("run_same_time", session, "local", "m", "running", now)])
            notifier.notify(session)
            await feed.until(lambda one: one.id == "run_by_hand:0")
            for run in ("run_by_hand", "run_same_time"):
                finished = RunFinished("answered", "", 1, 0, {})
                await store.write([EventRow(run, 1, finished.type, encode(finished)), RunEnded(run, "answered", now)])
                notifier.notify(session)
                await feed.until_end(run)
        assert feed.ids == whole({"run_by_hand": 1, "run_same_time": 1})


async def test_a_place_that_is_none_is_refused_and_a_deleted_session_ends_the_stream(tmp_path: Path) -> None:
    stays = Pause(asyncio.Event())
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, Scripted([["Hi."], ["Ho."], ["x", stays]])) as served:
        session, other = [(await served.chat(text))[0]["session"] for text in ("1", "2")]
        [run] = await lasts(served, session)

        async def asked(session: str, after: str) -> tuple[int, str]:
            answer = await served.client.get(f"/events?session={session}", headers={"last-event-id": after})
            return answer.status_code, answer.json()["error"]["code"]

        assert await asked(other, f"{run}:1") == (400, "invalid_cursor")
        for nonsense in ("x", f"{run}:", f"{run}:-1", "run_" + "x" * 100 + ":1", ":", ":1"):
            assert await asked(session, nonsense) == (400, "invalid_cursor"), nonsense
        assert await asked(session, "run_gone:3") == (404, "not_found")
        assert await asked("ses_gone", "") == (404, "not_found")
        async with feeding(served, session) as feed:
            began = await begin(served, "3", session)
            await feed.until("text.delta")
            assert (await served.client.delete(f"/sessions/{session}")).status_code == 204
            assert (await feed.until_end(began["run"])).data["reason"] == "cancelled"
            assert {one.type for one in await feed.rest()} <= {"state"}
        assert await asked(session, feed.cursor) == (404, "not_found")


def of_place(feed: Feed, place: int) -> list[str]:
    return [one.partition("/")[2] for one in feed.ids if one.startswith(f"{place}/")]


async def test_several_sessions_come_on_one_connection_each_from_its_own_place(tmp_path: Path) -> None:
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, Scripted([["Hi."]], repeat=True)) as served:
        first = [(await served.chat(text))[0] for text in ("a", "b")]
        sessions, runs = [one["session"] for one in first], [one["run"] for one in first]
        async with feeding(served, sessions, ",".join(f"{at}/{run}:0" for at, run in enumerate(runs))) as feed:
            for session in sessions:
                await served.chat("c", session=session)
            known = [whole(await lasts(served, session)) for session in sessions]
            while not {f"{at}/{ids[-1]}" for at, ids in enumerate(known)} <= {*feed.ids}:
                await feed.until(lambda one: bool(one.id))
        assert [of_place(feed, place) for place in (0, 1)] == [ids[1:] for ids in known]
        # Twice the same session, for readers at different places; of the third nothing was seen.
        async with feeding(served, [sessions[0], *sessions], f"0/{known[0][2]}, 1/{known[0][-2]}") as again:
            run = (await served.chat("d", session=sessions[0]))[0]["run"]
            last = f"{run}:{await served.services.store.last_seq(run)}"
            while not {f"0/{last}", f"1/{last}"} <= {*again.ids}:
                await again.until(lambda one: bool(one.id))
        ids = whole(await lasts(served, sessions[0]))
        assert [of_place(again, place) for place in (0, 1, 2)] == [ids[3:], ids[len(known[0]) - 1 :], []]


async def test_a_session_that_is_not_there_ends_none_of_the_others(tmp_path: Path) -> None:
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, Scripted([["Hi."]], repeat=True)) as served:
        kept, deleted, moved = [(await served.chat(text))[0]["session"] for text in ("1", "2", "3")]
        [foreign] = await lasts(served, kept)
        ann = await bearer(served, "ann")
        served.client.headers.update(await bearer(served, "local", "admin"))
        hers = (await served.client.post("/chat", json={"message": "4"}, headers=ann)).headers["x-session-id"]
        async with feeding(served, [kept, "ses_gone", hers, deleted, moved], f"4/{foreign}:1") as feed:
            refused = [(await feed.until("session.refused")).data for _ in range(3)]
            assert sorted((one["place"], one["session"], one["code"]) for one in refused) == [
                (1, "ses_gone", "not_found"),
                (2, hers, "not_found"),
                (4, moved, "invalid_cursor"),
            ]
            assert (await served.client.delete(f"/sessions/{deleted}")).status_code == 204
            gone = (await feed.until("session.refused")).data
            assert (gone["place"], gone["session"], gone["code"]) == (3, deleted, "not_found")
            run = (await served.chat("5", session=kept))[0]["run"]
            await feed.until(lambda one: one.type == "run.finished" and one.id.startswith(f"0/{run}:"))

        async def asked(count: int, after: str = "") -> tuple[int, str]:
            where = {"session": [kept] * count, "after": after}
            answer = await served.client.get("/events", params=where)
            return answer.status_code, answer.json()["error"]["code"]

        assert await asked(65) == (400, "invalid_query")
        for nonsense in (f"{foreign}:1", f"2/{foreign}:1", f"x/{foreign}:1", f"0/{foreign}:1,", f"/{foreign}:1"):
            assert await asked(2, nonsense) == (400, "invalid_cursor"), nonsense


async def test_a_store_that_fails_is_asked_again_and_the_stream_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, Scripted([["Hi."]], repeat=True)) as served:
        session = (await served.chat("1"))[0]["session"]
        warned = asyncio.Event()
        monkeypatch.setattr(logging.getLogger("app.runs.session_stream"), "filters", [lambda _: warned.set()])
        with closing(sqlite3.connect(tmp_path / "data" / "dragoman.db")) as other:
            async with feeding(served, session) as feed:
                await feed.until("state")
                other.execute("ALTER TABLE runs RENAME TO away")
                served.services.runs.notifier.notify(session)
                await warned.wait()
                other.execute("ALTER TABLE away RENAME TO runs")
                run = (await served.chat("2", session=session))[0]["run"]
                await feed.until_end(run)


async def test_the_feed_is_one_of_the_streams_that_a_person_may_have_and_needs_none_to_begin(tmp_path: Path) -> None:
    go_on = asyncio.Event()
    provider = Scripted([["Hi.", Pause(go_on)]])
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, provider, max_streams="1") as served:
        async with feeding(served) as feed:
            await feed.until("state")
            assert (await served.client.get("/events")).json()["error"]["code"] == "too_many_streams"
            began = await begin(served, "1")
            [run] = (await feed.until_state(lambda state: bool(state["runs"])))["runs"]
            assert run["id"] == began["run"]
            go_on.set()
            await feed.until_state(lambda state: state["runs"] == [])
            assert (await served.client.get(f"/runs/{began['run']}")).json()["state"] == "answered"
        assert (await served.client.post("/events")).status_code == 405


async def test_who_came_without_a_token_is_shown_out_once_there_is_one_and_so_is_who_is_revoked(tmp_path: Path) -> None:
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, Scripted([["Hi."]], repeat=True)) as served:
        async with feeding(served) as feed:
            assert (await feed.until_state(lambda state: True))["me"] == {
                "name": "local",
                "role": "admin",
                "approval": "sandboxed",
            }
            admin = await bearer(served, "root", "admin")
            await feed.rest()
        ann = await bearer(served, "ann", "guest")
        async with feeding(served, None, "", **ann) as feed:
            state = await feed.until_state(lambda state: True)
            assert state["me"] == {"name": "ann", "role": "guest", "approval": "sandboxed"}
            assert "mcp" not in state
            assert (await served.client.delete("/tokens/ann", headers=admin)).status_code == 204
            await feed.rest()


async def test_the_place_holds_across_a_restart_whatever_has_become_of_the_run(tmp_path: Path) -> None:
    asks = "```write_file\nnote.txt\nfirst\n```"
    async with asyncio.timeout(LIMIT_S):
        async with serving(tmp_path, Scripted([["Before."], [asks]])) as served:
            session = (await served.chat("1"))[0]["session"]
            waits = await begin(served, "2", session, approval="ask")
            behind = await begin(served, "3", session)
            async with feeding(served, session, f"{waits['run']}:0") as before:
                call = (await before.until("approval.required")).data["call"]
                await before.until_state(lambda state: bool(state["approvals"]))
                stopping = asyncio.create_task(served.services.runs.close())
                before.told += await before.rest()
                await stopping
        async with serving(tmp_path, Scripted([["Done."], ["Next."], ["Again."]])) as served:
            async with feeding(served, session, before.cursor) as after:
                [asked] = (await after.until_state(lambda state: bool(state["approvals"])))["approvals"]
                assert (asked["run"], asked["call"]) == (waits["run"], call)
                decide = f"/runs/{waits['run']}/approvals/{call}"
                assert (await served.client.post(decide, json={"decision": "approve"})).status_code == 200
                await after.until_end(waits["run"])
                assert (await after.until_end(behind["run"])).data["text"] == "Next."
                again = await begin(served, "4", session)
                await after.until_end(again["run"])
            told = await lasts(served, session)
        runs = [one["run"] for one in (waits, behind, again)]
        assert [f"{waits['run']}:0", *before.ids, *after.ids] == whole({run: told[run] for run in runs})


async def test_a_run_that_was_cut_off_by_a_kill_is_told_to_its_end(tmp_path: Path) -> None:
    async with asyncio.timeout(LIMIT_S):
        async with serving(tmp_path, Scripted([["Hi.", Pause(asyncio.Event())]])) as served:
            began = await begin(served, "1")
            async with feeding(served, began["session"]) as before:
                await before.until("text.delta")
            shutil.copytree(tmp_path / "data", tmp_path / "killed" / "data")  # as a kill would leave it
        async with serving(tmp_path / "killed", Scripted([["Ho."], ["Yes."]])) as served:
            async with feeding(served, began["session"], before.cursor) as after:
                assert (await after.until_end(began["run"])).data["text"] == "Hi.Ho."
                again = await begin(served, "2", began["session"])
                await after.until_end(again["run"])
            told = await lasts(served, began["session"])
        assert [*before.ids, *after.ids] == whole(told)


async def test_an_end_that_the_store_refused_is_told_once_and_the_next_run_follows(tmp_path: Path) -> None:
    loud = "```bash\nhead -c 9000 /dev/urandom | base64 -w0\n```\n"
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, Scripted([loud], repeat=True)) as served:
        session = (await begin(served, "1", max_rounds=1))["session"]
        async with feeding(served, session) as feed:
            await feed.until_end()
            async with full_disk(served):
                failed = await begin(served, "2", session)
                assert (await feed.until_end(failed["run"])).data["code"] == "storage_failed"
                await served.services.runs.cancel(failed["run"])
            last = await begin(served, "3", session, max_rounds=1)
            await feed.until_end(last["run"])
        assert feed.ids == whole(await lasts(served, session))
        for seen in feed.ids[-8:-1]:
            async with feeding(served, session, seen) as again:
                await again.until_end(last["run"])
            assert again.ids == feed.ids[feed.ids.index(seen) + 1 :]
