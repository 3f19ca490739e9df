"""Modes of conversations: temporary, read-only, a workspace folder of their own."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
import time
from base64 import b64encode
from collections.abc import AsyncGenerator
from contextlib import aclosing, closing
from pathlib import Path
from typing import Any

import pytest

from app.core.provider import ModelRequest, Piece
from app.models.scripted import Scripted
from app.policy.permits.bounds import Bounds, Surroundings
from app.storage.principals import Principal
from app.storage.sqlite.schema import TABLES
from routes import deletion
from routes.deletion import end_temporary
from routes.services import Services
from tests.support.access.people import bearer
from tests.support.databases.postgres import DATABASES
from tests.support.models.replies import bash_block, tool_call
from tests.support.server.delegating import LIMIT_S, delegates, helpers_in
from tests.support.server.events import of_kind
from tests.support.server.serving import Served, serving
from tests.support.terminal.terminals import terminal
from tools.base.workspace import OwnFolder
from tools.catalogue import TOOLS

pytestmark = pytest.mark.anyio
WRITE = tool_call("write_file", path="note.txt", content="SECRET-WORD")


def traces(folder: Path, *words: str) -> list[str]:
    """Return the tables that hold one of the words, and the files of the data directory whose name does."""
    found = [str(path) for path in (folder / "data").rglob("*") if any(word in path.name for word in words)]
    if DATABASES.url_of(folder):
        return found
    with closing(sqlite3.connect(folder / "data" / "dragoman.db")) as database:
        for table in TABLES:
            rows = str(database.execute(f"SELECT * FROM {table}").fetchall())
            found += [table for word in words if word in rows]
    return found


async def test_a_temporary_conversation_is_not_listed_and_leaves_nothing(tmp_path: Path) -> None:
    replies = {"Ask": [WRITE, delegates("Look"), "Done.", "Again."], "Look": ["Found."]}
    async with asyncio.timeout(LIMIT_S), helpers_in(tmp_path, replies, record=True, memory=True) as served:
        named = {"temporary": True, "workspace": "new", "conversation": "telegram:42"}
        events = await served.chat("Ask about SECRET-WORD", **named)
        session, run = events[0]["session"], events[0]["run"]
        helper = of_kind(events, "helper.started")[0]["helper_session"]
        assert "remember" not in str(events[0]["tools"]), "no memory, in either direction"
        shown = (await served.client.get(f"/sessions/{session}")).json()
        assert shown["temporary"] is True and shown["workspace"].startswith("conversations/temporary-")
        folder = tmp_path / "work" / shown["workspace"]
        assert (folder / "note.txt").read_text() == "SECRET-WORD"
        for query in ({}, {"q": "SECRET"}, {"pinned": "true"}, {"archived": "true"}):
            assert session not in (await served.client.get("/sessions", params=query)).text
        again = await served.chat("Ask again", **named)
        assert again[0]["session"] == session and again[-1]["text"] == "Again.", "its own id and key work"
        for path, body in (
            (f"/sessions/{session}/fork", {"after": run}),
            (f"/runs/{run}/fork", {"at": 1}),
            (f"/sessions/{session}/shares", {}),
        ):
            refused = await served.client.post(path, json=body)
            assert refused.status_code == 409 and "temporary" in refused.text, path
        assert "recordings" not in traces(tmp_path, run)

        now = time.time()
        await end_temporary(served.services, now - 3600)
        assert (await served.client.get(f"/sessions/{session}")).status_code == 200, "not idle for long enough"
        with served.services.runs.notifier.subscribed(session):
            await end_temporary(served.services, now + 3600)
        assert (await served.client.get(f"/sessions/{session}")).status_code == 200, "a client follows it"
        await end_temporary(served.services, now + 3600)
        assert (await served.client.get(f"/sessions/{session}")).status_code == 404
        assert not folder.exists() and folder.parent.is_dir()
    assert set(traces(tmp_path, session, helper, run)) <= {"audit"} and not traces(tmp_path, "SECRET-WORD")


@pytest.mark.usefixtures("servers")
async def test_an_ordinary_conversation_of_the_same_time_stays(tmp_path: Path) -> None:
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, Scripted(["One.", "Two.", "Three."])) as served:
        kept = (await served.chat("Hello"))[0]["session"]
        gone = (await served.chat("Hello", temporary=True))[0]["session"]
        for session, body in ((kept, {"temporary": True}), (gone, {"temporary": False}), (kept, {"workspace": "a"})):
            refused = await served.client.post("/chat", json={"message": "Hi", "session": session, **body})
            assert refused.status_code == 422 and refused.json()["error"]["code"] == "mode_fixed", body
        patched = await served.client.patch(f"/sessions/{gone}", json={"temporary": False})
        assert patched.status_code == 422
        await served.chat("Hello", session=gone, temporary=True)
        await end_temporary(served.services, time.time() + 3600)
        rows = (await served.client.get("/sessions")).json()["sessions"]
        assert [row["id"] for row in rows] == [kept] and "temporary" not in rows[0]


async def test_a_folder_that_cannot_be_used_holds_up_no_other_deletion(tmp_path: Path) -> None:
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, Scripted(["One.", "Two."])) as served:
        sessions = dict[str, str]()
        for name in ("bob", "ann"):
            served.client.headers |= await bearer(served, name)
            sessions[name] = (await served.chat("Hello", temporary=True, workspace="new"))[0]["session"]
        bobs = tmp_path / "work" / "people" / "bob"
        shutil.rmtree(bobs)
        bobs.write_text("no folder")
        await end_temporary(served.services, time.time() + 3600)
        rows = await served.services.store.temporary_sessions(time.time() + 3600)
        assert [row.id for row in rows] == [sessions["bob"]]
        bobs.unlink()
        await end_temporary(served.services, time.time() + 3600)
        assert await served.services.store.temporary_sessions(time.time() + 3600) == []


async def test_one_that_is_used_while_others_are_deleted_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, Scripted(["Hi."] * 3)) as served:
        left = {(await served.chat("Hello", temporary=True))[0]["session"] for _ in range(2)}
        deleting = deletion.delete_conversation

        async def slowly(services: Services, principal: Principal, session: str) -> None:
            await deleting(services, principal, session)
            left.discard(session)
            await served.chat("Again", session=next(iter(left)))

        monkeypatch.setattr(deletion, "delete_conversation", slowly)
        await end_temporary(served.services, time.time())
        rows = await served.services.store.temporary_sessions(time.time() + 3600)
        assert {row.id for row in rows} == left and len(left) == 1


async def test_clients_of_other_apis_name_modes_in_headers(tmp_path: Path) -> None:
    body = {"model": "dragoman/agent", "messages": [{"role": "user", "content": "Hello"}]}
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, Scripted(["One.", "Two.", "Three."])) as served:

        async def asked(headers: dict[str, str], *more: dict[str, str]) -> tuple[int, str, dict[str, Any]]:
            sent = body | {"messages": [{"role": "user", "content": "Hello"}, *more]}
            answer = await served.client.post("/v1/chat/completions", json=sent, headers=headers)
            session = answer.headers.get("X-Session-Id", "")
            shown = (await served.client.get(f"/sessions/{session}")).json() if session else {}
            return answer.status_code, session, shown

        headers = {"X-Dragoman-Temporary": "true", "X-Dragoman-Read-Only": "true", "X-Dragoman-Workspace": "one"}
        status, session, shown = await asked(headers)
        assert (status, shown["temporary"], shown["read_only"], shown["workspace"]) == (200, True, True, "one")
        later = {"role": "assistant", "content": "One."}, {"role": "user", "content": "And?"}
        assert (await asked(headers, *later))[:2] == (200, session)
        status, branch, shown = await asked({}, later[0], later[1] | {"content": "Or?"})  # from an earlier point
        assert (status, branch != session) == (200, True)
        assert (shown["temporary"], shown["read_only"], shown["workspace"]) == (True, True, "one")
        assert (await asked({"X-Dragoman-Read-Only": "maybe"}))[0] == 400
        assert (await asked({"X-Dragoman-Workspace": "../x"}))[0] == 400
        assert (await served.client.get("/sessions")).json()["sessions"] == []


async def test_a_terminal_begins_a_temporary_conversation(tmp_path: Path) -> None:
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, Scripted(["One.", "Two.", "Three."])) as served:
        url = str(served.client.base_url)
        async with terminal("chat", "--url", url, "--read-only", home=tmp_path) as shown:
            await shown.ends_with("\n>")
            shown.press("Look\r")
            await shown.until("One.")
            await shown.ends_with("\n>")
            shown.press("/temporary Hello\r")
            await shown.until("Two.")
            await shown.ends_with("\n>")
            rows = (await served.client.get("/sessions")).json()["sessions"]
        assert [(row["title"], row.get("read_only")) for row in rows] == [("Look", True)]
        assert len(await served.services.store.temporary_sessions(time.time() + 60)) == 1


@pytest.mark.usefixtures("servers")
async def test_a_read_only_conversation_stays_so_until_its_person_changes_it(tmp_path: Path) -> None:
    async def wrote(served: Served, **body: object) -> bool:
        events = await served.chat("Write", **body)
        assert not of_kind(events, "tool.rejected") or "read-only" in of_kind(events, "tool.rejected")[0]["reason"]
        assert ("write_file" in events[0]["tools"]) is not bool(of_kind(events, "tool.rejected"))
        return bool(of_kind(events, "tool.finished"))

    async with asyncio.timeout(LIMIT_S), serving(tmp_path, Scripted([WRITE, "Done."] * 3)) as served:
        events = await served.chat("Write", read_only=True)
        session, tools = events[0]["session"], events[0]["tools"]
        assert "read_file" in tools and not {"write_file", "edit_file", "bash", "python"} & set(tools)
        assert of_kind(events, "tool.rejected") and not (tmp_path / "work" / "note.txt").exists()
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, Scripted([WRITE, "Done."] * 3)) as served:  # after a restart
        assert not await wrote(served, session=session)
        loosened = await served.client.post("/chat", json={"message": "x", "session": session, "read_only": False})
        assert loosened.status_code == 422
        options = await served.client.patch(f"/sessions/{session}", json={"options": {"max_rounds": 5}})
        assert options.json()["read_only"] is True, "other options do not change it"
        changed = await served.client.patch(f"/sessions/{session}", json={"read_only": False})
        assert "read_only" not in changed.json() and await wrote(served, session=session)
        await served.client.patch(f"/sessions/{session}", json={"read_only": True})
        assert not await wrote(served, session=session)


async def test_helpers_and_branches_have_the_modes_of_their_conversation(tmp_path: Path) -> None:
    replies = {"Ask": [delegates("Try it"), "Done."], "Try it": [WRITE, "No."]}
    async with asyncio.timeout(LIMIT_S), helpers_in(tmp_path, replies) as served:
        events = await served.chat("Ask", read_only=True, workspace="one/two")
        (started,) = of_kind(events, "helper.started")
        assert "write_file" not in started["tools"] and "read_file" in started["tools"]
        below = (await served.client.get(f"/sessions/{started['helper_session']}")).json()
        assert (below["read_only"], below["workspace"]) == (True, "one/two")
        assert not list((tmp_path / "work" / "one" / "two").iterdir())
        session, run = events[0]["session"], events[0]["run"]
        branch = (await served.client.post(f"/sessions/{session}/fork", json={"after": run})).json()["id"]
        shown = (await served.client.get(f"/sessions/{branch}")).json()
        assert (shown["read_only"], shown["workspace"]) == (True, "one/two"), "and so have branches"


async def test_files_of_one_folder_are_out_of_reach_in_another(tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    (work / "outside.txt").write_text("OUTSIDE")
    looks = [tool_call("read_file", path=path) for path in ("../outside.txt", str(work / "outside.txt"), "note.txt")]
    looks.append(bash_block(f"pwd; ls; cat {work}/outside.txt {work}/one/note.txt ../outside.txt; echo own > own.txt"))
    looks.append(tool_call("read_file", path="own.txt"))
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, Scripted([WRITE, "Done.", *looks, "Done."])) as served:
        file = {"type": "file", "data": b64encode(b"a,b").decode(), "name": "table.csv"}
        first = await served.chat([{"type": "text", "text": "Write"}, file], workspace="one")
        assert sorted(path.name for path in (work / "one").iterdir()) == ["note.txt", "table.csv"]
        events = await served.chat("Look", workspace="two")
        texts = [event["text"] for event in of_kind(events, "tool.finished")]
        assert "outside the workspace" in texts[0] and "outside the workspace" in texts[1]
        assert "does not exist" in texts[2] and texts[3].startswith(f"{work}/two\n")
        assert "OUTSIDE" not in str(texts) and "SECRET-WORD" not in str(texts)
        assert (work / "two" / "own.txt").read_text() == texts[4]
        undone = await served.client.post(f"/runs/{first[0]['run']}/undo")
        assert undone.status_code == 200 and not (work / "one" / "note.txt").exists()
        for path in ("../one", "/etc", "", "a/../../b", "a\0b"):
            refused = await served.client.post("/chat", json={"message": "x", "workspace": path})
            assert refused.status_code == 422 and "workspace" in refused.text, path


async def test_rules_on_paths_hold_in_a_folder_as_in_the_whole_workspace(tmp_path: Path) -> None:
    rule = 'tool = "*"\npaths = ["prod/**"]\naction = "deny"\nreason = "Ours."\n'
    (tmp_path / "dragoman.toml").write_text(f"[[rules]]\n{rule}")
    for folder, allowed in (("prod", False), ("prod/inner", False), ("other/prod", True)):
        async with asyncio.timeout(LIMIT_S), serving(tmp_path, Scripted([WRITE, "Done."])) as served:
            events = await served.chat("Write", workspace=folder)
        assert ("Ours." in str(of_kind(events, "tool.rejected"))) is not allowed, events
        assert (tmp_path / "work" / folder / "note.txt").exists() is allowed, folder
    write, call = next(tool for tool in TOOLS if tool.name == "write_file"), {"path": "note.txt", "content": ""}
    covered = [
        Bounds(paths=("note.txt",)).covers(write, call, Surroundings(one, boxed=True))
        for one in (tmp_path, OwnFolder.below(tmp_path, "one"))
    ]
    assert covered == [True, False], "a permission for a file of the whole workspace is for that file alone"


async def test_a_link_in_the_place_of_a_folder_is_not_followed(tmp_path: Path) -> None:
    work, other = tmp_path / "work", tmp_path / "other"
    other.mkdir()
    (other / "secret.txt").write_text("SECRET")

    class Swapping(Scripted):
        """Puts a link in the place of the folder during the run, as a command of another conversation can."""

        async def stream(self, request: ModelRequest) -> AsyncGenerator[Piece, None]:
            if len(self.requests) == 1:
                shutil.rmtree(work / "one")
                (work / "one").symlink_to(other)
            async with aclosing(super().stream(request)) as pieces:
                async for piece in pieces:
                    yield piece

    read = tool_call("read_file", path="secret.txt")
    replies = [WRITE, read, bash_block("cat secret.txt; echo new > planted.txt"), WRITE, "Done."]
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, Swapping(replies)) as served:
        events = await served.chat("Look", workspace="one")
        assert len(of_kind(events, "tool.finished")) == 4
        texts = [event["text"] for event in of_kind(events, "tool.finished")][1:]
        assert "SECRET" not in str(texts) and all("replaced by a link" in text for text in texts), texts
        assert [path.name for path in other.iterdir()] == ["secret.txt"]
        refused = await served.client.post("/chat", json={"message": "x", "workspace": "one"})
        assert refused.status_code == 503 and "symbolic link" in refused.text
