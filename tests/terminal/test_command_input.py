"""Commands in a terminal of their own: when they get one, its size, what is typed, and what becomes of that."""

from __future__ import annotations

import asyncio
import json
from contextlib import aclosing
from pathlib import Path

import pytest

from app.models.scripted import Scripted
from tests.support.sandbox.processes import all_gone, endless, until_alive
from tests.support.server.serving import serving, until

pytestmark = pytest.mark.anyio

LIMIT_S = 60


async def test_a_person_answers_a_program_that_asks(tmp_path: Path) -> None:
    sleeper = endless()
    asks = (
        "trap 'echo stopped by a key' INT\n"
        "tty=$(python3 -c 'import os; print(os.isatty(0), *os.get_terminal_size(0))'); echo \"$tty $PAGER\"\n"
        "printf 'Name? '; read name; echo \"It is $name.\"\n"
        "read -s -p 'Word? ' word; echo; echo \"${#word} characters\"\n"
        f"{sleeper}; exit 3"
    )
    said = [f"```bash\n{asks}\n```\n", "```python\nimport os; print(os.isatty(0))\n```\n", "Done."]
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, Scripted(said)) as served:
        async with aclosing(served.turn(message="Ask me.", terminal={"columns": 100, "rows": 30})) as turn:
            started = await until(turn, "run.started")
            run = started["run"]
            path = f"/runs/{run}/calls/{(await until(turn, 'tool.started'))['call']}"

            async def shows(words: str, *, hidden: bool = False) -> None:
                while True:
                    progress = await until(turn, "tool.progress")
                    if words in "\n".join(progress["tail"]) and hidden == ("hidden" in progress):
                        return

            async def typed(**body: object) -> int:
                return (await served.client.post(f"{path}/input", json=body)).status_code

            await shows("Name?")
            assert await typed(text="Zoë", keys=["backspace", "enter"]) == 200
            await shows("Word?", hidden=True)
            assert await typed(text="sesame\n") == 200
            await shows("6 characters")
            for wrong in ({}, {"text": ""}, {"keys": ["f13"]}, {"text": "x" * 1_001}):
                assert await typed(**wrong) == 422
            await until_alive(sleeper)
            assert await typed(keys=["ctrl-c"]) == 200
            finished = await until(turn, "tool.finished")
            assert all_gone(sleeper)
            lines = ["True 100 30 cat", "Name? Zo", "It is Zo.", "Word? ", "6 characters", "^Cstopped by a key"]
            assert finished["text"].splitlines() == [*lines, "[exit code 3]"]
            assert (await typed(text="late"), started["limits"]["terminal"]) == (409, "100x30")
            assert (await until(turn, "tool.finished"))["text"] == "True"
            await until(turn, "run.finished")
        audit = (await served.client.get("/audit")).json()
        assert [row["why"] for row in audit["audit"] if row["decision"] == "input"] == [
            f"{size} bytes typed into its terminal" for size in (1, 7, 6)
        ]
        written = (await served.client.get(f"{path}/output?after=0")).json()["text"]
        assert "\r\n" in written
        events = json.dumps(await served.events(run)) + written + json.dumps(audit)
        assert "sesame" not in events
        assert (await served.client.post(f"/runs/{run}/calls/none/input", json={"text": "x"})).status_code == 404


WIDE = {"columns": 120, "rows": 25}
KINDS = "```bash\n[ -t 0 ] && echo terminal || echo pipe; until [ -e go ]; do sleep 0.01; done\n```\n"
SIZE = {"columns": 80, "rows": 24}


async def test_a_terminal_is_resized_while_its_command_runs(tmp_path: Path) -> None:
    waits = "trap 'stty size; exit' WINCH; echo ready; until [ -e go ]; do sleep 0.01; done"
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, Scripted([f"```bash\n{waits}\n```\n", "Done."])) as served:
        async with aclosing(served.turn(message="Wait.", terminal=SIZE)) as turn:
            run = (await until(turn, "run.started"))["run"]
            path = f"/runs/{run}/calls/{(await until(turn, 'tool.started'))['call']}"
            await until(turn, "tool.progress")
            wrong = [
                await served.client.post(f"{path}/terminal", json=body) for body in ({}, {"columns": 9, "rows": 9})
            ]
            assert [answer.status_code for answer in wrong] == [422, 422]
            assert (await served.client.post(f"{path}/terminal", json=WIDE)).json() == {"run": run, **WIDE} | {
                "call": path.rpartition("/")[2]
            }
            assert "25 120" in (await until(turn, "tool.finished"))["text"], "the program was signalled"
            late = await served.client.post(f"{path}/terminal", json=WIDE)
            assert (late.status_code, late.json()["error"]["code"]) == (409, "no_terminal")
        written = (await served.client.get(f"{path}/output?after=0")).json()["text"]
        assert "ready\r\n\x1b[8;25;120t25 120" in written, "a replay knows where the size changed"
        assert (await served.client.post(f"/runs/{run}/calls/none/terminal", json=WIDE)).status_code == 404


async def test_a_run_that_is_left_gets_no_more_terminals(tmp_path: Path) -> None:
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, Scripted([KINDS, KINDS, "Done."])) as served:
        async with aclosing(served.turn(message="Look.", terminal=SIZE)) as turn:
            run = (await until(turn, "run.started"))["run"]
            await until(turn, "tool.progress")
        while not served.services.runs.is_left(run):
            await served.client.get(f"/runs/{run}")
        (tmp_path / "work/go").touch()
        await served.services.runs.ended(run)
        events = await served.events(run)
        assert [event["text"] for event in events if event["type"] == "tool.finished"] == ["terminal", "pipe"]


async def test_a_stopped_call_is_audited_and_a_size_that_no_window_has_is_refused(tmp_path: Path) -> None:
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, Scripted([KINDS, "Done."]), pty="off") as served:
        for wrong in ({"columns": 19, "rows": 24}, {"columns": 80, "rows": 201}, {"columns": 80}, "80x24"):
            body = {"message": "x", "terminal": wrong}
            refused = await served.client.post("/chat", json=body)
            assert refused.status_code == 422 and "terminal" in refused.json()["error"]["message"]
        async with aclosing(served.turn(message="Look.", terminal=SIZE)) as turn:
            started = await until(turn, "run.started")
            assert "terminal" not in started["limits"]
            call = (await until(turn, "tool.started"))["call"]
            await until(turn, "tool.progress")
            path = f"/runs/{started['run']}/calls/{call}/cancel"
            assert (await served.client.post(path)).json()["stopped"]
            assert (await until(turn, "tool.finished"))["text"].startswith("pipe\n[stopped by the person")
            assert not (await served.client.post(path)).json()["stopped"]
            await until(turn, "run.finished")
        audit = (await served.client.get("/audit")).json()["audit"]
        [stop] = [row for row in audit if row["decision"] == "stop"]
        assert (stop["action"], stop["by"], stop["call"]) == ("bash", "local", call)


async def test_without_a_terminal_input_is_at_its_end(tmp_path: Path) -> None:
    said = ["```bash\ncat; echo read; until [ -e go ]; do sleep 0.01; done\n```\n", "Done."]
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, Scripted(said)) as served:
        async with aclosing(served.turn(message="Read.")) as turn:
            run = (await until(turn, "run.started"))["run"]
            call = (await until(turn, "tool.started"))["call"]
            await until(turn, "tool.progress")
            answer = await served.client.post(f"/runs/{run}/calls/{call}/input", json={"text": "x"})
            assert (answer.status_code, answer.json()["error"]["code"]) == (409, "no_terminal")
            (tmp_path / "work/go").touch()
            assert (await until(turn, "tool.finished"))["text"] == "read"
