"""/resume and --resume: a list of conversations with the last message of the chosen one."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from app.models.scripted import Scripted
from routes.texts import text
from tests.support.server.serving import serving
from tests.support.terminal.terminals import piped, terminal

pytestmark = pytest.mark.anyio

LIMIT_S = 60
PROMPT = "\n>"
ORDER = "abcdefghijkl"  # letters: the rows have times, and so any digit


async def test_a_conversation_is_chosen_from_a_list_with_a_preview(tmp_path: Path) -> None:
    provider = Scripted([*(f"Answer {letter * 3}." for letter in ORDER), "More.", "Last."])
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, provider) as served:
        for letter in ORDER:
            await served.client.post("/chat", json={"message": f"question {letter * 3} \x1b[2J" + "é" * 200})
        url = str(served.client.base_url)
        async with terminal("chat", "--url", url, "--resume", columns=60, lines=40, home=tmp_path) as shown:
            window = await shown.until("Answer lll.")
            assert "question eee" in window and "question ddd" not in window and "  1/12" in window
            assert max(map(len, window.splitlines())) < 60
            shown.press("\x1b[A")
            await shown.until("Answer aaa.")
            shown.press("tion hhh")
            await shown.until("Answer hhh.")
            shown.press(" none")
            await shown.until("\n  -\n")
            shown.press("\r\x17\x7f\r")
            await shown.until("Continuing: question hhh")
            await shown.ends_with(PROMPT)
            shown.press("And?\r")
            await shown.until("More.")
            await shown.ends_with(PROMPT)
            await shown.press_until("/resume\r", "❯ ")
            shown.press("\x1b")
            await shown.ends_with(PROMPT)
            shown.press("Still?\r")
            await shown.until("Last.")
        assert [one.text for one in provider.requests[-1].messages if one.role == "user"][1:] == ["And?", "Still?"]
        chat = await piped("chat", "--url", url, "--resume", "Go.", home=tmp_path)
        _, err = await chat.communicate()
        assert chat.returncode == 2 and text("terminal.resume.script", {}) in err.decode()
