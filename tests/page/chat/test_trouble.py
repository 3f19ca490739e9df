"""What breaks on the page is said in a line and stays in its part: the rest goes on."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path

import pytest
from playwright.async_api import Route

from app.core.provider import ProviderFailed
from app.models.endpoints.retry_policy import Backoff
from app.models.scripted import Raise, Scripted
from tests.support.models.upstream import answer, upstream
from tests.support.page.browser import PHONE, browsing, expect, home, say
from tests.support.page.stories import too_wide, turns
from tests.support.server.serving import serving

pytestmark = pytest.mark.usefixtures("chromium")


async def broken(route: Route) -> None:
    """The same file, but what the status bar begins with breaks."""
    answer = await route.fetch()
    text = (await answer.text()).replace('const bar = h("div", { class: "status-bar" });', "oh.no();")
    assert "oh.no" in text
    await route.fulfill(response=answer, body=text)


async def missing(route: Route) -> None:
    await route.fulfill(status=404)


async def test_a_part_that_breaks_is_told_and_leaves_the_others_alone(tmp_path: Path) -> None:
    async with serving(tmp_path, Scripted(["It works."])) as served, browsing() as browser:
        browser.expected.append("oh is not defined")
        page = await browser.page(viewport=PHONE)
        await page.route("**/first.js", broken)
        await page.goto(home(served))
        line = page.get_by_role("alert").filter(has_text="Part of the page failed: oh is not defined")
        await expect(line).to_be_visible()
        await expect(line.get_by_role("button", name="Reload the page")).to_be_visible()
        assert await too_wide(page) == []
        await line.get_by_role("button", name="Close").click()
        await expect(line).to_have_count(0)
        await say(page, "Do you?")
        await expect(turns(page).get_by_text("It works.")).to_be_visible()


async def test_a_part_that_cannot_be_loaded_is_told(tmp_path: Path) -> None:
    async with serving(tmp_path, Scripted([])) as served, browsing() as browser:
        browser.expected.append("404|Failed to (load|fetch)")
        page = await browser.page()
        await page.route("**/first.js", missing)
        await page.goto(home(served))
        line = page.get_by_role("alert").filter(has_text="A part of the page could not be loaded.")
        await expect(line).to_be_visible()
        await page.unroute("**/first.js")
        await line.get_by_role("button", name="Reload the page").click()
        await expect(page.get_by_role("textbox", name="Message")).to_be_visible()
        await page.route("**/js/panels/settings_panel.js", missing)  # fetched when it is first wanted
        await page.get_by_role("button", name="Settings").click()
        await expect(line).to_be_visible()


async def test_a_message_is_kept_while_what_shows_turns_cannot_be_loaded(tmp_path: Path) -> None:
    async with serving(tmp_path, Scripted(["It works."])) as served, browsing() as browser:
        browser.expected.append("404|Failed to (load|fetch)")
        page = await browser.page()
        await page.route("**/turns.js", missing)
        await page.goto(home(served))
        await say(page, "Do you?")
        await expect(page.get_by_text("Try again, or reload the page.")).to_be_visible()
        await expect(page.get_by_role("textbox", name="Message")).to_have_value("Do you?")
        await page.unroute("**/turns.js")
        await page.get_by_role("button", name="Send").click()
        await expect(turns(page).get_by_text("It works.")).to_be_visible()


async def test_a_watcher_that_breaks_and_a_promise_that_nobody_waits_for_are_told(tmp_path: Path) -> None:
    async with serving(tmp_path, Scripted([])) as served, browsing() as browser:
        browser.expected.append("first|second")
        page = await browser.page()
        await page.goto(home(served))
        heard = await page.evaluate(
            """async () => {
              const address = document.querySelector('script[src*="main.js"]').src.replace("main.js", "feed/store.js");
              const { Store } = await import(address);
              const store = new Store();
              const heard = [];
              store.watch("one", () => { throw new Error("first"); });
              store.watch("one", (value) => heard.push(value));
              store.set({ one: 1 });
              Promise.reject(new Error("second"));
              return heard;
            }"""
        )
        assert heard == [1]
        await expect(page.locator(".page-error")).to_contain_text("first")
        await expect(page.locator(".page-error")).to_contain_text("second")


async def test_a_refused_key_is_said_in_words_and_can_be_tried_again(tmp_path: Path) -> None:
    body = json.dumps({"error": {"message": "Incorrect API key provided.", "type": "invalid_request_error"}})
    refusal = answer(body, 401)
    async with (
        upstream(refusal, repeat=True) as models,
        serving(tmp_path, None, model_url=models.base_url, model="m") as served,
        browsing() as browser,
    ):
        page = await browser.page()
        await page.goto(home(served))
        await say(page, "Hello")
        problem = page.locator(".problem.end-line")
        await expect(problem).to_contain_text("answered 401: Incorrect API key provided. Set DRAGOMAN_MODEL_KEY")
        await problem.get_by_role("button", name="Try again").click()
        await expect(turns(page)).to_have_count(2)


async def test_a_retry_counts_the_seconds_down(tmp_path: Path) -> None:
    now = Scripted([[Raise(ProviderFailed("model_busy", "Busy.", retryable=True, retry_after_s=20))], "Here I am."])
    held = asyncio.Event()

    async def sleep(_: float) -> None:
        await held.wait()

    async with serving(tmp_path, now) as served, browsing() as browser:
        served.services.models.backoff = Backoff(sleep=sleep)
        page = await browser.page()
        await page.goto(home(served))
        await say(page, "Hello")
        note = page.locator(".note[data-code=retry]")
        await expect(note).to_have_text(re.compile(r"^\S+ is rate limited\. Retrying in 1\d s \(attempt 2 of 5\)\.$"))
        await expect(page.locator(".working")).to_be_hidden()
        held.set()
        await expect(page.get_by_text("Here I am.")).to_be_visible()
        await expect(note).to_contain_text("Retrying (attempt 2 of 5).")
