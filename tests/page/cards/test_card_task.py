"""A call that has become a task of an MCP server, in a real browser: its status, and its end by the stop button."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from app.models.scripted import Scripted
from tests.support.mcp.served import READS, serving_mcp
from tests.support.mcp.tasks import ERAS, TaskServer, until_requested
from tests.support.page.browser import browsing, expect, home, say, shot
from tests.support.page.stories import cards

pytestmark = pytest.mark.usefixtures("chromium")


async def test_a_task_is_a_running_card_with_its_status(tmp_path: Path) -> None:
    mcp, call = TaskServer(ERAS[0]), "```mcp__s__wait\n```"
    provider = Scripted([call, "It goes on.", call, "So."])
    servers: dict[str, object] = {"s": {"url": mcp.url}}
    async with asyncio.timeout(110), mcp.started() as tasks:
        async with serving_mcp(tmp_path, provider, servers, tools=READS) as served, browsing() as browser:
            page = await browser.page()
            await page.goto(home(served))
            await say(page, "Wait.")
            card = cards(page)
            await expect(card.locator(".tail")).to_have_text("working: begun\nworking: waiting")
            await expect(card).to_have_attribute("data-state", "running")
            await page.reload()
            await expect(card.locator(".tail")).to_have_text("working: begun\nworking: waiting")
            await shot(page, "card-task")
            await card.get_by_role("button", name="Stop").click()
            await expect(card.locator(".card-state")).to_have_text("stopped")
            await until_requested(tasks, "tasks/cancel")
            await say(page, "Wait again.")
            again = cards(page, 1)
            await expect(again.locator(".tail")).to_contain_text("working: waiting")
            await tasks.post("/finish")
            await expect(again).to_have_attribute("data-state", "done")
            await expect(again).to_contain_text("wait is done")
