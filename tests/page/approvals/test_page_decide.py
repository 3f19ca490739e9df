"""The page that a push message opens: one waiting call, exactly, and two buttons. It is light."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from app.models.scripted import Scripted
from tests.support.access.people import bearer
from tests.support.models.replies import bash_block, tool_call
from tests.support.page.approvals import decision_page, waiting
from tests.support.page.browser import PHONE, STORY_S, Page, browsing, expect, shot
from tests.support.page.traffic import traffic
from tests.support.server.serving import Served, serving

pytestmark = pytest.mark.usefixtures("chromium")

MOST_BYTES, MOST_REQUESTS = 120_000, 9
EDIT = tool_call("edit_file", path="notes.txt", old="one", new="two")


async def opened(page: Page, served: Served, row: dict[str, str]) -> None:
    await page.goto(decision_page(served, row))


async def sign_in(page: Page, headers: dict[str, str]) -> None:
    await page.get_by_label("Token").fill(headers["authorization"].removeprefix("Bearer "))
    await page.get_by_role("button", name="Sign in").click()


async def test_a_command_is_approved_on_a_page_that_loads_little(tmp_path: Path) -> None:
    script = [bash_block("touch one"), "Seen."]
    async with (
        asyncio.timeout(STORY_S),
        serving(tmp_path, Scripted(script), approval_admin="ask") as served,
        browsing() as browser,
    ):
        turn = asyncio.create_task(served.chat("Go."))
        row = await waiting(served)
        page = await browser.page(viewport=PHONE)
        async with traffic(page) as seen:
            await opened(page, served, row)
            await expect(page.get_by_text("touch one", exact=True)).to_be_visible()
            await shot(page, "decide")
            print(f"{seen.bytes:,} bytes in {len(seen.paths)} requests: {seen.names()}")
            assert seen.bytes < MOST_BYTES and len(seen.paths) <= MOST_REQUESTS
        assert not (tmp_path / "work/one").exists(), "opening it decides nothing"
        await page.get_by_role("button", name="Approve once").click()
        await expect(page.get_by_role("heading", name="Approved.")).to_be_visible()
        [resolved] = [event for event in await turn if event["type"] == "approval.resolved"]
        assert (resolved["decision"], resolved["door"]) == ("approved", "push")
        await page.reload()
        await expect(page.get_by_text("no longer waits")).to_be_visible()
        await page.get_by_role("link", name="Open the conversation").click()
        await expect(page.get_by_text("Seen.")).to_be_visible()


async def test_an_edit_is_shown_as_its_diff_and_another_door_may_come_first(tmp_path: Path) -> None:
    async with (
        asyncio.timeout(STORY_S),
        serving(tmp_path, Scripted([EDIT, "Denied."]), approval_admin="ask") as served,
        browsing() as browser,
    ):
        browser.expected.append("409")
        (tmp_path / "work/notes.txt").write_text("zero\none\nthree\n")
        turn = asyncio.create_task(served.chat("Go."))
        row = await waiting(served)
        page = await browser.page(viewport=PHONE, locale="de-DE", color_scheme="dark")
        await opened(page, served, row)
        rows = page.locator(".diff")
        await expect(rows).to_contain_text("one")
        await expect(rows).to_contain_text("two")
        await shot(page, "decide-diff")
        path = f"/runs/{row['run']}/approvals/{row['call']}"
        await served.client.post(path, json={"decision": "deny"})
        await turn
        await page.get_by_role("button", name="Einmal freigeben").click()
        await expect(page.get_by_role("heading", name="Abgelehnt von")).to_be_visible()
        assert (tmp_path / "work/notes.txt").read_text() == "zero\none\nthree\n"


async def test_only_a_signed_in_browser_sees_the_call(tmp_path: Path) -> None:
    script = [bash_block("touch one"), "Seen.", bash_block("touch two"), "Seen."]
    async with (
        asyncio.timeout(STORY_S),
        serving(tmp_path, Scripted(script), approval_user="ask") as served,
        browsing() as browser,
    ):
        browser.expected.append("40[134]")
        ann, bob = await bearer(served, "ann"), await bearer(served, "bob")
        body = {"message": "Go."}
        turn = asyncio.create_task(served.client.post("/chat", json=body, headers=ann))
        row = await waiting(served, **ann)
        context = await browser.context(viewport=PHONE)
        page = await context.new_page()
        await opened(page, served, row)  # it has no sign-in: the whole page asks for one, and shows the call then
        await sign_in(page, bob)
        await expect(page.get_by_text("This conversation does not exist.")).to_be_visible()
        await expect(page.get_by_text("touch one")).to_have_count(0)
        await page.evaluate("sessionStorage.clear()")
        await page.goto("about:blank")
        await opened(page, served, row)
        await page.get_by_label("Keep me signed in").check()
        await sign_in(page, ann)
        await expect(page.locator(".approval").get_by_text("touch one", exact=True)).to_be_visible()
        second = await context.new_page()  # as a push message opens it: the sign-in of this browser lasts
        await opened(second, served, row)
        await second.get_by_role("button", name="Deny").click()
        await expect(second.get_by_role("heading", name="Denied.")).to_be_visible()
        answer = await turn
        assert json.dumps("Seen.") in answer.text
