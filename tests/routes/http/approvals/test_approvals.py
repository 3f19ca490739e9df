"""Approvals: a call that leaves the sandbox waits for a person, whatever happens in between."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from app.models.scripted import Scripted
from tests.support.server.approvals import WRITE, asked_turn, note, rest_of
from tests.support.server.serving import Served, serving, until

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("servers")]

AGAIN = [WRITE, "Done.", WRITE, "Done again."]


async def test_what_stays_in_the_workspace_asks_nobody(tmp_path: Path) -> None:
    async with asyncio.timeout(30), serving(tmp_path, Scripted(AGAIN)) as served:
        kinds = [event["type"] for event in await served.chat("Write.")]
    assert "tool.finished" in kinds and "approval.required" not in kinds
    assert note(tmp_path).read_text() == "first"


async def test_a_call_waits_and_runs_once_approved(tmp_path: Path) -> None:
    async with asyncio.timeout(30), serving(tmp_path, Scripted(AGAIN)) as served:
        turn, question, path = await asked_turn(served)
        async with aclosing(turn):
            assert question["name"] == "write_file" and question["arguments"]["path"] == "note.txt"
            assert "asks first" in question["reason"] and not note(tmp_path).exists()
            [listed] = (await served.client.get("/approvals")).json()["approvals"]
            assert listed["call"] == question["call"] and listed["expires_at"] == question["expires_at"]
            answer = await served.client.post(path, json={"decision": "approve"})
            assert (answer.status_code, answer.json()["state"]) == (200, "approved")
            events = await rest_of(turn)
        assert [event["type"] for event in events][:2] == ["approval.resolved", "tool.started"]
        assert events[0]["decision"] == "approved" and events[0]["by"] == "local"
        assert note(tmp_path).read_text() == "first"
        again = await served.client.post(path, json={"decision": "deny"})
        assert again.status_code == 409
        assert again.json()["error"] | {"message": ""} == {
            "code": "already_decided",
            "message": "",
            "decision": "approved",
            "by": "local",
            "door": "api",
        }
        assert (await served.client.get("/approvals")).json() == {"approvals": []}


async def test_a_denial_is_told_to_the_model(tmp_path: Path) -> None:
    provider = Scripted(AGAIN)
    async with asyncio.timeout(30), serving(tmp_path, provider) as served:
        turn, _, path = await asked_turn(served)
        async with aclosing(turn):
            await served.client.post(path, json={"decision": "deny", "note": "wrong folder"})
            events = await rest_of(turn)
    assert [event["type"] for event in events][:2] == ["approval.resolved", "tool.rejected"]
    assert events[-1]["type"] == "run.finished" and not note(tmp_path).exists()
    told = provider.requests[-1].messages
    assert any("local denied it, saying: wrong folder" in message.text for message in told)


async def test_of_many_decisions_at_once_one_counts(tmp_path: Path) -> None:
    async with asyncio.timeout(30), serving(tmp_path, Scripted(AGAIN)) as served:
        turn, _, path = await asked_turn(served)
        async with aclosing(turn):
            wishes = [{"decision": word} for word in ("approve", "deny") * 8]
            answers = await asyncio.gather(*(served.client.post(path, json=wish) for wish in wishes))
            events = await rest_of(turn)
    assert sorted(answer.status_code for answer in answers) == [200] + [409] * 15
    [won] = [answer.json()["state"] for answer in answers if answer.status_code == 200]
    assert events[0]["decision"] == won and note(tmp_path).exists() == (won == "approved")


async def test_a_grant_for_the_session_is_for_the_same_call_only(tmp_path: Path) -> None:
    other = "```write_file\nother.txt\nfirst\n```"
    async with asyncio.timeout(30), serving(tmp_path, Scripted([WRITE, "Done.", WRITE, other, "Done."])) as served:
        turn, question, path = await asked_turn(served)
        async with aclosing(turn):
            await served.client.post(path, json={"decision": "approve", "scope": "session"})
            await rest_of(turn)
        second, later, _ = await asked_turn(served, session=question["session"])
        async with aclosing(second):
            assert later["arguments"]["path"] == "other.txt"  # the same call again was not asked for
            await served.client.post(f"/runs/{later['run']}/cancel")


async def test_unboxed_a_granted_command_asks_again_once_a_tool_has_written(tmp_path: Path, servers: str) -> None:
    """In the session of another, too: what it runs may have been written there.

    Of servers that share a workspace none knows what the others write, so each command asks again.
    """
    run, script = "```bash\nsh script.sh\n```", "```write_file\nscript.sh\necho theirs\n```"
    provider = Scripted([run, run, "Done.", script, "Written.", run, "Done."])
    async with asyncio.timeout(30), serving(tmp_path, provider, unsafe_no_sandbox="true") as served:
        turn, question, path = await asked_turn(served, approval="sandboxed")
        async with aclosing(turn):
            await served.client.post(path, json={"decision": "approve", "scope": "session"})
            if servers != "sqlite":
                second = await until(turn, "approval.required")
                assert second["call"] != question["call"] and "No sandbox holds it" in second["reason"]
                await served.client.post(f"/runs/{question['run']}/cancel")
                return
            kinds = [event["type"] for event in await rest_of(turn)]
        assert kinds.count("tool.finished") == 2 and "approval.required" not in kinds
        kinds = [event["type"] for event in await served.chat("Write.")]
        assert "approval.required" not in kinds, "each command that could run it asks"
        again, later, _ = await asked_turn(served, session=question["session"], approval="sandboxed")
        async with aclosing(again):
            assert "No sandbox holds it" in later["reason"]
            await served.client.post(f"/runs/{later['run']}/cancel")


async def test_a_pattern_that_a_person_chose_covers_calls_like_it(tmp_path: Path) -> None:
    script = [WRITE, "```write_file\nnote.txt\nsecond\n```", "Done."]
    async with asyncio.timeout(30), serving(tmp_path, Scripted(script)) as served:
        turn, _, path = await asked_turn(served)
        async with aclosing(turn):
            useless = {"decision": "approve", "scope": "session", "pattern": {"path": "note*"}}
            refused = await served.client.post(path, json=useless)
            assert refused.status_code == 422 and "content, path" in refused.json()["error"]["message"]
            pattern = {"path": "note*", "content": "*"}
            await served.client.post(path, json={"decision": "approve", "scope": "session", "pattern": pattern})
            kinds = [event["type"] for event in await rest_of(turn)]
    assert kinds.count("tool.finished") == 2 and "approval.required" not in kinds
    assert note(tmp_path).read_text() == "second"


async def test_arguments_that_a_person_changed_are_run_shown_and_told(tmp_path: Path) -> None:
    provider = Scripted(AGAIN)
    async with asyncio.timeout(30), serving(tmp_path, provider) as served:
        turn, _, path = await asked_turn(served)
        async with aclosing(turn):
            wrong = await served.client.post(path, json={"decision": "approve", "arguments": {"path": 3}})
            assert (wrong.status_code, wrong.json()["error"]["code"]) == (422, "unfit_arguments")
            changed = {"path": "note.txt", "content": "changed"}
            answer = await served.client.post(path, json={"decision": "approve", "arguments": changed})
            assert answer.json()["edited"] == changed
            events = await rest_of(turn)
    assert events[0]["arguments"] == changed and events[1]["arguments"] == changed
    assert note(tmp_path).read_text() == "changed"
    assert any("local changed the arguments to" in message.text for message in provider.requests[-1].messages)


@pytest.mark.parametrize("mode", ["ask", "deny"])
async def test_a_marker_hides_no_words_from_the_person(tmp_path: Path, mode: str) -> None:
    hidden = "```bash\n#!bg id > f\nls\n```"
    model = Scripted([hidden, "Done."])
    allowed = serving(tmp_path, model, unsafe_no_sandbox="true", allowed_commands="ls *")
    async with asyncio.timeout(30), allowed as served:
        async with aclosing(served.turn(message="List.", approval=mode)) as turn:
            if mode == "ask":
                question = await until(turn, "run.started") | await until(turn, "approval.required")
                assert question["arguments"] == {"command": "id > f\nls", "background": True}
                path = f"/runs/{question['run']}/approvals/{question['call']}"
                await served.client.post(path, json={"decision": "deny"})
            kinds = [event["type"] for event in await rest_of(turn)]
        assert served.services.jobs.listed("local") == []
    assert "tool.rejected" in kinds and "tool.started" not in kinds and not (tmp_path / "work" / "f").exists()


async def test_an_edit_comes_through_the_same_door(tmp_path: Path) -> None:
    written, marked = "```bash\ntouch one\n```", {"command": "#!bg\n#!bg\ntouch two"}
    meant = {"command": "touch two", "background": True}
    async with asyncio.timeout(30), serving(tmp_path, Scripted([written, "Done."]), unsafe_no_sandbox="true") as served:
        async with aclosing(served.turn(message="Go.", approval="ask")) as turn:
            asked_for = await until(turn, "run.started") | await until(turn, "approval.required")
            path = f"/runs/{asked_for['run']}/approvals/{asked_for['call']}"
            answer = await served.client.post(path, json={"decision": "approve", "arguments": marked})
            resolved, started = await until(turn, "approval.resolved"), await until(turn, "tool.started")
            await rest_of(turn)
        [job] = served.services.jobs.listed("local")
    assert answer.json()["edited"] == resolved["arguments"] == started["arguments"] == meant
    assert job.command == "touch two"


@pytest.mark.usefixtures("replayed")
async def test_nobody_decided_in_time(tmp_path: Path) -> None:
    provider = Scripted(AGAIN)
    async with asyncio.timeout(30), serving(tmp_path, provider, approval_time_limit_s="1") as served:
        turn, _, path = await asked_turn(served)
        async with aclosing(turn):
            events = await rest_of(turn)
        late = await served.client.post(path, json={"decision": "approve"})
        assert (late.status_code, late.json()["error"]["code"]) == (410, "approval_expired")
    assert events[0]["decision"] == "expired" and events[0]["by"] == "nobody"
    assert events[-1]["reason"] == "answered" and not note(tmp_path).exists()
    assert any("nobody decided within 1 s" in message.text for message in provider.requests[-1].messages)


async def test_cancelling_the_run_withdraws_the_question(tmp_path: Path) -> None:
    async with asyncio.timeout(30), serving(tmp_path, Scripted(AGAIN)) as served:
        turn, question, path = await asked_turn(served)
        async with aclosing(turn):
            await served.client.post(f"/runs/{question['run']}/cancel")
            events = await rest_of(turn)
        assert [event["type"] for event in events] == ["approval.resolved", "run.finished"]
        assert events[0]["decision"] == "withdrawn"
        assert (await served.client.post(path, json={"decision": "approve"})).status_code == 409


async def test_unattended_runs_are_refused_what_would_ask(tmp_path: Path) -> None:
    rules = json.dumps([{"match": "write_file", "approval": "always"}])
    forged = '<tool_call>{"name": "write_file", "arguments": {"path": "note.txt", "content": "x"}}</tool_call>'
    async with asyncio.timeout(30), serving(tmp_path, Scripted([forged, "Done."]), tools=rules) as served:
        events = await served.chat("Write.", approval="deny")
    assert "write_file" not in events[0]["tools"]
    [rejected] = [event for event in events if event["type"] == "tool.rejected"]
    assert "does not ask for approval" in rejected["reason"] and not note(tmp_path).exists()


@pytest.mark.usefixtures("replayed")
async def test_a_pending_approval_survives_a_restart(tmp_path: Path) -> None:
    provider = Scripted(AGAIN)
    async with asyncio.timeout(30), serving(tmp_path, provider) as served:
        turn, question, path = await asked_turn(served)
    await turn.aclose()
    async with asyncio.timeout(30), serving(tmp_path, provider) as served:
        [listed] = (await served.client.get("/approvals")).json()["approvals"]
        assert listed["call"] == question["call"] and not note(tmp_path).exists()
        assert (await served.client.post(path, json={"decision": "approve"})).status_code == 200
        await served.services.runs.ended(question["run"])
        events = await served.events(question["run"])
    kinds = [event["type"] for event in events]
    assert kinds.count("run.started") == 1 and kinds.count("run.finished") == 1 and kinds[-1] == "run.finished"
    assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
    assert note(tmp_path).read_text() == "first" and events[-1]["rounds"] == 2


async def test_the_audit_has_every_decision(tmp_path: Path) -> None:
    async with asyncio.timeout(30), serving(tmp_path, Scripted(AGAIN)) as served:
        turn, question, path = await asked_turn(served)
        async with aclosing(turn):
            await served.client.post(path, json={"decision": "approve"})
            await rest_of(turn)
        rows = (await served.client.get("/audit")).json()["audit"]
    assert [(row["action"], row["decision"], row["by"]) for row in rows] == [
        ("write_file", "approved", "local"),
        ("write_file", "ask", "mode"),
    ]
    assert {row["call"] for row in rows} == {question["call"]} and len({row["fingerprint"] for row in rows}) == 1


async def answer_again(
    turn: AsyncGenerator[dict[str, Any], None], served: Served, path: str
) -> tuple[dict[str, Any], str]:
    """Approve, and the next question, which has an id of its own."""
    assert (await served.client.post(path, json={"decision": "approve"})).status_code == 200
    assert (await until(turn, "approval.resolved"))["decision"] == "approved"
    question = await until(turn, "approval.required")
    return question, f"{path.rpartition('/')[0]}/{question['call']}"


@pytest.mark.parametrize("there", [None, "what the person saw"])
async def test_a_yes_over_a_file_that_has_changed_since_asks_again(tmp_path: Path, there: str | None) -> None:
    async with asyncio.timeout(30), serving(tmp_path, Scripted(AGAIN)) as served:
        if there is not None:
            note(tmp_path).write_text(there)
        turn, question, path = await asked_turn(served)
        async with aclosing(turn):
            note(tmp_path).write_text("somebody else's work")
            again, other_path = await answer_again(turn, served, path)
            assert note(tmp_path).read_text() == "somebody else's work"
            assert again["call"] == f"{question['call']}~2" and again["arguments"] == question["arguments"]
            assert "is not what it was" in again["reason"] and question["reason"] in again["reason"]
            assert (await served.client.post(path, json={"decision": "approve"})).status_code == 409  # of the old one
            [listed] = (await served.client.get("/approvals")).json()["approvals"]
            assert listed["call"] == again["call"]
            assert (await served.client.post(other_path, json={"decision": "approve"})).status_code == 200
            events = await rest_of(turn)
    assert [event["type"] for event in events][:2] == ["approval.resolved", "tool.started"]
    assert events[1]["call"] == question["call"] and events[-1]["reason"] == "answered"
    assert note(tmp_path).read_text() == "first"


@pytest.mark.usefixtures("replayed")
async def test_a_file_that_never_stays_the_same_is_not_written(tmp_path: Path) -> None:
    model = Scripted(AGAIN)
    async with asyncio.timeout(30), serving(tmp_path, model) as served:
        turn, _, path = await asked_turn(served)
        async with aclosing(turn):
            for number in (1, 2):
                note(tmp_path).write_text(f"change {number}")
                _, path = await answer_again(turn, served, path)
            note(tmp_path).write_text("change 3")
            await served.client.post(path, json={"decision": "approve"})
            events = await rest_of(turn)
    assert [event["type"] for event in events][:2] == ["approval.resolved", "tool.rejected"]
    assert "changed 3 times" in events[1]["reason"] and note(tmp_path).read_text() == "change 3"
    assert any("changed 3 times" in message.text for message in model.requests[-1].messages)


@pytest.mark.usefixtures("replayed")
async def test_changed_arguments_over_a_file_that_has_changed_ask_again(tmp_path: Path) -> None:
    async with asyncio.timeout(30), serving(tmp_path, Scripted(AGAIN)) as served:
        turn, question, path = await asked_turn(served)
        async with aclosing(turn):
            note(tmp_path).write_text("somebody else's work")
            wish = {"decision": "approve", "arguments": {"path": "note.txt", "content": "mine"}}
            await served.client.post(path, json=wish)
            again = await until(turn, "approval.required")
            assert note(tmp_path).read_text() == "somebody else's work" and again["arguments"] == question["arguments"]
            await served.client.post(f"{path}~2", json=wish)
            await rest_of(turn)
    assert note(tmp_path).read_text() == "mine"


async def test_an_edit_is_bound_to_the_file_that_it_changes(tmp_path: Path) -> None:
    edit = '<tool_call>{"name": "edit_file", "arguments": {"path": "note.txt", "old": "a", "new": "b"}}</tool_call>'
    async with asyncio.timeout(30), serving(tmp_path, Scripted([edit, "Done."])) as served:
        note(tmp_path).write_text("a\nharmless\n")
        turn, _, path = await asked_turn(served)
        async with aclosing(turn):
            note(tmp_path).write_text("a\nsomething else\n")
            _, path = await answer_again(turn, served, path)
            assert note(tmp_path).read_text() == "a\nsomething else\n"
            await served.client.post(path, json={"decision": "approve"})
            await rest_of(turn)
    assert note(tmp_path).read_text() == "b\nsomething else\n"


async def test_a_question_shows_what_a_write_would_change(tmp_path: Path) -> None:
    """Compared with the file as it is, bound to what was asked, and without what its owner may not be sent."""
    edit = "```edit_file\nnote.txt\nold\nnew\n```"
    hidden = "```write_file\n.env\nKEY=2\n```"
    script = [WRITE, edit, edit, hidden, "```write_file\nraw.bin\nx\n```", "Done."]
    async with asyncio.timeout(30), serving(tmp_path, Scripted(script)) as served:
        turn, question, path = await asked_turn(served)

        async def shown(at: str) -> dict[str, Any]:
            answer = await served.client.get(f"{at}/preview")
            assert answer.status_code == 200, answer.text
            return dict(answer.json())

        async with aclosing(turn):
            preview = await shown(path)
            assert (preview["change"], preview["path"], preview["current"]) == ("create", "note.txt", True)
            assert preview["diff"] is None and preview["size"] is None
            note(tmp_path).write_text("zeroth\n")
            assert not (await shown(path))["current"]  # what is decided on is not what is there
            seen = list[dict[str, Any]]()
            for before in (None, "one\nold\ntwo\n", "other\n", None, None):
                if before:
                    note(tmp_path).write_text(before)
                (tmp_path / "work/.env").write_text("KEY=1")
                (tmp_path / "work/raw.bin").write_bytes(b"\xff\0")
                await served.client.post(path, json={"decision": "approve" if before is None and not seen else "deny"})
                question = await until(turn, "approval.required")
                path = f"/runs/{path.split('/')[2]}/approvals/{question['call']}"
                seen.append(await shown(path))
            again, changed, failing, private, binary = seen
            assert (again["change"], again["lines"], again["current"]) == ("replace", 1, True)
            assert "-zeroth\n+first" in again["diff"]
            assert (changed["change"], changed["lines"]) == ("edit", 3) and "-old\n+new" in changed["diff"]
            assert failing["change"] == "fail" and "old is not in note.txt" in failing["note"]
            assert (private["change"], private["diff"], private["size"]) == ("replace", None, 5)
            assert "hold secrets" in private["note"] and "not text" in binary["note"] and binary["diff"] is None
            gone = await served.client.get(f"{path}x/preview")
            assert gone.status_code == 404
            await served.client.post(path, json={"decision": "deny"})
