"""MCP servers on the page: how they are, what is held of them, and a sign-in that stays with whoever asks for it."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Locator, Page, Route

from app.models.scripted import Scripted
from tests import ROOT
from tests.support.mcp.oauth import closed_server
from tests.support.mcp.served import helper, serving_mcp, settled, write_list
from tests.support.page.browser import Browsing, browsing, choose, expect, home, shot
from tests.support.server.serving import serving

pytestmark = pytest.mark.usefixtures("chromium")
FAULTY = ROOT / "fixtures/mcp/faulty.py"
SLASHED = "example.com/a/b"


def faulty(fault: str, *args: str) -> dict[str, Any]:
    return {"command": sys.executable, "args": [str(FAULTY), fault, *args]}


async def declare_trust(page: Page, shop: Locator) -> None:
    """Declare a tool and then the server, and see where each value is from."""
    await shop.get_by_text("3 tools").click()
    pay = shop.locator("summary", has_text="pay")
    await expect(pay).to_have_text("pay role admin, risk admin, results untrusted")
    await pay.click()
    await shop.get_by_label("Risk").select_option("read")
    await shop.get_by_label("Results").select_option("trusted")
    await shop.get_by_role("button", name="Declare").click()
    await expect(pay).to_have_text("pay role admin, risk read, results trusted")
    await expect(shop.get_by_text("read (declared for this tool)")).to_be_visible()
    await expect(shop.get_by_text("admin (default)")).to_be_visible()
    await shot(page, "mcp-trust")
    await shop.get_by_role("button", name="Withdraw").click()
    await expect(pay).to_have_text("pay role admin, risk admin, results untrusted")
    await pay.click()
    await shop.locator("summary", has_text="The whole server").click()
    whole = shop.locator("details", has=page.get_by_text("The whole server")).last
    await whole.get_by_label("Role").select_option("user")
    await whole.get_by_role("button", name="Declare").click()
    await expect(shop.locator("summary", has_text="The whole server: trusted")).to_be_visible()
    await expect(shop.locator("summary", has_text="role user, risk admin, results untrusted")).to_have_count(3)


async def use_resources_and_prompts(browser: Browsing, page: Page) -> None:
    notes, message = page.get_by_role("region", name="notes"), page.get_by_role("textbox", name="Message")
    await notes.get_by_text("Resources", exact=True).click()
    await notes.get_by_role("button", name="Attach one").click()
    await expect(page.get_by_role("button", name="Remove notes-one.txt")).to_be_visible()
    await notes.get_by_label("Other address (URI)").fill("note://blob")
    await notes.get_by_role("button", name="Attach", exact=True).click()
    await expect(page.get_by_role("button", name="Remove notes-blob")).to_be_visible()
    browser.expected.append("502")
    await notes.get_by_label("Other address (URI)").fill("note://nowhere")
    await notes.get_by_role("button", name="Attach", exact=True).click()
    await expect(notes.get_by_text("no such resource: note://nowhere")).to_be_visible()
    await message.fill("My own words.")
    await notes.get_by_text("Prompts", exact=True).click()
    await notes.get_by_label("who").fill("Ada")
    await notes.get_by_role("button", name="Use greet").click()
    await expect(message).to_have_value(
        "My own words.\n\n[From the prompt greet of the MCP server notes]\n\nGreet Ada."
    )
    await shot(page, "mcp-offers")
    await message.press("Enter")
    await expect(page.get_by_text("Noted.")).to_be_visible()
    await message.fill("/greet")  # its prompts are in the list of commands
    await page.get_by_role("option", name="/notes:greet").click()
    asking = page.get_by_role("dialog", name="greet")
    await asking.get_by_label("who").fill("Bob")
    await asking.get_by_role("button", name="Use").click()
    await expect(message).to_have_value("[From the prompt greet of the MCP server notes]\n\nGreet Bob.")
    await message.fill("")


async def test_a_tool_that_has_changed_is_seen_with_its_difference_and_approved(tmp_path: Path) -> None:
    sign = tmp_path / "changed"
    offering = {"command": sys.executable, "args": [str(FAULTY.parent / "offering.py")]}
    servers: dict[str, object] = {"shop": faulty("rugpull", str(sign)), SLASHED: helper(), "notes": offering}
    provider = Scripted(["Noted."])
    async with serving_mcp(tmp_path, provider, servers) as served, browsing() as browser:
        page = await browser.page()
        await page.goto(home(served))
        button = page.locator(".status-item", has_text="MCP")
        await expect(button).to_contain_text("MCP: 3")
        await choose(page, "MCP")
        shop = page.get_by_role("region", name="shop")
        await expect(shop.get_by_text("ready")).to_be_visible()
        sign.touch()
        await shop.get_by_role("button", name="Reconnect").click()
        await expect(button).to_contain_text("MCP: 1 waiting for you")
        await expect(shop.get_by_role("heading", name="pay")).to_be_visible()
        await expect(shop.get_by_text("Pays everything").first).to_be_visible()
        await shot(page, "mcp-held")
        approved: list[str] = []

        async def later(route: Route) -> None:
            """Something else is offered by the time that the yes arrives, at first."""
            said: dict[str, Any] = route.request.post_data_json or {}
            approved.append(said["digest"])
            await route.continue_(post_data=json.dumps(said | {"digest": "new"} if len(approved) == 1 else said))

        await page.route("**/approve", later)
        browser.expected.append("409")
        await shop.get_by_role("button", name="Approve pay").click()
        await expect(page.get_by_text("has changed again since you looked at it")).to_be_visible()
        await shop.get_by_role("button", name="Approve pay").click()
        await expect(shop.get_by_role("heading", name="pay")).to_have_count(0)
        await expect(shop).to_be_focused()
        await expect(button).to_contain_text("MCP: 3")
        assert "mcp__shop__pay" in (await settled(served, "shop")).tools
        await declare_trust(page, shop)
        other = page.get_by_role("region", name=SLASHED)
        await other.get_by_role("button", name="Turn off").click()
        await expect(other.get_by_text("turned off")).to_be_visible()
        await other.get_by_role("button", name="Turn on").click()
        await expect(other.get_by_role("button", name="Turn off")).to_be_visible()
        await other.get_by_text("Log", exact=True).click()
        await expect(other.get_by_label(f"Log of {SLASHED}")).not_to_be_empty()
        await shot(page, "mcp")
        await use_resources_and_prompts(browser, page)
        sent = provider.requests[-1].messages[-1].text
        assert "Greet Ada." in sent and "hello from one" in sent
        assert (tmp_path / "work/notes-blob").read_bytes() == b"\0\1\2"


async def test_a_server_is_added_by_its_address_says_what_is_wrong_and_goes(tmp_path: Path) -> None:
    async with serving(tmp_path, Scripted([])) as served, browsing() as browser:
        browser.expected.append("422")
        page = await browser.page(color_scheme="dark")
        await page.goto(home(served))
        await choose(page, "MCP")
        panel = page.get_by_role("complementary", name="MCP servers")
        await expect(panel.get_by_text("MCP servers add tools.")).to_be_visible()
        await panel.get_by_text("Add a server").click()
        await panel.get_by_label("Address").fill("https://a.test/${HOME}")
        await panel.get_by_label("Name").fill("mine")
        await panel.get_by_role("button", name="Add", exact=True).click()
        await expect(panel.get_by_role("status")).to_contain_text("HOME")
        await panel.get_by_label("Address").fill(f"http://127.0.0.1:{served.client.base_url.port}/mcp")
        await panel.get_by_role("button", name="Add", exact=True).click()
        mine = page.get_by_role("region", name="mine")
        await expect(mine.get_by_text("failed", exact=True)).to_be_visible()
        await expect(mine.get_by_text("127.0.0.1").first).to_be_visible()
        await shot(page, "mcp-failed-dark")
        await mine.get_by_role("button", name="Remove").click()
        await served.client.post("/mcp/servers/mine/disable")  # what changes meanwhile does not take the question away
        await expect(mine.get_by_text("turned off", exact=True)).to_be_visible()
        await expect(mine.get_by_role("button", name="Cancel")).to_be_focused()
        await mine.get_by_role("button", name="Remove it").click()
        await expect(mine).to_have_count(0)


async def test_a_sign_in_opens_beside_the_page_and_names_its_host(tmp_path: Path) -> None:
    async with closed_server() as resource:
        write_list(tmp_path, closed={"url": resource.url})
        async with serving(tmp_path, Scripted([])) as served, browsing() as browser:
            status = await settled(served, "closed")
            page = await browser.page()
            await page.goto(home(served))
            await expect(page.get_by_role("button", name="MCP")).to_contain_text("MCP: 1 down")
            await page.get_by_role("button", name="MCP").click()
            link = page.get_by_role("link", name="Sign in at 127.0.0.1")
            await expect(link).to_have_attribute("href", status.auth_url)
            await expect(link).to_have_attribute("rel", "noopener noreferrer")


async def test_why_an_action_was_refused_is_shown_until_the_server_is_in_another_state(tmp_path: Path) -> None:
    async with serving_mcp(tmp_path, Scripted([]), {"shop": helper()}) as served, browsing() as browser:
        page = await browser.page()
        await page.goto(home(served))
        await choose(page, "MCP")
        shop = page.get_by_role("region", name="shop")
        refusal = {"error": {"type": "server_error", "code": "unavailable", "message": "Not now."}}
        await page.route("**/shop/reconnect", lambda route: route.fulfill(status=503, json=refusal))
        browser.expected.append("status of 503")
        await shop.get_by_role("button", name="Reconnect").click()
        await expect(shop.get_by_role("status")).to_have_text("Not now.")
        await served.client.post("/mcp/servers/shop/disable")
        await expect(shop.get_by_text("turned off", exact=True)).to_be_visible()
        await expect(shop.get_by_text("Not now.")).to_have_count(0)
