"""The bar at the bottom of the page, and the settings: what they tell, and what stays after a reload."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path

import pytest
from playwright.async_api import Route

from app.models.scripted import DEMO, Scripted
from tests.support.models.chatting import WHOLE, chat_with
from tests.support.models.upstream import upstream
from tests.support.nightly import only_at_night
from tests.support.page.browser import PHONE, Page, browsing, choose, expect, home, say, shot
from tests.support.page.stories import too_wide
from tests.support.page.windows import ALONE
from tests.support.server.serving import serving

pytestmark = pytest.mark.usefixtures("chromium")
PRICED = json.dumps({"*": {"input": 2.5, "output": 10}})


async def test_the_bar_tells_model_context_tokens_cost_and_sandbox(tmp_path: Path) -> None:
    async with serving(tmp_path, Scripted(DEMO, repeat=True), prices=PRICED) as served, browsing() as browser:
        page = await browser.page()
        await page.goto(home(served))
        bar = page.get_by_role("group", name="Status")
        await expect(bar.get_by_role("button", name="Model: scripted")).to_be_visible()
        await expect(bar.get_by_text("Connected")).to_be_visible()
        await expect(bar.get_by_role("button", name="Context:")).to_be_hidden()
        await say(page, "Print hello world with the shell.")
        context = bar.get_by_role("button", name="Context:")
        await expect(context).to_contain_text("of 32,768 tokens")
        await expect(context).to_contain_text("cost 0.0")
        await expect(page.get_by_text("The shell printed Hello, World!")).to_be_visible()
        session = page.url.partition("#")[2]
        used = (await served.client.get(f"/sessions/{session}")).json()["usage"]
        await context.click()
        panel = page.get_by_role("complementary", name="Tokens")
        for count in (used["prompt_tokens"], used["completion_tokens"]):
            await expect(panel.get_by_text(f"{count:,} tokens", exact=True)).to_be_visible()
        before = await context.text_content() or ""
        await page.reload()
        await expect(context).to_have_text(before)
        await choose(page, "Sandboxed")
        await expect(page.get_by_role("complementary", name="Where commands run")).to_contain_text("Level: ")
        await page.keyboard.press("Escape")
        await expect(bar.get_by_role("button", name="Menu")).to_be_focused()


async def test_the_tokens_tell_how_much_of_the_prompt_is_that_of_the_request_before(tmp_path: Path) -> None:
    async with (
        upstream(WHOLE, repeat=True, chats=True) as server,
        chat_with(server) as model,
        serving(tmp_path, model) as served,
        browsing() as browser,
    ):
        page = await browser.page()
        await page.goto(home(served))
        await say(page, "Hello")
        await page.get_by_role("group", name="Status").get_by_role("button", name="Context:").click()
        panel = page.get_by_role("complementary", name="Tokens")
        await expect(panel).to_contain_text("0 % · the first request")
        await say(page, "Again")
        await expect(panel.get_by_text(re.compile(r"^9\d %$"))).to_be_visible()
        await shot(page, "tokens-prefix")


async def test_no_sandbox_is_a_warning_and_a_phone_reaches_all_of_the_bar(tmp_path: Path) -> None:
    async with serving(tmp_path, Scripted(DEMO), unsafe_no_sandbox="true") as served, browsing() as browser:
        page = await browser.page(viewport=PHONE | {"width": 320}, has_touch=True, is_mobile=True)
        await page.goto(home(served))
        await say(page, "Hello")
        bar = page.get_by_role("group", name="Status")
        await expect(bar.get_by_role("button", name="Context:")).to_be_visible()
        assert await too_wide(page) == []
        for name in ("Model:", "Context:", "No sandbox", "Menu"):
            box = await bar.get_by_role("button", name=name).bounding_box()
            assert box and box["height"] >= 44 and box["width"] >= 44, (name, box)
        await bar.get_by_role("button", name="No sandbox").tap()
        told = page.get_by_role("complementary", name="Where commands run")
        await expect(told).to_contain_text("they can do everything that the server's account can")
        await shot(page, "status-no-sandbox-phone")


@only_at_night
async def test_a_long_name_of_a_model_leaves_the_bar_in_one_line(tmp_path: Path) -> None:
    script = Scripted(DEMO, model="a-model-with-a-name-of-many-words-480b-a35b-instruct")
    async with serving(tmp_path, script) as served, browsing() as browser:
        page = await browser.page()
        await page.goto(home(served))
        await say(page, "Hello")
        bar = page.get_by_role("group", name="Status")
        await expect(bar.get_by_role("button", name="Context:")).to_be_visible()
        for width in (1280, 900, 600, 390, 320):
            await page.set_viewport_size({"width": width, "height": 700})
            high, cut = await bar.locator(".status-bar").evaluate(
                "async (one) => { await new Promise(requestAnimationFrame);"
                " return [one.offsetHeight, one.scrollWidth - one.clientWidth]; }"
            )
            assert (high < 40, cut) == (True, 0), (width, high, cut)


async def test_the_bar_says_when_the_model_reads_less_than_there_is(tmp_path: Path) -> None:
    model = Scripted(["Well. " * 100] * 3)
    async with serving(tmp_path, model, window="1500", summarise_at="1") as served, browsing() as browser:
        page = await browser.page()
        await page.goto(home(served))
        context = page.get_by_role("group", name="Status").get_by_role("button", name="Context:")
        for number in range(3):
            await say(page, f"Message {number}. " + "A long one. " * 120)
            await expect(page.get_by_role("article", name="Run").get_by_text("Well.")).to_have_count(number + 1)
        await expect(context).to_contain_text("· shortened")
        await context.click()
        await expect(page.get_by_role("complementary", name="Tokens")).to_contain_text("Older messages:")
        await shot(page, "context-shortened")
        await page.get_by_role("button", name="New conversation").first.click()
        await expect(context).to_be_hidden()


async def test_settings_hold_on_to_colours_and_tell_usage_and_decisions(tmp_path: Path) -> None:
    async with serving(tmp_path, Scripted(DEMO)) as served, browsing() as browser:
        page = await browser.page(color_scheme="light")
        await page.goto(home(served))
        await say(page, "Print hello world with the shell.")
        await expect(page.get_by_text("The shell printed Hello, World!")).to_be_visible()
        await page.get_by_role("button", name="Settings").click()
        panel = page.get_by_role("complementary", name="Settings")
        await expect(panel).to_contain_text("local")
        light = await background(page)
        await panel.get_by_label("Colours").select_option("Dark")
        dark = await background(page)
        assert light != dark
        await panel.get_by_text("Used this month").click()
        used = (await served.client.get("/usage")).json()["months"][0]["prompt_tokens"]
        await expect(panel.get_by_text(f"{used:,} tokens", exact=True)).to_be_visible()
        await panel.get_by_text("Decisions", exact=True).click()
        await expect(
            panel.get_by_role("region", name="Decisions").get_by_text("bash", exact=True).first
        ).to_be_visible()
        await shot(page, "settings-dark")
        await page.reload()
        await expect(page.get_by_role("group", name="Status").get_by_text("Connected")).to_be_visible()
        assert await background(page) == dark
        await page.get_by_role("button", name="Settings").click()
        await panel.get_by_label("Colours").select_option("System")
        assert await background(page) == light


async def background(page: Page) -> str:
    return str(await page.evaluate("getComputedStyle(document.body).backgroundColor"))


async def test_the_settings_do_not_guess_who_is_signed_in(tmp_path: Path) -> None:
    connected = asyncio.Event()

    async def late(route: Route) -> None:
        await connected.wait()
        await route.continue_()

    async with serving(tmp_path, Scripted([])) as served, browsing() as browser:
        page = await browser.page()
        await page.add_init_script(ALONE)
        await page.route("**/events*", late)
        await page.goto(home(served))
        await page.get_by_role("button", name="Settings").click()
        panel = page.get_by_role("complementary", name="Settings")
        await expect(panel.get_by_text("Loading")).to_be_visible()
        await expect(panel.get_by_text("proxy")).to_have_count(0)
        connected.set()
        await expect(panel.get_by_text("This server has no tokens")).to_be_visible()
        await expect(panel.get_by_text("Loading")).to_have_count(0)
        await expect(panel.get_by_text("People", exact=True)).to_be_visible()
