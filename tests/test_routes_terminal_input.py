"""Commands in a terminal of their own: its size, keys as signals, what is typed, and what becomes of that."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from pathlib import Path

import pytest

from app.models.scripted import Scripted
from tests.processes import all_gone, endless, until_alive
from tests.serving import serving, until

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
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, Scripted(said), pty=True) as served:
        async with aclosing(served.turn(message="Ask me.")) as turn:
            run = (await until(turn, "run.started"))["run"]
            path = f"/runs/{run}/calls/{(await until(turn, 'tool.started'))['call']}"

            async def shows(words: str) -> None:
                while words not in "\n".join((await until(turn, "tool.progress"))["tail"]):
                    pass

            async def typed(**body: object) -> int:
                return (await served.client.post(f"{path}/input", json=body)).status_code

            await shows("Name?")
            assert await typed(text="Zoë", keys=["backspace", "enter"]) == 200
            await shows("Word?")
            assert await typed(text="sesame\n") == 200
            await shows("6 characters")
            for wrong in ({}, {"text": ""}, {"keys": ["f13"]}, {"text": "x" * 1_001}):
                assert await typed(**wrong) == 422
            await until_alive(sleeper)
            assert await typed(keys=["ctrl-c"]) == 200
            finished = await until(turn, "tool.finished")
            assert all_gone(sleeper)
            lines = ["True 120 40 cat", "Name? Zo", "It is Zo.", "Word? ", "6 characters", "^Cstopped by a key"]
            assert finished["text"].splitlines() == [*lines, "[exit code 3]"]
            assert await typed(text="late") == 409
            assert (await until(turn, "tool.finished"))["text"] == "False"
            await until(turn, "run.finished")
        audit = (await served.client.get("/audit")).json()
        assert [row["why"] for row in audit["audit"] if row["decision"] == "input"] == [
            f"{size} bytes typed into its terminal" for size in (1, 7, 6)
        ]
        written = (await served.client.get(f"{path}/output?after=0")).json()["text"]
        assert "sesame" not in written and "\r\n" in written
        assert (await served.client.post(f"/runs/{run}/calls/none/input", json={"text": "x"})).status_code == 404


async def test_without_the_setting_input_is_at_its_end(tmp_path: Path) -> None:
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
