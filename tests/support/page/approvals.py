"""A page on which a call waits for a person."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

from app.models.scripted import Reply, Scripted
from tests.support.page.browser import STORY_S, Browsing, Locator, Page, browsing, expect, home
from tests.support.server.serving import Served, serving

NOTICES = """
window.notices = [];
window.Notification = class {
  static permission = "default";
  static requestPermission = async () => (window.Notification.permission = "granted");
  constructor(title, more) { window.notices.push({title, body: more.body, made: this}); }
  close() {}
};
window.away = false;
Object.defineProperty(document, "hidden", {get: () => window.away});
"""


@asynccontextmanager
async def asking_page(
    folder: Path, *replies: Reply, **flags: object
) -> AsyncGenerator[tuple[Served, Scripted, Browsing, Page], None]:
    """A page of a server that asks before it runs anything."""
    provider = Scripted(replies)
    async with (
        asyncio.timeout(STORY_S),
        serving(folder, provider, None, **({"approval_admin": "ask"} | flags)) as served,
        browsing() as browser,
    ):
        page = await browser.page()
        await page.goto(home(served))
        yield served, provider, browser, page


def questions_on(page: Page) -> Locator:
    return page.locator(".approval")


async def press(page: Page, name: str) -> None:
    await questions_on(page).get_by_role("button", name=name, exact=True).click()


async def until_decided(page: Page) -> None:
    await expect(questions_on(page)).to_have_count(0)


async def waiting(served: Served, **headers: str) -> dict[str, str]:
    """The first call that waits, once there is one."""
    while True:
        rows: list[dict[str, str]] = (await served.client.get("/approvals", headers=headers)).json()["approvals"]
        if rows:
            return rows[0]
        await asyncio.sleep(0)


def decision_page(served: Served, row: dict[str, str]) -> str:
    return f"{home(served)}/page/decide.html#{row['session']}/{row['run']}/call={row['call']}"
