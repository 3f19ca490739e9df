"""Esc Esc and /rewind: a list of the person's messages, and a branch from the one that is chosen."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from app.models.scripted import Scripted
from routes.texts import text
from tests.support.server.serving import serving
from tests.support.terminal.paper_terminal import conversed
from tests.support.terminal.terminals import terminal

pytestmark = pytest.mark.anyio

LIMIT_S = 60
PROMPT = "\n>"
LISTED = "❯ (stay where you are)"


async def test_esc_esc_goes_back_to_a_message_and_what_is_sent_begins_a_branch(tmp_path: Path) -> None:
    provider = Scripted(["One.", "Two.", "Other."])
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, provider) as served:
        async with terminal("chat", "--url", str(served.client.base_url), home=tmp_path) as shown:
            await shown.ends_with(PROMPT)
            shown.press("\x1b\x1b")
            await shown.until(text("terminal.rewind.nothing", {}))
            for message, answer in (("first apple", "One."), ("second pear", "Two.")):
                await shown.ends_with(PROMPT)
                shown.press(f"{message}\r")
                await shown.until(answer)
            await shown.ends_with(PROMPT)
            shown.press("\x1b\x1b")
            window = await shown.until(LISTED)
            assert "\n  second pear\n  first apple\n" in window
            shown.press("\x1b")
            await shown.until_holds(lambda window: LISTED not in window)
            await shown.ends_with(PROMPT)
            await shown.press_until("\x1b\x1b", LISTED)
            shown.press("app")
            await shown.until("❯ first apple")
            shown.press("\r")
            await shown.until("begins a branch before this message: first apple")
            await shown.ends_with("\n> first apple")
            shown.press("s\r")
            await shown.until("Other.")
            await shown.ends_with(PROMPT)
        sessions = (await served.client.get("/sessions")).json()["sessions"]
        assert len(sessions) == 1 and len(sessions[0]["branches"]) == 1
    assert [one.text for one in provider.requests[-1].messages if one.role == "user"] == ["first apples"]


async def test_without_single_keys_the_list_has_numbers(tmp_path: Path) -> None:
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, Scripted(["One.", "Two."])) as served:
        talk, shown = await conversed(served.client, "first", "/rewind", "9", "/rewind", "2", "/rewind", "1", "second")
        assert "  1  (stay where you are)\n  2  first\n" in shown
        assert talk.rewound is None and "new branch" not in shown
