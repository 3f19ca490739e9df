"""`!command`: a command in the person's own shell, beside the agent, which learns of it with the next message."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import pytest

from app.models.scripted import Scripted
from routes.terminal.own_shell import FIRST, LAST, OwnShell, Ran, with_ran, without_ran
from routes.terminal.talk import own_command_of
from routes.texts import text
from tests.support.server.serving import serving
from tests.support.terminal.terminals import terminal

pytestmark = pytest.mark.anyio

LIMIT_S = 60
PROMPT = "\n>"
WAITS = "```bash\nuntil [ -e go ]; do sleep 0.01; done\n```"


@pytest.mark.parametrize("term", ["xterm-256color", "dumb"])
async def test_a_command_runs_here_and_the_agent_learns_of_it(tmp_path: Path, term: str) -> None:
    provider = Scripted(["Seen.", "Again."])
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, provider) as served:
        url = str(served.client.base_url)
        async with terminal("chat", "--url", url, home=tmp_path, term=term) as shown:
            await shown.ends_with(PROMPT)
            shown.press(f"!touch {tmp_path}/here; echo one; printf 'a\\033[2Jb\\n' >&2; [ -t 1 ] && exit 3\r")
            await shown.until("exit 3 ·")
            assert "│ one\n" in shown.shown and "│ ab\n" in shown.shown and (tmp_path / "here").exists()
            assert shown.shown.count(text("terminal.own.says", {})[:30]) == 1
            await shown.ends_with(PROMPT)
            shown.press("!trap 'exit 130' INT; echo ready; while :; do sleep 0.01; done\r")
            await shown.until("│ ready")  # a shell that is starting may lose a SIGINT
            await shown.press_until("\x03", "exit 130 ·")
            await shown.ends_with(PROMPT)
            assert provider.requests == [], "nothing of it was a message"
            shown.press("What was that?\r")
            await shown.until("Seen.")
            await shown.ends_with(PROMPT)
            shown.press("More.\r")
            await shown.until("Again.")
    said = [request.messages[-1].text for request in provider.requests]
    assert said[0].startswith("What was that?\n\n[The person ran") and said[0].count("[exit code ") == 2
    assert "\none\nab\n[exit code 3]\n</own-shell-" in said[0] and "done\nready\n[exit code 130]\n" in said[0]
    assert said[1] == "More."


async def test_a_command_that_is_being_started_can_be_stopped() -> None:
    shell = OwnShell(lambda _line: None, None)
    started = asyncio.create_task(shell.run("sleep 1000"))
    await asyncio.sleep(0)
    shell.interrupt()
    async with asyncio.timeout(LIMIT_S):
        assert (await started).code == 128 + signal.SIGKILL


async def test_during_a_run_a_command_waits_for_its_end(tmp_path: Path) -> None:
    provider = Scripted([WAITS, "Done."])
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, provider) as served:
        async with terminal("chat", "--url", str(served.client.base_url), home=tmp_path) as shown:
            await shown.ends_with(PROMPT)
            shown.press("Go.\r")
            await shown.until("▶ bash")
            shown.press("!echo mine\r")
            await shown.until(text("terminal.own.later", {}))
            assert "│ mine" not in shown.shown
            (tmp_path / "work/go").touch()
            await shown.until("│ mine")
    assert "mine" not in provider.requests[-1].messages[-1].text


def test_the_agent_gets_a_bounded_part_of_the_output_that_cannot_end_it() -> None:
    ran = Ran("yes", code=1)
    for number in range(100_000):
        ran.add("</own-shell>" if number == 1 else "x" * 5_000)
    sent = with_ran("Look.", [ran])
    assert f"[{100_000 - FIRST - LAST} lines left out]" in sent and len(sent) < 20_000
    mark = sent.splitlines()[4]
    assert sent.endswith(f"[exit code 1]\n</{mark[1:]}") and sent.count(mark[1:]) == 2
    assert without_ran(sent) == "Look." and with_ran("Look.", []) == "Look." == without_ran("Look.")


@pytest.mark.parametrize(
    ("typed", "command"),
    [("!ls", "ls"), ("! ls -l", "ls -l"), ("!", ""), (" !ls", ""), ("![x](y)", ""), ("a!b", "")],
)
def test_a_line_is_a_command_only_behind_the_mark(typed: str, command: str) -> None:
    assert own_command_of(typed) == command
