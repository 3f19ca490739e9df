"""The page in the three engines that people use, each driven in its own way: a message, a call, its decision."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from app.models.scripted import Scripted
from tests.support.models.replies import bash_block
from tests.support.page.approvals import decision_page, waiting
from tests.support.page.browser import STORY_S, home
from tests.support.page.engines import ENGINES, engine
from tests.support.server.serving import serving

PNG = b"\x89PNG"
SAY = """(() => {{
  const text = document.querySelector("#composer textarea");
  text.value = {!r};
  text.dispatchEvent(new Event("input", {{ bubbles: true }}));
  document.querySelector("#composer").requestSubmit();
}})()"""


@pytest.mark.anyio
@pytest.mark.parametrize("name", ENGINES)
async def test_a_message_is_answered_and_its_call_approved_in_each_engine(tmp_path: Path, name: str) -> None:
    async with (
        asyncio.timeout(STORY_S),
        serving(tmp_path, Scripted([bash_block("touch one"), "Fine, thanks."]), approval_admin="ask") as served,
        engine(name, tmp_path) as browser,
    ):
        window = await browser.window()
        await window.resize(390, 844)
        await window.goto(home(served))
        await window.wait_for("document.querySelector('#app')?.hidden === false")
        await window.evaluate(SAY.format("How are you?"))
        # The page that a push message opens, in the same window.
        row = await waiting(served)
        await window.goto(decision_page(served, row))
        await window.wait_for("document.body.innerText.includes('touch one')")
        await window.wait_for("document.querySelector('button.primary')?.disabled === false")
        await window.evaluate("document.querySelector('button.primary').click()")
        await window.wait_for("document.querySelector('h1').innerText === 'Approved.'")
        await window.goto(f"{home(served)}/#{row['session']}")
        await window.wait_for("document.querySelector('.run-body')?.innerText.includes('Fine, thanks.')")
        # In another language a conversation waits for its texts.
        await window.evaluate("localStorage.setItem('dragoman.language', 'de')")
        await window.goto(f"{home(served)}/page/css/tokens.css")
        await window.goto(f"{home(served)}/#{row['session']}")
        await window.wait_for("document.documentElement.lang === 'de'")
        await window.wait_for("document.querySelector('.run-body')?.innerText.includes('Fine, thanks.')")
        assert (tmp_path / "work/one").exists()
        assert (await window.screenshot()).startswith(PNG)
        assert await window.evaluate("[innerWidth, innerHeight]") == [390, 844]
