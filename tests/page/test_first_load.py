"""What a first visit takes: requests and bytes until one can write, and what comes later."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.models.scripted import Scripted
from routes.page import files
from tests.support.page.browser import PHONE, browsing, expect, home, say
from tests.support.page.stories import turns
from tests.support.page.traffic import traffic
from tests.support.server.serving import serving

pytestmark = pytest.mark.usefixtures("chromium")

MOST_BYTES, MOST_REQUESTS = 120_000, 40
WORKER = "js/feed/feed_worker.js"
# What comes by itself after 20 seconds is none of the first load, however long a busy machine takes for that.
NOT_BY_ITSELF = """const begin = setTimeout;
  window.setTimeout = (run, ms, ...more) => (ms === 20_000 ? 0 : begin(run, ms, ...more));"""
WRITE = {"en-GB": "Message", "de-DE": "Nachricht"}


@pytest.mark.parametrize("locale", WRITE)
async def test_a_first_visit_takes_little_and_the_rest_comes_when_something_is_done(
    tmp_path: Path, locale: str
) -> None:
    async with serving(tmp_path, Scripted(["It works."])) as served, browsing() as browser:
        page = await browser.page(locale=locale, viewport=PHONE)
        await page.add_init_script(NOT_BY_ITSELF)
        async with traffic(page) as seen:
            await page.goto(home(served))
            box = page.get_by_role("textbox", name=WRITE[locale])
            await expect(box).to_be_editable()
            await expect(page.locator(".examples li")).to_have_count(3)
            await expect(page.locator(".status-link")).to_have_attribute("data-state", "open")
            await page.wait_for_load_state("load")
            # The file of the shared worker, and its request for events: the page's debugger does not see them.
            size, requests = seen.bytes + len(files()[WORKER].small) + 1_500, len(seen.paths) + 1
            print(f"first load, {locale}: {size:,} bytes in {requests} requests: {seen.names()}")
            assert size < MOST_BYTES and requests <= MOST_REQUESTS
            assert "turns.js" not in seen.names()
            async with page.expect_response("**/turns.js"):
                await box.press("H")
            assert seen.names().count("first.js") == 1


async def test_each_module_runs_once_whatever_it_is_joined_with(tmp_path: Path) -> None:
    async with serving(tmp_path, Scripted(["It works."])) as served, browsing() as browser:
        page = await browser.page()
        await page.goto(home(served))
        await say(page, "Do you?")
        await expect(turns(page).get_by_text("It works.")).to_be_visible()
        same = """async () => {
          const js = document.querySelector('script[src*="main.js"]').src.replace("main.js", "");
          const all = await Promise.all(["first.js", "turns.js"].map((name) => import(`${js}../${name}`)));
          const { h } = await import(`${js}dom/elements.js`);
          const { RunView } = await import(`${js}chat/run_view.js`);
          return h === all[0].$dom_elements.h && RunView === all[1].$chat_run_view.RunView;
        }"""
        assert await page.evaluate(same)
