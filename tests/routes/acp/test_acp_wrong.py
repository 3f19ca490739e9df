"""`dragoman acp` with editors and models that send what does not fit, and with windows that get in each other's way."""

from __future__ import annotations

import asyncio
import os
import socket
from contextlib import AsyncExitStack, closing
from pathlib import Path
from typing import Any

import pytest
from acp.exceptions import RequestError
from acp.stdio import _WritePipeProtocol

from app.models.scripted import Pause, Scripted
from routes.acp.editor import LONGEST, Editor
from routes.acp.updates import Updates
from tests.support.acp.editor import WRITE, Answer, ask, editing, session, url_of
from tests.support.models.replies import native_call
from tests.support.server.approvals import note
from tests.support.server.serving import serving

pytestmark = pytest.mark.anyio
OUTCOMES: list[Any] = ["allowed", ["once"], {"outcome": "selected", "optionId": ["once"]}, {"outcome": "selected"}]


@pytest.mark.parametrize("outcome", OUTCOMES)
async def test_an_answer_of_another_form_allows_nothing_and_ends_nothing(tmp_path: Path, outcome: Any) -> None:
    async def answer(_: dict[str, Any]) -> dict[str, Any]:
        return {"outcome": outcome}

    answers: dict[str, Answer] = {"session/request_permission": answer}
    async with (
        serving(tmp_path, Scripted([[WRITE], ["Denied."]])) as served,
        editing(tmp_path, "--url", url_of(served), answers=answers) as (editor, _),
    ):
        name = await session(editor, tmp_path)
        await editor.agent.set_session_mode(name, "ask")
        assert await ask(editor, name, "Write.") == "end_turn"
        assert editor.text() == "Denied." and not note(tmp_path).exists()


async def test_a_call_of_the_editor_s_tools_has_the_declared_arguments_only(tmp_path: Path) -> None:
    project = tmp_path / "elsewhere"
    project.mkdir()
    contents = {"a.py": "x = 1", "lone": "\ud800", "longer": "x" * (1 << 21), "endless": "x" * LONGEST}
    asked = list[dict[str, Any]]()

    async def read(params: dict[str, Any]) -> dict[str, Any]:
        asked.append(params)
        return {"content": contents[Path(params["path"]).name]}

    paths = {"a.py": "x = 1", "a\0b": "outside of the project", "lone": "?", "longer": "Read it by lines"}
    paths |= {"endless": "too long"}
    more = {"sessionId": "acp-other", "method": "fs/write_text_file"}
    calls = [[native_call("editor_read_file", path=path, **more)] for path in paths]
    script = Scripted([*calls, ["Done."]])
    answers: dict[str, Answer] = {"fs/read_text_file": read}
    async with (
        serving(tmp_path, script) as served,
        editing(tmp_path, "--url", url_of(served), answers=answers, capabilities={"fs": {"readTextFile": True}}) as (
            editor,
            _,
        ),
    ):
        name = (await editor.agent.new_session(str(project))).session_id
        assert await ask(editor, name, "Read.") == "end_turn" and editor.text() == "Done."
    assert {one["sessionId"] for one in asked} == {name} and len(asked) == 4
    results = [one.text for one in script.requests[-1].messages if one.role == "tool"]
    for result, words in zip(results, paths.values(), strict=True):
        assert words in result


DIFFS = [("write_file", "said"), ("editor_write_file", "said"), ("edit_file", "shown")]


@pytest.mark.parametrize(("name", "new"), DIFFS)
def test_the_diff_of_a_call_is_what_its_tool_would_write(name: str, new: str) -> None:
    given = {"path": "a.py", "content": "said", "new": "shown", "old": 5}
    [diff] = Updates(Path("/work"), {}).described("c1", name, given)["content"]
    assert (diff["newText"], diff["oldText"]) == (new, None)


async def test_a_session_that_answers_is_not_loaded_over_itself(tmp_path: Path) -> None:
    on = asyncio.Event()
    script = Scripted([["One ", Pause(on), "two."]])
    async with serving(tmp_path, script) as served, editing(tmp_path, "--url", url_of(served)) as (editor, _):
        name = await session(editor, tmp_path)
        turn = asyncio.create_task(ask(editor, name, "Go."))
        await editor.until(lambda editor: editor.text() == "One ")
        with pytest.raises(RequestError, match="answers a prompt"):
            await editor.agent.load_session(str(tmp_path / "work"), name)
        await editor.agent.cancel(name)
        assert await turn == "cancelled"
        await editor.agent.load_session(str(tmp_path / "work"), name)


async def test_a_run_under_way_is_shown_once_however_often_it_is_loaded(tmp_path: Path) -> None:
    on = asyncio.Event()
    script = Scripted([["One ", Pause(on), "two."]])
    async with serving(tmp_path, script) as served, editing(tmp_path, "--url", url_of(served)) as (editor, _):
        begun = asyncio.create_task(served.client.post("/chat", json={"message": "Go.", "conversation": "acp-1"}))
        while not (await served.client.get("/sessions?conversation=acp-1")).json()["sessions"]:
            pass
        for _ in range(2):
            await editor.agent.load_session(str(tmp_path / "work"), "acp-1")
        on.set()
        await editor.until(lambda editor: "two." in editor.text())
        await begun
        await editor.agent.list_sessions()
        assert editor.text().count("two.") == 1


async def test_windows_that_are_opened_at_once_start_one_server(tmp_path: Path) -> None:
    with closing(socket.socket()) as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    async with AsyncExitStack() as windows:
        opening = [editing(tmp_path, "--port", port, environ={"DRAGOMAN_MODEL_URL": "scripted:"}) for _ in range(2)]
        editors = [(await windows.enter_async_context(one))[0] for one in opening]
        names = await asyncio.gather(*(session(one, tmp_path) for one in editors))
        assert len({*names}) == 2


async def test_a_request_that_is_taken_back_ends_no_other(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    loop = asyncio.get_running_loop()
    with os.fdopen(reading, "rb"):
        transport, protocol = await loop.connect_write_pipe(_WritePipeProtocol, os.fdopen(writing, "wb"))
        editor = Editor(asyncio.StreamReader(), asyncio.StreamWriter(transport, protocol, None, loop))
        editor.show("acp-1", {"text": "x" * (1 << 20)})  # more than the pipe takes
        waiting = [asyncio.create_task(editor.drain()) for _ in range(2)]
        done, _ = await asyncio.wait(waiting, timeout=0.01)
        assert not done
        waiting[0].cancel()
        await asyncio.wait(waiting[:1])
        assert not waiting[1].done()
        transport.abort()
        waiting[1].cancel()
