"""What an editor sees of runs of all kinds: forms, commands, pictures, plans, and servers that go away."""

from __future__ import annotations

import asyncio
import base64
import json
import socket
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import psutil
import pytest
from acp.exceptions import RequestError
from acp.helpers import (
    embedded_blob_resource,
    embedded_text_resource,
    image_block,
    resource_block,
    resource_link_block,
    text_block,
)

from app.models.scripted import Pause, Scripted
from parsing import Call
from tests.support.acp.editor import WRITE, Answer, ask, chosen, editing, session, url_of
from tests.support.models.chatting import DONE, chunk, says
from tests.support.models.pictures import png
from tests.support.models.replies import native_bash, native_call
from tests.support.models.upstream import announced, stream, upstream
from tests.support.server.approvals import note
from tests.support.server.dragoman_process import server
from tests.support.server.serving import serving

pytestmark = pytest.mark.anyio
COLOUR = native_call("ask_user", question="Which colour?", choices=["red", "blue"])
NAME = native_call("ask_user", question="What is its name?")
FORMS: dict[str, Any] = {"elicitation": {"form": {}}}


async def test_a_question_is_a_form_or_a_choice(tmp_path: Path) -> None:
    async def fill(params: dict[str, Any]) -> dict[str, Any]:
        assert params["message"] == "What is its name?" and params["mode"] == "form"
        return {"action": "accept", "content": {"answer": "Ada"}}

    async def choose(params: dict[str, Any]) -> dict[str, Any]:
        return chosen(next(one["optionId"] for one in params["options"] if one["name"] == "blue"))

    script = Scripted([[NAME], ["One."], [COLOUR], ["Two."], [NAME], ["Three."]])
    answers: dict[str, Answer] = {"elicitation/create": fill, "session/request_permission": choose}
    async with serving(tmp_path, script) as served:
        async with editing(tmp_path, "--url", url_of(served), answers=answers, capabilities=FORMS) as (editor, _):
            await ask(editor, await session(editor, tmp_path), "Ask.")
        async with editing(tmp_path, "--url", url_of(served), answers=answers) as (editor, _):
            name = await session(editor, tmp_path)
            await ask(editor, name, "Ask.")
            await ask(editor, name, "Ask.")
            assert editor.text() == "Two.Three." and len(editor.asked) == 1
    told = [request.messages[-1].text for request in script.requests]
    assert told[1] == "Ada" and told[3] == "blue" and "cannot show a form" in told[5]


async def test_a_command_shows_its_end_and_a_plan_its_steps(tmp_path: Path) -> None:
    steps = [{"step": "Count", "state": "active"}, {"step": "Rest", "state": "pending"}]
    script = Scripted([[native_call("update_plan", steps=steps)], [native_bash("seq 3; echo x > made.txt")], ["Done."]])
    async with serving(tmp_path, script) as served, editing(tmp_path, "--url", url_of(served)) as (editor, _):
        await ask(editor, await session(editor, tmp_path), "Count.")
        [plan] = editor.of("plan")
        assert [one["status"] for one in plan["entries"]] == ["in_progress", "pending"]
        shown: dict[str, Any] = {}
        for one in editor.updates:
            if "toolCallId" in one and one.get("kind", "execute") == "execute":
                shown |= one
        assert shown["title"].startswith("bash seq 3") and shown["status"] == "completed"
        assert shown["content"][0]["content"]["text"].startswith("```\n1\n2\n3")
        assert {"path": str(tmp_path / "work/made.txt")} in shown["locations"]


async def test_a_prompt_brings_files_pictures_and_a_megabyte(tmp_path: Path) -> None:
    script = Scripted([["One."], ["Two."]])
    async with serving(tmp_path, script) as served, editing(tmp_path, "--url", url_of(served)) as (editor, _):
        name, work = await session(editor, tmp_path), tmp_path / "work"
        data = base64.b64encode(png()).decode()
        blocks: list[Any] = [
            text_block("Compare "),
            resource_block(embedded_text_resource(f"file://{work}/src/a.py#L1", "print(1)\n```\n")),
            text_block(" with "),
            resource_link_block("b.py", f"file://{work}/b.py"),
            image_block(data, "image/png"),
            resource_block(embedded_blob_resource("file:///elsewhere/x.bin", base64.b64encode(b"\0x").decode())),
        ]
        assert (await editor.agent.prompt(name, blocks)).stop_reason == "end_turn"
        assert await ask(editor, name, "x" * 1_000_000) == "end_turn"
    first, second = (request.messages[-1] for request in script.requests)
    assert "Compare @src/a.py#L1 with @b.py" in first.text and "````\nprint(1)\n```\n\n````" in first.text
    assert [one.media_type for one in first.attachments] == ["image/png"] and "x.bin" in first.text
    assert len(second.text) < 2_000 and "message.txt" in second.text and "1,000,000 bytes" in second.text


async def test_a_killed_server_is_waited_for(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = str(taken.getsockname()[1])
    begun, whole = asyncio.Event(), stream(says("Whole."), chunk(finish="stop"), DONE)
    half = stream(says("Half"), then=announced(begun, hang))
    async with upstream(half, whole, chats=True) as model:
        async with server(tmp_path, model.base_url, "--port", port) as (client, process):
            url = str(client.base_url).rstrip("/")
            async with editing(tmp_path, "--url", url) as (editor, _):
                name = await session(editor, tmp_path)
                turn = asyncio.create_task(ask(editor, name, "Go."))
                await editor.until(lambda editor: editor.text() == "Half")
                process.kill()
                await process.wait()
                async with server(tmp_path, model.base_url, "--port", port):
                    assert await turn == "end_turn"
                    assert editor.text().endswith("Whole.") and editor.text().count("Half") == 1
                with pytest.raises(RequestError, match="No dragoman server answers"):
                    await ask(editor, name, "Again.")


async def hang(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
    await reader.read()


async def test_a_run_under_way_goes_on_in_another_editor(tmp_path: Path) -> None:
    asked = asyncio.Event()

    async def wait(_: dict[str, Any]) -> dict[str, Any]:
        asked.set()
        await asyncio.Event().wait()
        return {}

    script = Scripted([["I write.", WRITE], ["Done."]])
    async with serving(tmp_path, script) as served:
        answers: dict[str, Answer] = {"session/request_permission": wait}
        async with editing(tmp_path, "--url", url_of(served), answers=answers) as (editor, _):
            name = await session(editor, tmp_path)
            await editor.agent.set_config_option("mode", name, "ask")
            turn = asyncio.create_task(ask(editor, name, "Write."))
            await asked.wait()
            turn.cancel()
        async with editing(tmp_path, "--url", url_of(served)) as (editor, _):
            await editor.agent.load_session(str(tmp_path / "work"), name)
            await editor.until(lambda editor: editor.text() == "I write.Done.")
            assert [method for method, _ in editor.asked] == ["session/request_permission"]
            assert note(tmp_path).read_text() == "first"


async def test_a_plan_that_is_accepted_ends_the_plan_mode(tmp_path: Path) -> None:
    script = Scripted([[native_call("submit_plan", steps=["Write"])], [WRITE], ["Done."]])
    async with serving(tmp_path, script) as served, editing(tmp_path, "--url", url_of(served)) as (editor, _):
        name = await session(editor, tmp_path)
        options = await editor.agent.set_config_option("mode", name, "plan")
        assert options.config_options[0].current_value == "plan"
        assert await ask(editor, name, "Plan.") == "end_turn"
        assert editor.of("current_mode_update")[0]["currentModeId"] == "sandboxed"
        assert note(tmp_path).exists()


async def test_stored_prompts_are_commands(tmp_path: Path) -> None:
    script = Scripted([["One."], ["Two."]])
    async with serving(tmp_path, script) as served, editing(tmp_path, "--url", url_of(served)) as (editor, _):
        for name, words in (("review", "Review {{file}} well."), ("tidy", "Tidy up.")):
            put = await served.client.put(f"/prompts/{name}", json={"text": words})
            assert put.is_success, put.text
        name = await session(editor, tmp_path)
        await editor.until(lambda editor: editor.of("available_commands_update"))
        rows = {one["name"]: one for one in editor.of("available_commands_update")[0]["availableCommands"]}
        assert rows["review"]["input"] == {"hint": "file"} and "input" not in rows["tidy"]
        await ask(editor, name, "/review a.py")
        await ask(editor, name, "/tidy the tests")
    assert [one.messages[-1].text for one in script.requests] == ["Review a.py well.", "Tidy up.\n\nthe tests"]


async def test_a_server_is_started_where_none_answers(tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    model = {"DRAGOMAN_MODEL_URL": "scripted:"}
    async with editing(tmp_path, "--port", port, cwd=project, environ=model) as (editor, _):  # as editors start it
        new = await editor.agent.new_session(str(project))
        assert await ask(editor, new.session_id, "Hello") == "end_turn"
        assert "Hello, World!" in editor.text()
        [call] = [one for one in editor.of("tool_call_update") if one.get("status") == "completed"]
        assert call["content"] and not [*project.iterdir()]
        [child] = psutil.Process(editor.process.pid).children()
    assert not child.is_running()


async def test_windows_share_the_server_that_one_of_them_started(tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    model = {"DRAGOMAN_MODEL_URL": "scripted:"}
    async with AsyncExitStack() as first:
        one, _ = await first.enter_async_context(editing(tmp_path, "--port", port, environ=model))
        name = (await one.agent.new_session(str(tmp_path / "work"))).session_id
        assert await ask(one, name, "Hello") == "end_turn"
        async with editing(tmp_path, "--port", port, environ=model) as (two, _):
            await two.agent.load_session(str(tmp_path / "work"), name)
            assert "Hello, World!" in two.text()
            await first.aclose()
            two.updates.clear()
            assert await ask(two, name, "Again") == "end_turn" and "Hello, World!" in two.text()


async def test_a_missing_token_is_asked_for(tmp_path: Path) -> None:
    async with serving(tmp_path, Scripted([["Hi."]])) as served:
        made = await served.client.post("/tokens", json={"name": "ed", "role": "user"})
        token = made.json()["token"]
        async with editing(tmp_path, "--url", url_of(served), "--token", "dgm_wrong") as (editor, about):
            assert about.auth_methods
            with pytest.raises(RequestError, match="DRAGOMAN_TOKEN") as refused:
                await session(editor, tmp_path)
            assert refused.value.code == -32000
        async with editing(tmp_path, "--url", url_of(served), environ={"DRAGOMAN_TOKEN": token}) as (editor, _):
            await editor.agent.authenticate("token")
            new = await editor.agent.new_session(str(tmp_path / "work/people/ed"))
            assert "auto" not in json.dumps(new.model_dump())
            assert await ask(editor, new.session_id, "Hello") == "end_turn"


async def test_a_cancel_before_the_run_is_known_counts(tmp_path: Path) -> None:
    script = Scripted([["One", Pause(asyncio.Event())]])
    async with serving(tmp_path, script) as served, editing(tmp_path, "--url", url_of(served)) as (editor, _):
        name = await session(editor, tmp_path)
        turn = asyncio.create_task(ask(editor, name, "Go."))
        await asyncio.sleep(0)
        await editor.agent.cancel(name)
        assert await turn == "cancelled"


EDITOR = {"fs": {"readTextFile": True, "writeTextFile": True}, "terminal": True}


async def test_the_editor_s_tools_work_where_the_server_has_no_folder(tmp_path: Path) -> None:
    project = tmp_path / "elsewhere"
    project.mkdir()
    files = {str(project / "a.py"): "unsaved\n"}
    ended = asyncio.Event()

    async def read(params: dict[str, Any]) -> dict[str, Any]:
        return {"content": files[params["path"]]}

    async def write(params: dict[str, Any]) -> dict[str, Any]:
        files[params["path"]] = params["content"]
        return {}

    async def create(params: dict[str, Any]) -> dict[str, Any]:
        assert params["cwd"] == str(project)
        return {"terminalId": "t1"}

    async def wait(_: dict[str, Any]) -> dict[str, Any]:
        await ended.wait()
        return {"exitCode": 0}

    async def output(_: dict[str, Any]) -> dict[str, Any]:
        return {"output": "3 passed", "truncated": False, "exitStatus": {"exitCode": 0}}

    async def release(_: dict[str, Any]) -> dict[str, Any]:
        return {}

    answers: dict[str, Answer] = {"fs/read_text_file": read, "fs/write_text_file": write, "terminal/create": create}
    answers |= {"terminal/wait_for_exit": wait, "terminal/output": output, "terminal/release": release}
    outside = Call(1, "editor_read_file", {"path": "../../etc/passwd"}, "native")
    first = [native_call("editor_read_file", path="a.py"), outside]
    change = native_call("editor_write_file", path="a.py", content="changed")
    command = native_call("editor_terminal", command="make test")
    script = Scripted([first, [change], [command], ["Done."], [command], [change], ["Not allowed."]])
    async with (
        serving(tmp_path, script, approval_admin="auto") as served,  # which is the server's word, not the person's
        editing(tmp_path, "--url", url_of(served), answers=answers, capabilities=EDITOR) as (editor, _),
    ):
        name = (await editor.agent.new_session(str(project))).session_id
        turn = asyncio.create_task(ask(editor, name, "Test."))
        await editor.until(lambda editor: "'terminalId': 't1'" in str(editor.updates))
        ended.set()
        assert await turn == "end_turn" and editor.text() == "Done."
        assert files[str(project / "a.py")] == "changed"
        assert [method for method, _ in editor.asked].count("session/request_permission") == 2
        told = [one.text for one in script.requests[3].messages if one.role == "tool"]
        assert told[0] == "unsaved\n" and "outside of the project" in told[1]
        assert told[3] == "3 passed\n[exit code 0]"

        ended.clear()  # a command that is cancelled
        seen = len(editor.asked)
        turn = asyncio.create_task(ask(editor, name, "Again."))
        await editor.until(lambda editor: "terminal/wait_for_exit" in str(editor.asked[seen:]))
        await editor.agent.cancel(name)
        assert await turn == "cancelled" and editor.asked[-1][0] == "terminal/release"

        editor.answers["session/request_permission"] = refuse
        assert await ask(editor, name, "Write.") == "end_turn"
        assert "does not allow" in script.requests[-1].messages[-1].text


async def refuse(_: dict[str, Any]) -> dict[str, Any]:
    return chosen("deny")
