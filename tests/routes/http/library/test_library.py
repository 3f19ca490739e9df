"""The list of conversations: folders, pins, the archive, and where a search has found its words."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from app.models.scripted import Scripted
from routes.http.library.folders import MOST_FOLDERS
from tests.support.access.people import bearer
from tests.support.server.serving import Served, serving

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("database")]
LIMIT_S = 30


async def begun(served: Served, *messages: str) -> list[str]:
    return [(await served.chat(one))[0]["session"] for one in messages]


async def listed(served: Served, query: str = "") -> dict[str, Any]:
    answer = await served.client.get(f"/sessions{query}")
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def ids(rows: list[dict[str, Any]]) -> list[str]:
    return [row["id"] for row in rows]


async def changed(served: Served, session: str, **fields: object) -> dict[str, Any]:
    answer = await served.client.patch(f"/sessions/{session}", json=fields)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


async def test_conversations_are_pinned_archived_and_moved(tmp_path: Path) -> None:
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, Scripted(["Hi."] * 3)) as served:
        one, two, three = await begun(served, "One", "Two", "Three")
        folder = (await served.client.post("/folders", json={"name": " My\n\x1b travel "})).json()
        assert (folder["name"], folder["sessions"]) == ("My travel", 0)
        row = await changed(served, one, pinned=True, folder=folder["id"], title="First")
        assert (row["pinned"], row["archived"], row["folder"], row["title"]) == (True, False, folder["id"], "First")
        await changed(served, two, archived=True)
        whole = await listed(served)
        assert (ids(whole["sessions"]), ids(whole["pinned"])) == ([three, one], [one])
        assert [(row["id"], row["sessions"]) for row in whole["folders"]] == [(folder["id"], 1)]
        for query, expected in (
            (f"?folder={folder['id']}", [one]),
            ("?archived=true", [two]),
            ("?pinned=true", [one]),
            (f"?before={three}", [one]),
            ("?q=two", [two]),
        ):
            found = await listed(served, query)
            assert (ids(found["sessions"]), set(found)) == (expected, {"sessions"}), query
        renamed = await served.client.patch(f"/folders/{folder['id']}", json={"name": "Trips"})
        assert (renamed.json()["name"], renamed.json()["sessions"]) == ("Trips", 1)
        assert (await changed(served, one, folder=None, pinned=False))["folder"] is None
        await changed(served, one, folder=folder["id"])
        assert (await served.client.delete(f"/folders/{folder['id']}")).status_code == 204
        assert (await served.client.get(f"/sessions/{one}")).json()["folder"] is None
        assert (await served.client.get("/folders")).json() == {"folders": []}


async def test_each_change_of_a_list_reaches_its_pages(tmp_path: Path) -> None:
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, Scripted(["Hi."])) as served:
        [one] = await begun(served, "One")
        revisions = [await served.services.store.list_revision("local")]
        for method, path, body in (
            ("POST", "/folders", {"name": "A"}),
            ("PATCH", f"/sessions/{one}", {"title": "Other"}),
            ("PATCH", f"/sessions/{one}", {"pinned": True}),
            ("DELETE", f"/sessions/{one}", None),
        ):
            assert (await served.client.request(method, path, json=body)).is_success
            revisions.append(await served.services.store.list_revision("local"))
        assert revisions == sorted(set(revisions))


async def test_a_search_says_where_it_found_the_words(tmp_path: Path) -> None:
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, Scripted(["A 🐈 at the café.", "Yes."])) as served:
        events = await served.chat("Which pets?")
        session, run = events[0]["session"], events[0]["run"]
        await served.chat("Again", session=session)
        [found] = (await listed(served, "?q=CAFE"))["sessions"]
        assert (found["id"], found["run"]) == (session, run)
        assert [found["snippet"][start:end] for start, end in found["marks"]] == ["café"]
        [found] = (await listed(served, "?q=which"))["sessions"]
        assert [found["title"][start:end] for start, end in found["title_marks"]] == ["Which"]


BAD: tuple[tuple[str, str, Any, int, str], ...] = (
    ("POST", "/folders", {"name": "   "}, 422, "0 visible characters"),
    ("POST", "/folders", {"name": "x" * 81}, 422, "81 visible characters"),
    ("POST", "/folders", {"name": "x" * 5000}, 422, "name"),
    ("POST", "/folders", {"name": 3}, 422, "name"),
    ("POST", "/folders", {}, 422, "name"),
    ("POST", "/folders", {"name": "TAKEN"}, 409, "already"),
    ("PATCH", "/folders/fld_0", {"name": "x"}, 404, "GET /folders"),
    ("DELETE", "/folders/fld_0", None, 404, "GET /folders"),
    ("PATCH", "/sessions/{session}", {}, 422, "send title, pinned, archived, folder"),
    ("PATCH", "/sessions/{session}", {"pinned": "perhaps"}, 422, "pinned"),
    ("PATCH", "/sessions/{session}", {"folder": "fld_0"}, 404, "GET /folders"),
    ("GET", "/sessions?archived=1", None, 400, "neither true nor false"),
    ("GET", "/sessions?folder=fld_0", None, 404, "GET /folders"),
)


async def test_bad_input_is_refused_with_what_to_do(tmp_path: Path) -> None:
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, Scripted(["Hi."])) as served:
        [session] = await begun(served, "One")
        await served.client.post("/folders", json={"name": "Taken"})
        for method, path, body, status, words in BAD:
            answer = await served.client.request(method, path.format(session=session), json=body)
            assert answer.status_code == status and words in answer.text, answer.text


async def test_folders_are_bounded_and_their_owners(tmp_path: Path) -> None:
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, Scripted(["Hi."])) as served:
        ann, bob = await bearer(served, "ann"), await bearer(served, "bob")
        made = [await served.client.post("/folders", json={"name": f"{n}"}, headers=ann) for n in range(MOST_FOLDERS)]
        assert {one.status_code for one in made} == {201}
        full = await served.client.post("/folders", json={"name": "one more"}, headers=ann)
        assert (full.status_code, full.json()["error"]["code"]) == (409, "too_many_folders")
        served.client.headers |= bob
        [session] = await begun(served, "One")
        answer = await served.client.patch(f"/sessions/{session}", json={"folder": made[0].json()["id"]})
        assert answer.status_code == 404
