"""Signing in on the page: a token that lives in one tab, and nothing left of a page that is closed."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path

import pytest
from playwright.async_api import Request

from app.models.scripted import Scripted
from tests.support.access.people import bearer
from tests.support.page.browser import Page, browsing, expect, home, say, shot
from tests.support.server.serving import Served, serving

pytestmark = pytest.mark.usefixtures("chromium")
REFUSED = "40[134]|429"


async def token_of(served: Served, name: str, role: str) -> str:
    return (await bearer(served, name, role))["authorization"].removeprefix("Bearer ")


def heard(asked: list[str], request: Request) -> None:
    asked.append(request.url)


async def sign_in(page: Page, token: str) -> None:
    await page.get_by_label("Token").fill(token)
    await page.get_by_role("button", name="Sign in").click()


async def test_a_token_lets_one_tab_in_until_it_is_revoked(tmp_path: Path) -> None:
    async with serving(tmp_path, Scripted(["A secret answer."])) as served, browsing() as browser:
        browser.expected.append(REFUSED)
        admin = {"authorization": f"Bearer {await token_of(served, 'root', 'admin')}"}
        token = await token_of(served, "ann", "user")
        context = await browser.context()
        asked: list[str] = []
        context.on("request", partial(heard, asked))
        page = await context.new_page()
        await page.goto(home(served))
        await expect(page.get_by_label("Token")).to_be_focused()
        await expect(page.locator("#app")).to_be_hidden()
        await shot(page, "sign-in")
        await sign_in(page, "dgm_wrong")
        await expect(page.get_by_text("This is not a token of this server.")).to_be_visible()
        await sign_in(page, "ключ")
        await expect(page.get_by_text("This is not a token")).to_be_visible()
        await sign_in(page, token)
        await say(page, "Tell me something.")
        await expect(page.get_by_text("A secret answer.")).to_be_visible()
        session = page.url
        await page.reload()
        await expect(page.get_by_text("A secret answer.")).to_be_visible()
        second = await context.new_page()
        await second.goto(session)
        await expect(second.get_by_text("Otherwise the token is stored in this tab")).to_be_visible()
        assert token not in await page.evaluate("JSON.stringify(localStorage) + document.cookie")
        await served.client.delete("/tokens/ann", headers=admin)
        await expect(page.get_by_text("The token of ann has been revoked.")).to_be_visible()
        await expect(page.get_by_text("A secret answer.")).to_have_count(0)
        assert token not in await page.evaluate("JSON.stringify(sessionStorage)")
        await shot(page, "sign-in-revoked")
        assert not [url for url in asked if token in url]


async def test_a_browser_stays_signed_in_until_it_signs_out_or_its_sign_in_is_ended(tmp_path: Path) -> None:
    async with serving(tmp_path, Scripted(["A secret answer."])) as served, browsing() as browser:
        browser.expected.append(REFUSED)
        token = await token_of(served, "ann", "user")
        context = await browser.context()
        page = await context.new_page()
        await page.goto(home(served))
        await page.get_by_label("Keep me signed in on this device").check()
        await sign_in(page, token)
        await say(page, "Tell me something.")
        await expect(page.get_by_text("A secret answer.")).to_be_visible()
        stored = await page.evaluate("JSON.stringify(localStorage) + JSON.stringify(sessionStorage) + document.cookie")
        assert token not in stored and "dragoman-sgn_" not in stored
        second = await context.new_page()
        await second.goto(page.url)
        await expect(second.get_by_text("A secret answer.")).to_be_visible()
        await second.get_by_role("button", name="Settings").click()
        await second.get_by_role("button", name="Sign out").click()
        for tab in (page, second):
            await expect(tab.get_by_text("You have signed out.")).to_be_visible()
        assert not await served.services.store.sign_ins() and not await context.cookies()
        await page.get_by_label("Keep me signed in on this device").check()
        await sign_in(page, token)
        await expect(page.get_by_role("textbox", name="Message")).to_be_visible()
        await expect(second.get_by_role("textbox", name="Message")).to_be_visible()  # the other tab follows
        await served.client.delete("/sign-ins", headers={"authorization": f"Bearer {token}"})
        for tab in (page, second):
            await expect(tab.get_by_label("Token")).to_be_visible()
            # The one that notices it sends the other out, with the same reason: neither has signed out by itself.
            await expect(tab.get_by_text("This is not a token of this server.")).to_be_visible()


async def test_a_token_in_the_address_is_not_taken(tmp_path: Path) -> None:
    async with serving(tmp_path, Scripted([])) as served, browsing() as browser:
        browser.expected.append(REFUSED)
        token = await token_of(served, "ann", "admin")
        for place in (f"/?token={token}", f"/#token={token}"):
            asked: list[str] = []
            page = await browser.page()
            page.on("request", partial(heard, asked))
            await page.goto(f"{home(served).rstrip('/')}{place}")
            await expect(page.get_by_text("A token in the address is not used")).to_be_visible()
            assert token not in page.url
            assert not [url for url in asked[1:] if token in url]


async def test_signing_out_leaves_nothing_and_too_many_wrong_tokens_have_to_wait(tmp_path: Path) -> None:
    async with serving(tmp_path, Scripted(["A secret answer."])) as served, browsing() as browser:
        browser.expected.append(REFUSED)
        token = await token_of(served, "ann", "user")
        page = await browser.page()
        await page.goto(home(served))
        await sign_in(page, token)
        await say(page, "Tell me something.")
        await expect(page.get_by_text("A secret answer.")).to_be_visible()
        await page.get_by_role("textbox", name="Message").fill("half a thought")
        await page.get_by_role("button", name="Settings").click()
        await page.get_by_role("button", name="Sign out").click()
        await expect(page.get_by_text("You have signed out.")).to_be_visible()
        assert "#" not in page.url
        assert await page.evaluate("sessionStorage.length") == 0
        for number in range(10):
            await served.client.get("/tools", headers={"authorization": f"Bearer dgm_{number}"})
        await sign_in(page, "dgm_wrong")
        await expect(page.get_by_text("wrong tokens came from")).to_be_visible()
        await expect(page.get_by_role("button", name="Sign in (in ")).to_be_disabled()


async def test_a_guest_sees_what_a_guest_may_do(tmp_path: Path) -> None:
    async with serving(tmp_path, Scripted(["Hi."])) as served, browsing() as browser:
        browser.expected.append(REFUSED)
        page = await browser.page()
        await page.goto(home(served))
        await sign_in(page, await token_of(served, "gus", "guest"))
        bar = page.get_by_role("group", name="Status")
        await expect(bar.get_by_role("button", name="Model:")).to_contain_text("scripted")
        await say(page, "Hello")
        await expect(page.get_by_text("Hi.")).to_be_visible()
        await bar.get_by_role("button", name="Menu").click()
        await expect(page.get_by_role("menuitem", name=re.compile("Pause|MCP"))).to_have_count(0)
        await page.keyboard.press("Escape")
        await bar.get_by_role("button", name="Model:").click()
        await expect(page.get_by_role("radio", name="Default")).to_be_checked()
        await expect(page.get_by_role("button", name="Connect a model")).to_have_count(0)
        await page.get_by_role("button", name="Settings").click()
        panel = page.get_by_role("complementary", name="Settings")
        await expect(panel).to_contain_text("gus")
        await expect(panel.get_by_text("People", exact=True)).to_have_count(0)
        await shot(page, "guest")


async def test_without_tokens_none_is_asked_for_and_the_first_is_an_admins_and_taken_at_once(tmp_path: Path) -> None:
    async with serving(tmp_path, Scripted(["Hi."])) as served, browsing() as browser:
        browser.expected.append(REFUSED)
        context = await browser.context()
        await context.grant_permissions(["clipboard-read", "clipboard-write"])
        page = await context.new_page()
        await page.goto(home(served))
        await expect(page.get_by_role("group", name="Status").get_by_text("Connected")).to_be_visible()
        await expect(page.get_by_label("Token")).to_have_count(0)
        await page.get_by_role("button", name="Settings").click()
        panel = page.get_by_role("complementary", name="Settings")
        await panel.get_by_text("People", exact=True).click()
        await panel.get_by_label("Name").fill("ann")
        await panel.get_by_role("button", name="Make a token").click()
        token = await panel.get_by_label("Token of ann").input_value()
        assert token.startswith("dgm_")
        await panel.get_by_role("button", name="Copy").click()
        await expect(panel.get_by_text("Copied")).to_be_visible()
        await shot(page, "token-made")
        await panel.get_by_role("button", name="Done").click()
        await page.get_by_role("button", name="Settings").click()
        await expect(panel.get_by_text("ann", exact=True)).to_be_visible()
        assert token not in await page.content()
        await panel.get_by_text("People", exact=True).click()
        await panel.get_by_label("Name").fill("bob")
        await panel.get_by_label("Role", exact=True).select_option("guest")
        await panel.get_by_role("button", name="Make a token").click()
        await panel.get_by_role("button", name="Done").click()
        row = panel.get_by_role("listitem").filter(has_text="bob")
        await row.get_by_role("button", name="Revoke").click()
        await row.get_by_role("button", name="Revoke it").click()
        await expect(row).to_have_count(0)
