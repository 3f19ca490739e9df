"""Branches: forks before and after runs, what they take over, what outlives the parent, and what is refused."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from app.core.messages import Message, dump
from app.models.scripted import Pause, Scripted
from app.storage.documents import MODEL, PERSON, DocumentRow, VersionRow
from app.storage.labels import SessionLabel
from app.storage.sessions import MessageRow, ResultRow
from routes.http import sessions
from tests.support.server.serving import Served, serving

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("database")]


async def turn(served: Served, message: Any, session: str | None = None, **options: Any) -> tuple[str, str]:
    """The session and the run of a turn that has ended."""
    events = await served.chat(message, **({"session": session} if session else {}), **options)
    assert events[-1]["type"] == "run.finished", events[-1]
    return events[0]["session"], events[0]["run"]


async def forked(served: Served, session: str, **cut: str) -> str:
    answer = await served.client.post(f"/sessions/{session}/fork", json=cut)
    assert answer.status_code == 201, answer.text
    return str(answer.json()["id"])


async def shown(served: Served, session: str) -> dict[str, Any]:
    answer = await served.client.get(f"/sessions/{session}")
    assert answer.status_code == 200, answer.text
    fields: dict[str, Any] = answer.json()
    return fields


def words(session: dict[str, Any]) -> list[str]:
    return [message["text"] for message in session["messages"]]


async def logged(served: Served, session: str, **query: Any) -> list[str]:
    log = (await served.client.get(f"/sessions/{session}/log", params=query)).json()
    return [run["message"]["text"] for run in log["runs"]]


async def test_an_edited_message_begins_a_branch_and_the_conversation_stays(tmp_path: Path) -> None:
    model = Scripted(["A1", "A2", "A3", "B2", "B3"])
    async with asyncio.timeout(60), serving(tmp_path, model) as served:
        session, first = await turn(served, "One")
        _, second = await turn(served, "Two", session)
        await turn(served, "Three", session)
        branch = await forked(served, session, before=second)
        assert words(await shown(served, branch)) == ["One", "A1"]
        await turn(served, "Two, edited", branch)
        assert [one.text for one in model.requests[-1].messages][-3:] == ["One", "A1", "Two, edited"]
        deeper = await forked(served, branch, after=(await shown(served, branch))["runs"][-1]["id"])
        await turn(served, "Deeper", deeper)

        assert words(await shown(served, session)) == ["One", "A1", "Two", "A2", "Three", "A3"]
        assert words(await shown(served, deeper)) == ["One", "A1", "Two, edited", "B2", "Deeper", "B3"]
        assert await logged(served, deeper) == ["One", "Two, edited", "Deeper"]
        runs = [run["id"] for run in (await shown(served, deeper))["runs"]]
        assert await logged(served, deeper, before=runs[2], runs=1) == ["Two, edited"]
        assert await logged(served, deeper, before=runs[1]) == ["One"]

        assert (await shown(served, branch))["parent"] == {"session": session, "after": first}
        assert (await shown(served, session))["parent"] is None
        [parting] = (await shown(served, session))["branches"]
        assert parting == {
            "after": first,
            "turns": [{"run": second, "session": session}, {"run": runs[1], "session": deeper, "parent": second}],
        }
        listed = (await served.client.get("/sessions")).json()["sessions"]
        assert [(one["id"], one["branches"]) for one in listed] == [(deeper, [session, branch])]  # the one used last
        await served.client.patch(f"/sessions/{deeper}", json={"title": "Renamed", "archived": True})
        assert (await shown(served, session))["title"] == "Renamed"
        assert (await served.client.get("/sessions")).json()["sessions"] == []
        found = (await served.client.get("/sessions", params={"q": "One"})).json()["sessions"]
        assert [one["id"] for one in found] == [deeper]


async def test_a_branch_may_begin_before_the_first_run(tmp_path: Path) -> None:
    async with asyncio.timeout(60), serving(tmp_path, Scripted(["A1", "A2", "B1"])) as served:
        session, first = await turn(served, "One")
        await turn(served, "Two", session)
        branch = await forked(served, session, before=first)
        assert words(await shown(served, branch)) == []
        assert (await shown(served, branch))["branches"] == []  # nothing has begun in it
        listed = (await served.client.get("/sessions")).json()["sessions"]
        assert [one["id"] for one in listed] == [session]
        _, other = await turn(served, "Another one", branch)
        assert (await shown(served, branch))["branches"] == [
            {
                "after": None,
                "turns": [
                    {"run": first, "session": session},
                    {"run": other, "session": branch, "parent": first},
                ],
            }
        ]


async def test_a_turn_names_the_one_that_it_was_forked_from(tmp_path: Path) -> None:
    async with asyncio.timeout(60), serving(tmp_path, Scripted(["A", "B", "C", "D", "E"])) as served:
        session, first = await turn(served, "A")
        branch = await forked(served, session, before=first)
        _, second = await turn(served, "B", branch)
        deeper = await forked(served, branch, before=second)
        _, third = await turn(served, "C", deeper)
        behind = await forked(served, branch, after=second)
        beside = await forked(served, behind, before=second)
        _, fourth = await turn(served, "D", beside)
        [parting] = (await shown(served, deeper))["branches"]
        parents = {one["run"]: one.get("parent") for one in parting["turns"]}
        assert parents == {first: None, second: first, third: second, fourth: second}


async def test_branches_outlive_what_they_were_forked_from(tmp_path: Path) -> None:
    async with asyncio.timeout(60), serving(tmp_path, Scripted(["A1", "A2", "B2", "B3"])) as served:
        store = served.services.store
        session, first = await turn(served, "One")
        await store.write([ResultRow(session, first, "call_1", "bash", "a long result")])
        _, second = await turn(served, "Two", session)
        await store.write([ResultRow(session, second, "call_2", "bash", "another one")])
        branch = await forked(served, session, before=second)
        await turn(served, "Two again", branch)
        assert await store.result(branch, "call_2", 0, 100) is None  # behind the cut: it may be tainted
        assert await store.written_lines(branch, "call_2") is None
        assert (await served.client.delete(f"/sessions/{session}")).status_code == 204
        assert (await served.client.get(f"/sessions/{session}")).status_code == 404
        assert await logged(served, branch) == ["One", "Two again"]
        assert (await served.client.get(f"/runs/{first}/events")).status_code == 200
        assert (await served.client.get(f"/runs/{second}")).status_code == 404  # no branch has it
        part = await store.result(branch, "call_1", 0, 100)
        assert part is not None
        assert part.text == "a long result"
        assert await store.result(branch, "call_2", 0, 100) is None
        parted = (await shown(served, branch))["branches"]
        assert [one["after"] for one in parted] == []  # its other branch is gone
        again = await forked(served, branch, before=(await shown(served, branch))["runs"][1]["id"])
        assert (await served.client.delete(f"/sessions/{branch}")).status_code == 204
        await turn(served, "Still here", again)
        assert await logged(served, again) == ["One", "Still here"]
        assert (await served.client.delete(f"/sessions/{again}")).status_code == 204
        assert (await served.client.get(f"/runs/{first}")).status_code == 404  # the last that had it
        sizes = await store.sizes()
        assert {table: sizes[table] for table in ("runs", "events", "results", "branches", "branch_parts")} == {
            "runs": 0,
            "events": 0,
            "results": 0,
            "branches": 0,
            "branch_parts": 0,
        }


async def test_turns_of_a_deleted_session_part_from_others_as_before(tmp_path: Path) -> None:
    async with asyncio.timeout(60), serving(tmp_path, Scripted(["A1", "B1", "C2"])) as served:
        session, first = await turn(served, "One")
        before, after = await forked(served, session, before=first), await forked(served, session, after=first)
        _, other = await turn(served, "Another one", before)
        await turn(served, "Two", after)
        await served.client.delete(f"/sessions/{session}")
        turns = [{"run": first, "session": after}, {"run": other, "session": before, "parent": first}]
        for one in (before, after):
            assert (await shown(served, one))["branches"] == [{"after": None, "turns": turns}]


async def test_retention_keeps_the_runs_that_branches_have(tmp_path: Path) -> None:
    async with asyncio.timeout(60), serving(tmp_path, Scripted(["A1", "A2"])) as served:
        store = served.services.store
        session, first = await turn(served, "One")
        _, second = await turn(served, "Two", session)
        branch = await forked(served, session, before=second)
        row = await store.session(branch)
        assert row is not None
        assert await store.forget_before(row.created, 0) == 1  # what was not used since the fork
        assert await store.session(session) is None
        assert await logged(served, branch) == ["One"]
        assert (await store.run(second), await store.events(second, 0, 9)) == (None, [])
        assert await store.events(first, 0, 9)
        assert await store.forget_before(row.created + 1, 0) == 1
        assert (await store.sizes())["runs"] == 0


async def test_a_conversation_is_deleted_with_all_its_branches(tmp_path: Path) -> None:
    async with asyncio.timeout(60), serving(tmp_path, Scripted(["A1", "B1"])) as served:
        session, first = await turn(served, "One")
        branch = await forked(served, session, before=first)
        await turn(served, "Another", branch)
        refused = await served.client.delete(f"/sessions/{branch}", params={"branches": "some"})
        assert refused.json()["error"]["code"] == "invalid_query"
        assert (await served.client.delete(f"/sessions/{branch}", params={"branches": "all"})).status_code == 204
        assert (await served.client.get("/sessions")).json()["sessions"] == []
        assert (await served.client.get(f"/sessions/{session}")).status_code == 404


async def test_a_branch_has_labels_and_taint_and_no_grants(tmp_path: Path) -> None:
    async with asyncio.timeout(60), serving(tmp_path, Scripted(["A1", "A2"])) as served:
        store = served.services.store
        session, first = await turn(served, "One")
        text = dump(Message("user", "From a page", untrusted=True))
        await store.write(
            [MessageRow(session, 2, first, text), SessionLabel(session, "customer", "path", "", first, 1)]
        )
        _, second = await turn(served, "Two", session)
        tainted, clean = (
            await forked(served, session, before=second),
            await forked(served, session, before=first),
        )
        assert (await store.tainted(tainted), await store.tainted(clean)) == (True, False)
        assert [row.label for row in await store.session_labels([clean])] == ["customer"]
        assert (await served.client.get(f"/sessions/{tainted}/grants")).json()["grants"] == []


async def test_a_branch_has_documents_as_they_were(tmp_path: Path) -> None:
    async with asyncio.timeout(60), serving(tmp_path, Scripted(["A1", "A2"])) as served:
        store = served.services.store
        session, first = await turn(served, "One")
        row = await store.run(first)
        assert row is not None
        now = row.created
        document = DocumentRow("doc_1", session, "Plan", "markdown", 2, 2, now, now)
        await store.write([document, VersionRow("doc_1", 1, MODEL, first, "call_1", now, "old")])
        _, second = await turn(served, "Two", session)
        await store.write([VersionRow("doc_1", 2, PERSON, "", "", now + 3600, "new")])
        branch = await forked(served, session, before=second)
        [copy] = (await served.client.get(f"/sessions/{branch}/documents")).json()["documents"]
        assert (copy["title"], copy["version"]) == ("Plan", 1)
        assert copy["id"].startswith("doc_1_")
        log = (await served.client.get(f"/sessions/{branch}/log")).json()
        assert log["copies"] == {"doc_1": copy["id"]}
        assert (await served.client.get(f"/documents/{copy['id']}")).json()["text"] == "old"
        assert (await served.client.get("/documents/doc_1")).json()["text"] == "new"


async def test_files_of_a_message_are_sent_again(tmp_path: Path) -> None:
    model = Scripted(["A1", "B1"])
    async with asyncio.timeout(60), serving(tmp_path, model) as served:
        file = {"type": "file", "file": {"filename": "notes.txt", "file_data": "data:text/plain;base64,aGVsbG8="}}
        session, first = await turn(served, [{"type": "text", "text": "Read it"}, file])
        branch = await forked(served, session, before=first)
        _, again = await turn(served, "Read it well", branch, files_of=first)
        sent = await served.services.store.request_of(branch, again)
        assert sent is not None
        assert (sent.text, [one.name for one in sent.attachments]) == ("Read it well", ["notes.txt"])
        assert [one.path for one in sent.attachments] == ["notes.txt"]  # the same bytes are not written again
        assert (await served.client.post("/chat", json={"message": "x", "files_of": "run_none"})).status_code == 404


async def test_a_key_makes_one_branch(tmp_path: Path) -> None:
    async with asyncio.timeout(60), serving(tmp_path, Scripted(["A1"])) as served:
        session, first = await turn(served, "One")
        path, key = f"/sessions/{session}/fork", {"Idempotency-Key": "once"}
        both = await asyncio.gather(*(served.client.post(path, json={"before": first}, headers=key) for _ in "12"))
        assert {one.status_code for one in both} == {201}
        assert len({one.json()["id"] for one in both}) == 1
        other = await served.client.post(path, json={"after": first}, headers=key)
        assert (other.status_code, other.json()["error"]["code"]) == (422, "key_reused")
        audit = (await served.client.get("/audit")).json()["audit"]
        assert [row["why"] for row in audit if row["action"].startswith("fork")] == [f"before {first} of {session}"]


async def test_a_run_under_way_can_be_forked_before_and_not_after(tmp_path: Path) -> None:
    going_on = asyncio.Event()
    model = Scripted(["A1", [Pause(going_on), "A2"]])
    async with asyncio.timeout(60), serving(tmp_path, model) as served:
        session, first = await turn(served, "One")
        answer = await served.client.post(
            "/chat", json={"message": "Two", "session": session}, headers={"Prefer": "respond-async"}
        )
        second = answer.json()["run"]
        refused = await served.client.post(f"/sessions/{session}/fork", json={"after": second})
        assert (refused.status_code, refused.json()["error"]["code"]) == (409, "not_forkable")
        for cut in ({"before": second}, {"after": first}):
            assert words(await shown(served, await forked(served, session, **cut))) == ["One", "A1"]
        going_on.set()
        await served.services.runs.ended(second)


async def test_branches_of_one_conversation_do_not_keep_others_out_of_a_search(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "FOUND", 2)
    async with asyncio.timeout(60), serving(tmp_path, Scripted(["A1", "B1", "C1"])) as served:
        other, _ = await turn(served, "A cat")
        session, run = await turn(served, "Another cat")
        branches = [await forked(served, session, after=run) for _ in range(3)]
        found = (await served.client.get("/sessions", params={"q": "cat"})).json()["sessions"]
        assert len(found) == 2 and found[0]["id"] in (session, *branches) and found[1]["id"] == other


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({}, 422, "invalid_request"),
        ({"before": "run_1", "after": "run_1"}, 422, "invalid_request"),
        ({"before": ""}, 422, "invalid_request"),
        ({"before": 1}, 422, "invalid_request"),
        ({"before": "run_none"}, 404, "not_found"),
        ({"after": "run_1", "copies": 3}, 422, "invalid_request"),
    ],
)
async def test_bad_cuts_are_refused(tmp_path: Path, body: dict[str, Any], status: int, code: str) -> None:
    async with asyncio.timeout(60), serving(tmp_path, Scripted(["A1"])) as served:
        session, _ = await turn(served, "One")
        answer = await served.client.post(f"/sessions/{session}/fork", json=body)
        assert (answer.status_code, answer.json()["error"]["code"]) == (status, code)
