"""Approvals in the terminal client, on real terminals: what is asked, what answers do, what ends a question."""

from __future__ import annotations

import asyncio
import signal
import termios
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from app.models.scripted import Pause, Reply, Scripted
from tests.support.server.serving import Served, serving
from tests.support.terminal.terminals import Terminal, piped, terminal

pytestmark = pytest.mark.anyio

LIMIT_S = 60
WRITE = "```write_file\nnote.txt\nfirst\n```"
AGAIN: tuple[Reply, ...] = (WRITE, "Done.", WRITE, "Done again.")
ASKED = "answer:"
PROMPT = "\n>"


@dataclass(slots=True)
class Scene:
    served: Served
    terminal: Terminal
    provider: Scripted
    note: Path

    def told(self) -> str:
        """Everything that the model has read."""
        return "\n".join(message.text for message in self.provider.requests[-1].messages)

    async def decision(self) -> tuple[str, str]:
        """The run and the call that wait, for somebody else to decide."""
        [row] = (await self.served.client.get("/approvals")).json()["approvals"]
        return row["run"], row["call"]


@asynccontextmanager
async def scene(
    folder: Path,
    script: Sequence[Reply] = AGAIN,
    *,
    columns: int = 80,
    term: str = "xterm-256color",
    limit_s: int = 300,
) -> AsyncGenerator[Scene, None]:
    """A conversation whose first message has been sent, to a server that asks before anything is written."""
    provider = Scripted(script)
    server = serving(folder, provider, approval_admin="ask", approval_time_limit_s=str(limit_s))
    async with asyncio.timeout(LIMIT_S), server as served:
        url = str(served.client.base_url)
        async with terminal("chat", "--url", url, columns=columns, term=term, home=folder) as shown:
            await shown.ends_with(PROMPT)
            shown.press("Write.\r")
            yield Scene(served, shown, provider, folder / "work" / "note.txt")


ARGUMENTS, REASON, NO_JSON = "arguments:", "Reason:", "This is not JSON"
ARROWS = "\x1b[B\x1b[B\x1b[B\x1b[B"
EMPTIED = "\x01\x0b"
# Keys and what the window shows then, the last keys, what it shows at the end, what the file holds.
ANSWERS: dict[str, tuple[list[tuple[str, str]], str, str, str | None]] = {
    "y": ([], "y", "✓ write_file was approved by you in the terminal.", "first"),
    "Enter": ([], "\r", "✓ write_file was approved by you in the terminal.", "first"),
    "s": ([], "s", "✓ write_file was approved by you in the terminal for this conversation.", "first"),
    "for good": ([], "1", "✓ write_file was approved by you in the terminal from now on.", "first"),
    "n": ([], "n", "✗ write_file was denied by you in the terminal.", None),
    "by arrows": ([(ARROWS, "❯ n  no")], "\r", "✗ write_file was denied by you in the terminal.", None),
    "arrows around": (
        [("\x1b[A", "❯ 1  yes, and")],
        "\x1b[B\r",
        "✓ write_file was approved by you in the te",
        "first",
    ),
    "a note": (
        [("r", REASON)],
        "wrong folder\r",
        "✗ write_file was denied by you in the terminal: wrong folder",
        None,
    ),
    "no note after all": ([("r", REASON), ("\x1b", ASKED)], "n", "✗ write_file was denied by you in the termi", None),
    "Ctrl-D": ([], "\x04", "✗ write_file was denied by you in the terminal.", None),
    "a word that was begun": (
        [("my" + ARROWS, "❯ n  no")],
        "\r",
        "✗ write_file was denied by you in the terminal.",
        None,
    ),
    "nonsense first": ([], "9x?Y\x1b[Z\x1b[200~y\x1b[201~\t\r", "✓ write_file was approved by you in the te", "first"),
    "changed": (
        [("e", ARGUMENTS)],
        EMPTIED + '{"path": "note.txt", "content": "mine"}\r',
        "✓ write_file was approved by you in the terminal, with other arguments.",
        "mine",
    ),
    "changed, not well at first": (
        [("e", ARGUMENTS), (EMPTIED + '{"path": "note.txt", "content": "mine"\r', NO_JSON)],
        "}\r",
        "✓ write_file was approved by you in the terminal, with other arguments.",
        "mine",
    ),
    "changed to what cannot run": (
        [("e", ARGUMENTS), (EMPTIED + '{"path": 3}\r', ASKED)],
        "n",
        "✗ write_file was denied by you in the terminal.",
        None,
    ),
    "back from changing": (
        [("e", ARGUMENTS), (f"{EMPTIED}\r", ASKED)],
        "n",
        "✗ write_file was denied by you in the terminal.",
        None,
    ),
}


@pytest.mark.parametrize("answer", ANSWERS)
async def test_each_answer_does_what_it_says(answer: str, tmp_path: Path) -> None:
    steps, last, told, written = ANSWERS[answer]
    async with scene(tmp_path) as at:
        shown = await at.terminal.ends_with(ASKED)
        assert "? write_file wants to run." in shown and "  content:\n  │ first" in shown
        for keys, text in steps:
            await at.terminal.press_until(keys, text)
        at.terminal.press(last)
        shown = await at.terminal.ends_with(PROMPT)
    assert told in shown and ASKED not in shown and ARGUMENTS not in shown
    assert (at.note.read_text() if at.note.exists() else None) == written
    if answer == "a note":
        assert "local denied it, saying: wrong folder" in at.told()


async def test_yes_for_the_session_asks_no_second_time(tmp_path: Path) -> None:
    async with scene(tmp_path) as at:
        await at.terminal.ends_with(ASKED)
        at.terminal.press("s")
        await at.terminal.ends_with(PROMPT)
        at.terminal.press("Again.\r")
        shown = await at.terminal.until("Done again.")
    assert shown.count("wants to run") == 1


async def test_a_pattern_begins_as_this_very_call_and_covers_what_the_person_makes_of_it(tmp_path: Path) -> None:
    other = "```write_file\nnote.txt\nsecond\n```"
    async with scene(tmp_path, (WRITE, "Done.", other, "Done again.")) as at:
        await at.terminal.ends_with(ASKED)
        at.terminal.press("p")
        await at.terminal.until('pattern: {"path": "note.txt", "content": "first"}')
        at.terminal.press('\x7f\x7f\x7f\x7f\x7f\x7f\x7f*"}\r')
        await at.terminal.ends_with(PROMPT)
        at.terminal.press("Again.\r")
        shown = await at.terminal.until("Done again.")
    assert shown.count("wants to run") == 1 and at.note.read_text() == "second"


async def test_a_decision_elsewhere_ends_the_question(tmp_path: Path) -> None:
    async with scene(tmp_path) as at:
        await at.terminal.ends_with(ASKED)
        await at.terminal.press_until("r", REASON)
        at.terminal.press("half a no")
        await at.terminal.until("half a no")
        run, call = await at.decision()
        await at.served.client.post(f"/runs/{run}/approvals/{call}", json={"decision": "approve"})
        shown = await at.terminal.ends_with(PROMPT)
        assert "✓ write_file was approved by you over HTTP." in shown
        assert ASKED not in shown and "half a no" not in shown
        at.terminal.press("Again.\r")
        await at.terminal.ends_with(ASKED)


async def test_a_question_ends_when_its_time_is_over(tmp_path: Path) -> None:
    async with scene(tmp_path, limit_s=1) as at:
        await at.terminal.until("no decision in time.")
        shown = await at.terminal.ends_with(PROMPT)
    assert "✗ write_file did not run: no decision in time." in shown
    assert ASKED not in shown and not at.note.exists()


async def test_ctrl_c_stops_the_run_that_asks(tmp_path: Path) -> None:
    async with scene(tmp_path) as at:
        await at.terminal.ends_with(ASKED)
        at.terminal.press("\x03")
        shown = await at.terminal.ends_with(PROMPT)
        assert "■ write_file did not run: the approval was withdrawn" in shown and ASKED not in shown
        assert "■ Stopped." in shown and not at.note.exists()
        at.terminal.press("\x03\x03")  # in one read: neither is lost
        await at.terminal.process.wait()
        assert at.terminal.process.returncode == 130


async def test_undo_shows_what_the_last_turn_has_changed_and_restores_it(tmp_path: Path) -> None:
    async with scene(tmp_path) as at:
        await at.terminal.ends_with(ASKED)
        at.terminal.press("y")
        await at.terminal.ends_with(PROMPT)
        assert at.note.exists()
        at.terminal.press("/changes other\r")
        await at.terminal.ends_with("did not change other. It changed: note.txt." + PROMPT)
        at.terminal.press("/changes note.txt\r")
        await at.terminal.until("created: note.txt")
        await at.terminal.ends_with(PROMPT)
        at.terminal.press("/undo\r")
        shown = await at.terminal.ends_with("[y/N]")
        assert "created: note.txt" in shown and "+first" in shown
        at.terminal.press("n\r")
        await at.terminal.ends_with(PROMPT)
        at.note.write_text("by a person")
        at.terminal.press("/undo\r")
        await at.terminal.ends_with("[y/N]")
        at.terminal.press("y\r")
        shown = await at.terminal.ends_with(PROMPT)
        assert "note.txt: it has changed since" in shown and at.note.exists()
        at.note.write_text("first")
        at.terminal.press("/undo\r")
        await at.terminal.ends_with("[y/N]")
        at.terminal.press("y\r")
        shown = await at.terminal.ends_with(PROMPT)
        assert "Undone." in shown and not at.note.exists()
        at.terminal.press("/undo\r")
        await at.terminal.ends_with("has changes that can be undone." + PROMPT)


@pytest.mark.parametrize(("sent", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, None)])
async def test_a_signal_while_it_asks_leaves_the_terminal_as_it_was(
    sent: signal.Signals, code: int | None, tmp_path: Path
) -> None:
    async with scene(tmp_path) as at:
        await at.terminal.ends_with(ASKED)
        asking = at.terminal.modes[3]
        assert not asking & termios.ICANON
        at.terminal.process.send_signal(sent)
        if code is None:
            await at.terminal.ends_with(PROMPT)
            at.terminal.press("\x04")
        assert await at.terminal.process.wait() == (code or 0)
        assert at.terminal.modes[3] & termios.ICANON and at.terminal.modes[3] & termios.ECHO


async def test_what_was_typed_before_the_question_is_no_answer_to_it(tmp_path: Path) -> None:
    go_on = asyncio.Event()
    async with scene(tmp_path, (("So,\n\n", Pause(go_on), WRITE), "Done.")) as at:
        await at.terminal.until("So,")
        at.terminal.press("yes\r")
        await at.terminal.until("Queued: the agent reads it")
        go_on.set()
        await at.terminal.ends_with(ASKED)
        at.terminal.press("n")
        shown = await at.terminal.ends_with(PROMPT)
    assert "denied" in shown and "approved" not in shown and not at.note.exists()
    assert at.provider.requests[-1].messages[-1].text == "yes"  # but a message


async def test_a_window_of_40_columns_keeps_every_row_behind_its_gutter(tmp_path: Path) -> None:
    forged = "x" + " " * 50 + "? bash wants to run." + " " * 50 + "\u202e\u200b\x1b[2Jy"
    script = (f"```write_file\nnote.txt\n{forged}\n```", "Done.")
    async with scene(tmp_path, script, columns=40) as at:
        shown = await at.terminal.ends_with(ASKED)
        at.terminal.press("n")
        await at.terminal.ends_with(PROMPT)
    rows = shown.split("  content:\n")[1].split("\n  This creates")[0].splitlines()
    assert len(rows) > 3 and all(row.startswith("  │") for row in rows)
    assert "<U+202E><U+200B><U+001B>[2Jy" in "".join(row.removeprefix("  │ ") for row in rows)


async def test_a_dumb_terminal_asks_too(tmp_path: Path) -> None:
    async with scene(tmp_path, term="dumb") as at:
        shown = await at.terminal.ends_with(ASKED)
        assert "pattern" not in shown
        at.terminal.press("p\r")
        await at.terminal.until("Answer with one of the letters above")
        await at.terminal.ends_with(ASKED)
        at.terminal.press("y\r")
        await at.terminal.ends_with(PROMPT)
    assert at.note.read_text() == "first"


async def test_without_a_terminal_what_asks_is_denied(tmp_path: Path) -> None:
    provider = Scripted(AGAIN)
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, provider, approval_admin="ask") as served:
        chat = await piped("chat", "--url", str(served.client.base_url), "Write.", home=tmp_path)
        out, err = await chat.communicate()
    assert chat.returncode == 4 and "Done." in out.decode()
    assert err.decode().count("there is no person here to ask") == 1 and "--approval" in err.decode()
    assert "write_file did not run: it needed an approval, and this run has no person to ask." in out.decode()
    assert not (tmp_path / "work" / "note.txt").exists()


async def test_without_a_terminal_a_chosen_mode_waits_for_whoever_follows_its_curl(tmp_path: Path) -> None:
    provider = Scripted(AGAIN)
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, provider) as served:
        url = str(served.client.base_url)
        chat = await piped("chat", "--url", url, "--approval", "ask", "Write.", home=tmp_path)
        assert chat.stdout and chat.stderr
        told = [(await chat.stderr.readline()).decode() for _ in range(3)]
        assert "waits for approval" in told[0] and "deny" in told[2]
        curl = await asyncio.create_subprocess_exec(
            "bash", "-c", f"{told[1].strip()} -s", stdout=asyncio.subprocess.DEVNULL
        )
        assert await curl.wait() == 0
        out, err = await chat.communicate()
    assert (chat.returncode, err) == (0, b"") and "approved by you" in out.decode()
    assert (tmp_path / "work" / "note.txt").read_text() == "first"
