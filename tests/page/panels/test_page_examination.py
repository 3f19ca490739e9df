"""The test of a model on the page: its progress, the report, and the end of it when the panel is closed."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from app.models.scripted import Scripted
from tests.support.models.engines import FAULTY, engine
from tests.support.models.upstream import announced, left, upstream
from tests.support.page.browser import browsing, expect, home, shot
from tests.support.server.serving import serving

pytestmark = pytest.mark.usefixtures("chromium")
LOST = FAULTY["https://github.com/vllm-project/vllm/issues/31501"][1]


async def test_a_model_is_tested(tmp_path: Path) -> None:
    async with engine(LOST) as server, serving(tmp_path, Scripted(["One."])) as served, browsing() as browser:
        await served.client.post("/endpoints", json={"name": "lab", "url": server.base_url})
        page = await browser.page()
        await page.goto(home(served))
        await page.get_by_role("button", name="Model:").click()
        await page.get_by_role("button", name="Test this model").click()
        panel = page.get_by_role("complementary", name="Test of lab")
        await panel.get_by_role("button", name="Start the test").click()
        await expect(panel.get_by_text("Arguments are lost or cut.")).to_be_visible()
        await expect(panel.get_by_role("button", name="Copy as Markdown")).to_be_visible()
        await expect(panel.get_by_role("progressbar")).to_be_hidden()
        await shot(page, "examination")


async def test_closing_the_panel_ends_the_test(tmp_path: Path) -> None:
    begun, gone = asyncio.Event(), asyncio.Event()
    hanging = upstream(announced(begun, left(gone)), chats=True)
    async with hanging as server, serving(tmp_path, Scripted(["One."])) as served, browsing() as browser:
        await served.client.post("/endpoints", json={"name": "lab", "url": server.base_url, "model": "m"})
        page = await browser.page()
        await page.goto(home(served))
        await page.get_by_role("button", name="Model:").click()
        await page.get_by_role("button", name="Test this model").click()
        panel = page.get_by_role("complementary", name="Test of lab")
        await panel.get_by_role("button", name="Start the test").click()
        async with asyncio.timeout(30):
            await begun.wait()
            await panel.get_by_role("button", name="Close").click()
            await gone.wait()
