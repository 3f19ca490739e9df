"""The terminal client in scripts, its Markdown, its pastes and its history."""

from __future__ import annotations

import asyncio
import io
import json
import re
import stat
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prompt_toolkit.key_binding import KeyPress
from prompt_toolkit.keys import Keys
from rich.console import Console

from app.core.provider import ProviderFailed
from app.models.scripted import Raise, Scripted
from routes.terminal.history import StoredHistory
from routes.terminal.keyboard import Keyboard, Pastes
from routes.terminal.rendering.blocks import Blocks
from routes.terminal.rendering.markdown import rendered
from tests import ROOT
from tests.support.server.serving import serving
from tests.support.terminal.terminals import environment, piped, terminal

LIMIT_S = 60
SAMPLE = (
    "# T\npara\n- a\n- b\n\n  ```py\n  x\n\n- no\n  ```\n\n1. c\n> q\n\n| a |\n|---|\n| 1 |\n\n```\n- x\n\n```\nend"
)
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def blocks(pieces: list[str]) -> list[str]:
    cut = Blocks()
    return [*(block for piece in pieces for block in cut.feed(piece)), *cut.finish()]


@settings(deadline=None)
@given(st.lists(st.integers(0, len(SAMPLE))))
def test_any_slicing_gives_the_same_blocks(cuts: list[int]) -> None:
    ends = [0, *sorted(cuts), len(SAMPLE)]
    whole = blocks([SAMPLE])
    assert blocks([SAMPLE[a:b] for a, b in pairwise(ends)]) == whole
    assert len(whole) == 9


@pytest.mark.parametrize("source", ["&#27;[2Jx", "[a](b&#27;c)", "```\n&#155;x\n```", "`&#27;`", "- &#7;x"])
def test_markdown_makes_no_escape_sequence(source: str) -> None:
    console = Console(file=io.StringIO(), width=60, force_terminal=True, color_system=None)
    console.print(rendered(source))
    assert not CONTROL.search(str(getattr(console.file, "getvalue")()))  # noqa: B009


def test_a_long_paste_is_a_word_that_is_sent_whole(tmp_path: Path) -> None:
    pastes, long = Pastes(), "\r\n".join(map(str, range(120)))
    assert pastes.shown("short\rtext") == "short\ntext"
    assert pastes.shown(long) == "[pasted 120 lines]"
    assert pastes.whole("See [pasted 120 lines].") == f"See {long.replace(chr(13), '')}."
    path = tmp_path / "state" / "history"
    kept = StoredHistory(path)
    for entry in ("one", " secret", "two\nlines", "one"):
        kept.store_string(entry)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert StoredHistory(path).load_history_strings() == ["one", "two\nlines"]


@pytest.mark.anyio
async def test_scripts_get_the_answer_the_events_and_an_exit_code(tmp_path: Path) -> None:
    provider = Scripted(["```bash\necho hello\n```", "*Done.*", "Again."])
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, provider) as served:
        url = str(served.client.base_url)
        chat = await piped("chat", "--url", url, "-p", "Go.", home=tmp_path)
        out, err = await chat.communicate()
        assert (chat.returncode, out) == (0, b"*Done.*\n") and b"hello" in err
        chat = await piped("chat", "--url", url, "--json", "--continue", "Go.", home=tmp_path)
        out, _ = await chat.communicate()
        assert json.loads(out.splitlines()[-1])["type"] == "run.finished"
        assert len((await served.client.get("/sessions")).json()["sessions"]) == 1
    chat = await piped("chat", "--url", "http://127.0.0.1:9", "-p", "Go.", home=tmp_path)
    out, err = await chat.communicate()
    assert (chat.returncode, out) == (3, b"") and b"No dragoman server answers" in err


@pytest.mark.anyio
async def test_a_paste_is_one_message(tmp_path: Path) -> None:
    provider = Scripted(["Read."])
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, provider) as served:
        async with terminal("chat", "--url", str(served.client.base_url), home=tmp_path) as shown:
            await shown.ends_with("\n>")
            shown.press("\x1b[200~one\rtwo\r\x1b[201~\r")
            await shown.until("Read.")
    assert provider.requests[-1].messages[-1].text.splitlines() == ["one", "two"]


@pytest.mark.anyio
async def test_what_is_typed_at_once_or_before_the_prompt_is_not_lost(tmp_path: Path) -> None:
    provider = Scripted(["First.", "Second.", "Third."])
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, provider) as served:
        async with terminal("chat", "--url", str(served.client.base_url), home=tmp_path) as shown:
            shown.press("early\r")  # the terminal edits its lines itself as yet, and makes a line feed of Enter
            await shown.until("First.")
            shown.press("a\x1b\rb\nc\rnext\r")
            await shown.until("Third.")
    assert [request.messages[-1].text for request in provider.requests] == ["early", "a\nb\nc", "next"]


@pytest.mark.anyio
async def test_prompts_completion_files_and_a_smaller_window(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("hello")
    provider = Scripted(["Read.", "Looked at."])
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, provider) as served:
        body = {"text": "Review {{file}} and {{ file }}."}
        assert (await served.client.put("/prompts/review", json=body)).status_code == 201
        async with terminal("chat", "--url", str(served.client.base_url), lines=24, home=tmp_path) as shown:
            await shown.ends_with("\n>")
            shown.press("/pro")
            await shown.until("\n /prompt")
            shown.press("\t")
            await shown.until("> /prompt")
            shown.press(" review\r")
            await shown.ends_with("\nfile:")
            shown.press("x.py\r")
            await shown.until("Read.")
            await shown.ends_with("\n>")
            shown.resize(50, 20)
            shown.press("@~/no")
            await shown.until("\n @~/notes.txt")
            shown.press("\t")
            await shown.until("> @~/notes.txt")
            shown.press(" see.\r")
            await shown.until("Looked at.")
            assert "Attached: notes.txt (5 B)." in await shown.ends_with("\n>")
    assert provider.requests[0].messages[-1].text == "Review x.py and x.py."
    assert "[file notes.txt" in provider.requests[1].messages[-1].text


def test_a_long_paste_takes_linear_time() -> None:
    pressed: list[KeyPress] = []
    keyboard, block = Keyboard(pressed.append), "x" * 1_023 + "\n"
    keyboard.feed("a\x1b[200~b")
    for _ in range(10_240):  # the parser of prompt_toolkit takes minutes for these 10 MB
        keyboard.feed(block)
    for piece in ("\x1b[2", "J\x1b[20", "1~c"):
        keyboard.feed(piece)
    assert [press.key for press in pressed] == ["a", Keys.BracketedPaste, "c"]
    assert pressed[1].data == f"b{block * 10_240}\x1b[2J"


@pytest.mark.anyio
async def test_pipes_are_appended_and_may_be_closed(tmp_path: Path) -> None:
    long = "line\n\n" * 30_000
    provider = Scripted(["Done.", "Done.", long, long])
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, provider) as served:
        url = str(served.client.base_url)

        async def shell(script: str) -> tuple[bytes, bytes]:
            chat = f"{sys.executable} -m routes chat --url {url}"
            command = ("bash", "-c", script.replace("CHAT", chat))
            pipe, environ = asyncio.subprocess.PIPE, environment(tmp_path)
            made = await asyncio.create_subprocess_exec(*command, stdout=pipe, stderr=pipe, cwd=ROOT, env=environ)
            return await made.communicate()

        assert await shell("echo piped | CHAT -p Go.") == (b"Done.\n", b"")
        assert provider.requests[-1].messages[-1].text == "Go.\n\npiped\n"
        out, err = await shell("CHAT -p Go. >/dev/full; echo $?; CHAT -p Go. | head -1; echo ${PIPESTATUS[0]}")
        assert out == b"1\nline\n0\n" and err.count(b"\n") == 1 and b"No space left" in err
        assert await shell("CHAT Go. | head -1; echo ${PIPESTATUS[0]}") == (b"line\n0\n", b"")


@pytest.mark.anyio
async def test_one_object_has_the_result_whatever_ended_it(tmp_path: Path) -> None:
    failure = ProviderFailed("broken", "It is broken.", retryable=False)
    provider = Scripted(["```bash\necho hello\n```", "*Done.*", [Raise(failure)]])
    server = serving(tmp_path, provider, prices={"*": {"input": 1000, "output": 2000}})

    async def result(*arguments: str) -> dict[str, Any]:
        chat = await piped("chat", *arguments, "--output-format", "json", home=tmp_path)
        out, _ = await chat.communicate()
        [line] = out.splitlines()
        made: dict[str, Any] = json.loads(line)
        assert made["exit_code"] == chat.returncode and made["duration_s"] >= 0
        return made

    async with asyncio.timeout(LIMIT_S), server as served:
        url = str(served.client.base_url)
        made = await result("--url", url, "-p", "Go.")
        session, run = made["session"], (await served.client.get(f"/runs/{made['run']}")).json()
        assert (run["session"], run["usage"]["prompt_tokens"]) == (session, made["usage"]["prompt_tokens"])
        facts = [made[name] for name in ("reason", "text", "rounds", "calls", "model")]
        assert facts == ["answered", "*Done.*", 2, 1, run["model"]]
        assert made["cost"] == made["usage"]["cost"] > 0 and made["exit_code"] == 0 and "error" not in made
        failed = await result("--url", url, "--session", session, "Again.")
        assert failed["exit_code"] == 1 and failed["run"] and failed["text"] is None
        assert set(failed["error"]) >= {"code", "message", "retryable"}
        unknown = await result("--url", url, "--session", "ses_none", "Again.")
        assert unknown["exit_code"] == 1 and unknown["run"] is None and "ses_none" in unknown["error"]["message"]
    away = await result("--url", "http://127.0.0.1:9", "Go.")
    assert away["exit_code"] == 3 and "No dragoman server answers" in away["error"]["message"]
