"""Thoughts of the model in the terminal: one line with a key that shows them, and a mark where there are no keys."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest

from app.models.scripted import Scripted
from parsing import Thought
from routes.texts import text
from tests.support.server.serving import serving
from tests.support.terminal.terminals import piped, terminal

pytestmark = pytest.mark.anyio

LIMIT_S = 60
PROMPT = "\n>"


def thinking() -> Scripted:
    return Scripted([(Thought("They gr"), Thought("eet me.\n\nSo do I."), "Hello.")])


async def test_a_thought_is_one_line_and_a_key_shows_it(tmp_path: Path) -> None:
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, thinking()) as served:
        async with terminal("chat", "--url", str(served.client.base_url), home=tmp_path) as shown:
            await shown.ends_with(PROMPT)
            shown.press("\x0f")
            await shown.until(text("terminal.thought.none", {}))
            shown.press("Hi.\r")
            await shown.until("\n\nHello.")
            window = await shown.ends_with(PROMPT)
            assert re.search(r"\nThought for \S+ s · Ctrl-O shows it\n\nHello\.", window) and "greet" not in window
            shown.press("\x0f")
            await shown.until("\nThey greet me.\n\nSo do I.\n>")


async def test_without_keys_a_thought_is_marked(tmp_path: Path) -> None:
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, thinking()) as served:
        chat = await piped("chat", "--url", str(served.client.base_url), "Hi.", home=tmp_path)
        out, _ = await chat.communicate()
    assert out.decode().startswith("┆ They greet me.\n┆ \n┆ So do I.\nHello.\n")
