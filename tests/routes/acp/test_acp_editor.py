"""`dragoman acp` as an editor sees it: a real process at a real server, each frame held to the protocol's schema."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from acp.exceptions import RequestError

from app.models.scripted import Pause, Scripted
from parsing import Thought
from tests.support.acp.editor import WRITE, Answer, ask, chosen, editing, session, url_of
from tests.support.server.approvals import decide, note
from tests.support.server.serving import serving

pytestmark = pytest.mark.anyio


async def test_a_prompt_is_a_run_whose_events_are_updates(tmp_path: Path) -> None:
    provider = Scripted([[Thought("Hm."), "I write.", WRITE], ["Done."]])
    async with serving(tmp_path, provider) as served, editing(tmp_path, "--url", url_of(served)) as (editor, about):
        assert about.protocol_version == 1 and about.agent_info and about.agent_info.name == "dragoman"
        new = await editor.agent.new_session(str(tmp_path / "work"))
        assert new.modes and new.modes.current_mode_id == "sandboxed"
        assert [one.id for one in new.config_options or ()] == ["mode", "model"]
        assert await ask(editor, new.session_id, "Write.") == "end_turn"
        assert (editor.text("agent_thought_chunk"), editor.text()) == ("Hm.", "I write.Done.")
        start, *later = [one for one in editor.updates if "toolCallId" in one]
        assert {one["toolCallId"] for one in later} == {start["toolCallId"]}
        assert [one["status"] for one in (start, *later) if "status" in one][-1] == "completed"
        shown: dict[str, Any] = {}
        for one in (start, *later):
            shown |= one
        path = str(tmp_path / "work/note.txt")
        assert shown["kind"] == "edit" and shown["locations"] == [{"path": path}]
        assert shown["content"][0] == {"type": "diff", "path": path, "newText": "first", "oldText": None}
        assert note(tmp_path).read_text() == "first"


async def test_a_permission_is_asked_for_and_the_first_decision_wins(tmp_path: Path) -> None:
    asked, never = asyncio.Event(), asyncio.Event()

    async def wait(_: dict[str, Any]) -> dict[str, Any]:
        asked.set()
        await never.wait()
        return chosen("once")

    provider = Scripted([[WRITE], ["One."], [WRITE], ["Two."], [WRITE], ["Three."]])
    async with serving(tmp_path, provider) as served, editing(tmp_path, "--url", url_of(served)) as (editor, _):
        name = await session(editor, tmp_path)
        await editor.agent.set_session_mode(name, "ask")
        assert await ask(editor, name, "Write.") == "end_turn"
        [(method, request)] = editor.asked
        assert method == "session/request_permission"
        assert [one["kind"] for one in request["options"]][:2] == ["allow_once", "allow_always"]
        assert request["toolCall"]["rawInput"] == {"path": "note.txt", "content": "first"}
        assert note(tmp_path).read_text() == "first"

        editor.answers[method] = wait  # the page is faster
        turn = asyncio.create_task(ask(editor, name, "Again."))
        await asked.wait()
        [row] = (await served.client.get("/approvals")).json()["approvals"]
        await decide(served.client, row["run"], row["call"], "deny")
        assert await turn == "end_turn"
        assert len(editor.taken_back) == 1 and editor.text().endswith("Two.")


async def test_a_turn_is_cancelled_while_it_asks(tmp_path: Path) -> None:
    asked = asyncio.Event()

    async def leave(_: dict[str, Any]) -> dict[str, Any]:
        asked.set()
        await cancelled.wait()
        return {"outcome": {"outcome": "cancelled"}}

    cancelled = asyncio.Event()
    provider = Scripted([[WRITE], ["Never."]])
    answers: dict[str, Answer] = {"session/request_permission": leave}
    async with (
        serving(tmp_path, provider) as served,
        editing(tmp_path, "--url", url_of(served), answers=answers) as (editor, _),
    ):
        name = await session(editor, tmp_path)
        await editor.agent.set_config_option("mode", name, "ask")
        turn = asyncio.create_task(ask(editor, name, "Write."))
        await asked.wait()
        await editor.agent.cancel(name)
        cancelled.set()
        assert await turn == "cancelled"
        assert not note(tmp_path).exists()


async def test_two_prompts_at_once_answer_one_after_the_other(tmp_path: Path) -> None:
    go_on = asyncio.Event()
    provider = Scripted([["One", Pause(go_on), "."], ["Two."]])
    async with serving(tmp_path, provider) as served, editing(tmp_path, "--url", url_of(served)) as (editor, _):
        name = await session(editor, tmp_path)
        first = asyncio.create_task(ask(editor, name, "First."))
        await editor.until(lambda editor: editor.text() == "One")
        second = asyncio.create_task(ask(editor, name, "Second."))
        await editor.until(lambda editor: "agent_thought_chunk" in str(editor.updates))
        go_on.set()
        assert [*await asyncio.gather(first, second)] == ["end_turn", "end_turn"]
        assert editor.text() == "One.Two."


async def test_a_session_is_listed_and_loaded_from_its_log(tmp_path: Path) -> None:
    provider = Scripted([["I write.", WRITE], ["Done."], ["Still here."]])
    async with serving(tmp_path, provider) as served:
        async with editing(tmp_path, "--url", url_of(served)) as (editor, _):
            name = await session(editor, tmp_path)
            await ask(editor, name, "Write.")
            live = [one for one in editor.updates if one["sessionUpdate"] != "available_commands_update"]
        async with editing(tmp_path, "--url", url_of(served)) as (editor, _):
            [listed] = (await editor.agent.list_sessions(cwd=str(tmp_path / "work"))).sessions
            assert (listed.session_id, listed.title) == (name, "Write.")
            assert not (await editor.agent.list_sessions(cwd="/elsewhere")).sessions
            await editor.agent.load_session(str(tmp_path / "work"), name)
            again = [one for one in editor.updates if one["sessionUpdate"] != "available_commands_update"]
            assert editor.text("user_message_chunk") == "Write."
            assert live_call(again) == live_call(live)
            assert editor.text() == "I write.Done."
            assert await ask(editor, name, "There?") == "end_turn"
            await editor.agent._conn.send_request("session/delete", {"sessionId": name})
            assert not (await editor.agent.list_sessions()).sessions
            await editor.agent._conn.send_request("session/delete", {"sessionId": name})


def live_call(updates: list[dict[str, Any]]) -> str:
    return next(str(one["toolCallId"]) for one in updates if "toolCallId" in one)


async def test_what_is_wrong_is_an_error_that_says_so(tmp_path: Path) -> None:
    async with serving(tmp_path, Scripted([])) as served, editing(tmp_path, "--url", url_of(served)) as (editor, _):
        for cwd, told in (("relative", "absolute path"), ("/etc", "not in the workspace")):
            with pytest.raises(RequestError, match=told):
                await editor.agent.new_session(cwd)
        with pytest.raises(RequestError, match="not found"):
            await ask(editor, "acp-unknown", "Hello")
        with pytest.raises(RequestError):
            await editor.agent.load_session(str(tmp_path / "work"), "ses_unknown")
        name = await session(editor, tmp_path)
        with pytest.raises(RequestError, match="not among"):
            await editor.agent.set_session_mode(name, "sometimes")
        with pytest.raises(RequestError, match="script has 0 replies"):
            await ask(editor, name, "Hello")
