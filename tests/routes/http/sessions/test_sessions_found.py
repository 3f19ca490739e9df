"""Sessions in a list: the ones used last first, by pages, by their words, by the names that people give them."""

from __future__ import annotations

import asyncio
import sqlite3
from collections import Counter
from contextlib import aclosing, closing
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

from app.core.messages import Message, dump
from app.models.scripted import Pause, Scripted
from app.runs.branching.forking import MOST_BRANCHES
from app.storage.database import DATABASE
from app.storage.runs import RunRow
from app.storage.sessions import MessageRow, SessionRow
from app.storage.sqlite.schema import SCHEMA
from routes.http.sessions import FOUND, LISTED
from tests.support.access.people import bearer
from tests.support.server.serving import Served, serving, until

pytestmark = pytest.mark.anyio

LIMIT_S = 60
STEPS = 100  # of SQLite, from one count to the next


async def listed(served: Served, query: str = "", **headers: str) -> list[dict[str, Any]]:
    answer = await served.client.get(f"/sessions{query}", headers=headers)
    assert answer.status_code == 200, answer.text
    told: list[dict[str, Any]] = answer.json()["sessions"]
    return told


async def stored(served: Served, session: str, owner: str, *said: str, at: float = 1.0) -> None:
    run = f"run_{session}"
    rows = [MessageRow(session, place, run, dump(Message("user", text))) for place, text in enumerate(said)]
    title = said[0][:40] if said else session
    await served.services.store.write(
        [SessionRow(session, owner, at, title), RunRow(run, session, owner, "m", "answered", at, at), *rows]
    )


@pytest.mark.usefixtures("database")
async def test_the_one_used_last_comes_first_and_says_whether_it_runs(tmp_path: Path) -> None:
    going_on = asyncio.Event()
    model = Scripted(["One.", "Two.", [Pause(going_on), "Three."]])
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, model) as served:
        first = (await served.chat("First"))[0]["session"]
        second = (await served.chat("Second"))[0]["session"]
        rows = await listed(served)
        assert [row["id"] for row in rows] == [second, first] and rows[0]["updated"] >= rows[0]["created"]
        async with aclosing(served.turn(message="Again", session=first)) as turn:
            await until(turn, "run.started")
            rows = await listed(served)
            assert [(row["id"], row["running"]) for row in rows] == [(first, True), (second, False)]
            assert (await served.client.get(f"/sessions/{first}")).json()["running"]
            going_on.set()
            await until(turn, "run.finished")
        await served.services.runs.ended(rows[0]["id"])
        assert (await listed(served))[0]["updated"] > rows[0]["updated"]


@pytest.mark.usefixtures("database")
async def test_pages_go_back_to_the_first(tmp_path: Path) -> None:
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, Scripted([])) as served:
        for number in range(LISTED + 10):
            await stored(served, f"ses_{number:03}", "local", at=1.0 + number // 3)  # some at the same time
        pages = [await listed(served)]
        while pages[-1]:
            pages.append(await listed(served, f"?before={pages[-1][-1]['id']}"))
        assert [len(page) for page in pages] == [LISTED, 10, 0]
        ids = [row["id"] for page in pages for row in page]
        assert ids == [f"ses_{number:03}" for number in reversed(range(LISTED + 10))]
        assert (await served.client.get("/sessions?before=ses_none")).status_code == 404


@pytest.mark.usefixtures("database")
async def test_words_find_sessions_in_titles_and_messages_but_never_anybody_elses(tmp_path: Path) -> None:
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, Scripted([])) as served:
        ann, bob = await bearer(served, "ann"), await bearer(served, "bob")
        await stored(served, "ses_trip", "ann", "Plan the trip", "To Lisbon\nin October, by train", at=1.0)
        await stored(served, "ses_food", "ann", "Recipes", "Lisbon has custard tarts", "and 100% cod", at=2.0)
        await stored(served, "ses_rail", "ann", "東京に行く電車", at=3.0)
        await stored(served, "ses_bobs", "bob", "Lisbon trip of another", at=4.0)
        for query, expected in {
            "lisbon": ["ses_food", "ses_trip"],
            "LISBON octo": ["ses_trip"],
            "lisbon cod": [],  # not in one message
            "recip": ["ses_food"],
            "100%": ["ses_food"],
            "0% cod": [],
            "電車": ["ses_rail"],
            'a" OR text : "cod': [],
            "ses_trip": [],  # the index knows sessions as words, too
            "...": [],
        }.items():
            rows = await listed(served, _q(query), **ann)
            assert [row["id"] for row in rows] == expected, query
            assert all("snippet" in row for row in rows)
        [trip] = await listed(served, _q("october"), **ann)
        assert trip["snippet"] == "To Lisbon in October, by train" and trip["title"] == "Plan the trip"
        assert [row["id"] for row in await listed(served, _q("lisbon"), **bob)] == ["ses_bobs"]
        assert (await served.client.get(f"/sessions{_q('x' * 1001)}", headers=ann)).status_code == 400


@pytest.mark.usefixtures("database")
async def test_the_best_match_comes_first(tmp_path: Path) -> None:
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, Scripted([])) as served:
        many = FOUND + MOST_BRANCHES + 5  # more titles with longer words than a search reads
        titles = ["Topic 17", "A topic (17)", "17 of a topic", *(f"topic 17{at:03}" for at in range(many))]
        for at, title in enumerate(titles):
            await stored(served, f"ses_{at:03}", "local", title, at=float(at))
        await stored(served, "ses_text", "local", "Another", "about topic 17, at last", at=500.0)
        await stored(served, "ses_part", "local", "One more", "about topics 170 to 180", at=600.0)
        found = [row["id"] for row in await listed(served, _q("topic 17"))]
        newest = [f"ses_{at:03}" for at in reversed(range(len(titles)))]
        assert found == ["ses_000", "ses_002", "ses_001", *newest[: FOUND - 3]]
        for query, expected in {
            " TOPIC 17": ["ses_000", "ses_002"],
            "17 topic": ["ses_002", "ses_001", "ses_000"],
            "topic 17001": ["ses_004"],
            "about topic": ["ses_text", "ses_part"],
        }.items():
            assert [row["id"] for row in await listed(served, _q(query))][: len(expected)] == expected, query


def _q(words: str) -> str:
    return f"?{urlencode({'q': words})}"


@pytest.mark.usefixtures("database")
async def test_a_title_can_be_given(tmp_path: Path) -> None:
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, Scripted(["Hi."])) as served:
        session = (await served.chat("\n  Make   it\u202e work \nnow"))[0]["session"]
        path = f"/sessions/{session}"
        assert (await listed(served))[0]["title"] == "Make it work"
        changed = await served.client.patch(path, json={"title": " A better\tname\u202e ", "disabled_tools": ["web_*"]})
        assert changed.status_code == 200
        assert (changed.json()["title"], changed.json()["disabled_tools"]) == ("A better name", ["web_*"])
        await served.client.patch(path, json={"disabled_tools": []})
        [row] = await listed(served, _q("better"))
        assert (row["title"], row["disabled_tools"], row["snippet"]) == ("A better name", [], "")
        token = "dgm_" + "a1b2" * 10 + "a1b"
        await served.client.patch(path, json={"title": f"Use {token}"})
        assert (await listed(served))[0]["title"] == "Use [redacted]"
        for wrong in ({}, {"title": ""}, {"title": " \u200b\n"}, {"title": "x" * 201}, {"title": 1}, {"name": "x"}):
            refused = await served.client.patch(path, json=wrong)
            assert refused.status_code == 422 and refused.json()["error"]["code"] == "invalid_request", wrong


async def counted(store: Any) -> Counter[str]:
    """Count the statements that read from a store, and the steps of SQLite's virtual machine for them."""
    seen, own = Counter[str](), store._loop_connection._connection

    def statement(sql: str) -> None:
        seen["statements"] += not sql.startswith("--")  # of the full text index, within a search

    def steps() -> None:
        seen["steps"] += STEPS

    await store._reader.set_trace_callback(statement)
    await store._reader.set_progress_handler(steps, STEPS)
    own.set_trace_callback(statement)
    own.set_progress_handler(steps, STEPS)
    return seen


async def test_ten_thousand_sessions_are_listed_at_once(tmp_path: Path) -> None:
    """A page costs the same however many there are; the first one, with its counts, and a search rise with them."""
    few, many, queries = 1_000, 10_000, ("?before=ses_00500", "", "?q=words+same")
    said = dump(Message("user", "The same words in all of them"))
    cost = dict[tuple[str, int], int]()
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, Scripted([])) as served:
        store = served.services.store
        seen = await counted(store)
        for begin, end in ((0, few), (few, many)):
            names = [(at, f"ses_{at:05}") for at in range(begin, end)]
            await store.write([SessionRow(name, "local", 1.0, f"Title {name}") for _, name in names])
            await store.write([RunRow(f"run_{n}", n, "local", "m", "answered", at, at) for at, n in names])
            await store.write([MessageRow(name, 0, f"run_{name}", said) for _, name in names])
            for query in queries:
                await listed(served, query)  # indexes the words, once
                seen.clear()
                assert len(await listed(served, query)) >= 100
                assert 0 < seen["statements"] < 50, "none for each of them"
                assert 0 < seen["steps"] < 300 * end
                cost[query, end] = seen["steps"]
    page, first, search = ((cost[query, few], cost[query, many] - cost[query, few]) for query in queries)
    assert page[1] < page[0]
    assert first[1] < 10 * (many - few)
    assert search[1] < 1.5 * search[0] * (many - few) / few


async def test_sessions_of_an_older_database_are_in_the_order_of_their_runs(tmp_path: Path) -> None:
    older = next(at for at, script in enumerate(SCHEMA) if "ADD COLUMN updated" in script)
    (tmp_path / "data").mkdir()
    with closing(sqlite3.connect(tmp_path / "data" / DATABASE)) as database:
        for script in SCHEMA[:older]:
            database.executescript(script)
        for name, created, ended in (("ses_a", 1.0, 9.0), ("ses_b", 2.0, 5.0), ("ses_c", 3.0, None)):
            database.execute(
                "INSERT INTO sessions (id, principal, created, title) VALUES (?, 'local', 0.5, '')", (name,)
            )
            run = (f"run_{name}", name, "local", "m", "answered", created, ended)
            columns = "id, session, principal, model, state, created, ended"
            database.execute(f"INSERT INTO runs ({columns}) VALUES (?, ?, ?, ?, ?, ?, ?)", run)
        database.execute(f"PRAGMA user_version = {older}")
        database.commit()
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, Scripted([])) as served:
        assert [(row["id"], row["updated"]) for row in await listed(served)] == [
            ("ses_a", 9),
            ("ses_b", 5),
            ("ses_c", 3),
        ]
