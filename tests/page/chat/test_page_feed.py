"""The page's one connection in a real browser: it breaks and heals, nothing is lost and nothing shown twice."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path

import pytest
from playwright.async_api import Route

from app.models.scripted import Pause, Scripted
from tests.support.access.people import port_of
from tests.support.nightly import only_at_night
from tests.support.page.browser import STORY_S, Page, browsing, cpu_ms, expect, home, say
from tests.support.page.windows import ALONE, until_streams
from tests.support.page.wire import wired
from tests.support.server.serving import serving

pytestmark = pytest.mark.usefixtures("chromium")

DELTAS = 5_000
# What a connection that a test has cut makes the browser say.
CUT = r"net::ERR_(CONNECTION|INCOMPLETE|EMPTY|SOCKET)"


@only_at_night  # by day a line is cut and chops everything (test_life)
async def test_five_thousand_deltas_over_a_connection_that_is_cut_again_and_again(tmp_path: Path) -> None:
    steps = [asyncio.Event() for _ in range(4)]
    numbers = [f"{number}:{'x' * 24} " for number in range(DELTAS)]
    reply: list[str | Pause] = []
    for at, step in enumerate(steps):
        reply += [*numbers[at * 1250 : (at + 1) * 1250], Pause(step)]
    async with (
        asyncio.timeout(STORY_S),
        serving(tmp_path, Scripted([reply])) as served,
        wired(port_of(served)) as wire,
        browsing() as browser,
    ):
        browser.expected.append(CUT)
        page = await browser.page()
        await page.goto(wire.url)
        await say(page, "Count.")
        wire.most = 12_000
        for at, step in enumerate(steps):
            await expect(page.locator(".run-body")).to_contain_text(f"{(at + 1) * 1250 - 1}:x")
            if step is steps[-1]:
                wire.most = None  # the last event alone is longer: it repeats the whole text
            step.set()
        await expect(page.get_by_role("button", name="Stop")).to_be_hidden()
        shown = " ".join(await page.locator(".run-body p").all_text_contents())
        assert shown.split() == [number.strip() for number in numbers]
        assert wire.cuts >= 4


async def test_a_lost_connection_shows_itself_and_heals_where_it_broke(tmp_path: Path) -> None:
    go_on = asyncio.Event()
    async with (
        asyncio.timeout(STORY_S),
        serving(tmp_path, Scripted([["Before. ", Pause(go_on), "After."], ["Next."]])) as served,
        wired(port_of(served)) as wire,
        browsing() as browser,
    ):
        browser.expected.append(CUT)
        page = await browser.page()
        await page.goto(wire.url)
        await say(page, "1")
        await expect(page.get_by_text("Before.")).to_be_visible()
        wire.down = True
        wire.cut()
        await expect(page.get_by_text("Connection lost")).to_be_visible()
        go_on.set()
        [session] = (await served.client.get("/sessions")).json()["sessions"]
        await served.chat("2", session=session["id"], when_busy="queue")
        wire.down = False
        await page.get_by_role("button", name="Reconnect now").click()
        await expect(page.get_by_text("Before. After.")).to_have_count(1)
        await expect(page.get_by_text("Next.")).to_have_count(1)
        await expect(page.get_by_text("Connection lost")).to_be_hidden()


async def test_windows_without_a_shared_worker_take_turns_and_each_loads(tmp_path: Path) -> None:
    async with (
        asyncio.timeout(STORY_S),
        serving(tmp_path, Scripted([["One."], ["Two."]])) as served,
        browsing() as browser,
    ):
        context = await browser.context()
        await context.add_init_script(ALONE)
        session = (await served.chat("1"))[0]["session"]
        pages: list[Page] = []
        for _ in range(8):
            pages.append(await context.new_page())
            await pages[-1].goto(f"{home(served)}/#{session}")
            await expect(pages[-1].get_by_text("One.")).to_be_visible()
            await expect(pages[-1].get_by_text("Connected")).to_be_visible()
        await until_streams(served, "local", 3)
        await served.chat("2", session=session)
        await expect(pages[-1].get_by_text("Two.")).to_have_count(1)
        await expect(pages[0].get_by_text("Two.")).to_have_count(0)
        await pages[0].evaluate("document.dispatchEvent(new Event('visibilitychange'))")  # it is looked at
        await expect(pages[0].get_by_text("Two.")).to_have_count(1)


async def test_the_page_says_at_once_that_the_browser_is_offline(tmp_path: Path) -> None:
    async with asyncio.timeout(STORY_S), serving(tmp_path, Scripted([["Fine."]])) as served, browsing() as browser:
        browser.expected.append("ERR_INTERNET_DISCONNECTED")
        page = await browser.page()
        await page.goto(home(served))
        await expect(page.get_by_text("Connected")).to_be_visible()
        await page.evaluate(
            "dispatchEvent(new Event('offline'))"
        )  # as without a network; the server is on this machine
        await page.evaluate("fetch('/livez')")
        await expect(page.get_by_text("You are offline.")).to_be_hidden()
        await page.context.set_offline(True)
        await expect(page.get_by_text("You are offline.")).to_be_visible(timeout=1_500)
        await page.context.set_offline(False)
        await expect(page.get_by_text("You are offline.")).to_be_hidden(timeout=3_000)
        await say(page, "1")
        await expect(page.get_by_text("Fine.")).to_be_visible()


# Every way to cut one stream in three must give the same events.
SLICING = """
async () => {
  const { EventReader } = await import("/page/js/feed/sse.js");
  const stream = '\\ufeffretry: 1\\nid: r:1\\nevent: a\\ndata: {"x":\\r\\ndata: 1}\\r\\n\\r\\n: c\\n\\rdata:[2]\\r\\r' +
    'data\\n\\nid: r:2\\revent: b\\rdata: "\\u00e9\\u{1f600}\\u2028"\\r\\r';
  const read = (...slices) => {
    const reader = new EventReader();
    return JSON.stringify(slices.flatMap((slice) => reader.feed(slice)));
  };
  const whole = read(stream), wrong = [];
  for (let a = 0; a <= stream.length; a++) {
    for (let b = a; b <= stream.length; b++) {
      const seen = read(stream.slice(0, a), stream.slice(a, b), stream.slice(b));
      if (seen !== whole) wrong.push([a, b, seen]);
    }
  }
  return { events: JSON.parse(whole), wrong };
}
"""
LONG_IN_SMALL_SLICES = """
async () => {
  const { EventReader } = await import("/page/js/feed/sse.js");
  const reader = new EventReader(), long = `data: "${"x".repeat(4e6)}"\\n\\n`;
  for (let at = 0; at < long.length; at += 512) reader.feed(long.slice(at, at + 512));
}
"""


async def test_events_are_read_in_any_slicing_and_what_is_none_ends_nothing(
    tmp_path: Path,
) -> None:
    async with asyncio.timeout(STORY_S), serving(tmp_path, Scripted([["Fine."]])) as served, browsing() as browser:
        page = await browser.page()
        await page.add_init_script(ALONE)
        tries = 0

        async def broken_first(route: Route) -> None:
            nonlocal tries
            tries += 1
            if tries > 2:
                await route.continue_()
                return
            body = "event: state\ndata: {not json\n\n" if tries == 1 else "event: unheard-of\ndata: {}\n\n"
            await route.fulfill(body=body, content_type="text/event-stream")

        await page.route("**/events*", broken_first)
        await page.goto(home(served))
        await say(page, "1")
        await expect(page.get_by_text("Fine.")).to_be_visible()
        assert tries >= 3
        read = await page.evaluate(SLICING)
        assert read["wrong"] == []
        assert [json.loads(one["data"]) for one in read["events"]] == [{"x": 1}, [2], "\u00e9\U0001f600\u2028"]
        assert [(one["id"], one["type"]) for one in read["events"]] == [("r:1", "a"), (None, "message"), ("r:2", "b")]
        _, took_ms = await cpu_ms(page, LONG_IN_SMALL_SLICES)
        assert took_ms < 9_000, "each slice must not be looked at again and again: that takes 10 s at best"


async def test_a_connection_that_has_fallen_silent_is_taken_up_anew(tmp_path: Path) -> None:
    async with asyncio.timeout(STORY_S), serving(tmp_path, Scripted([["Fine."]])) as served, browsing() as browser:
        page = await browser.page()
        await page.add_init_script(ALONE)
        await page.clock.install()
        await page.goto(home(served))
        await expect(page.get_by_text("Connected")).to_be_visible()
        [place] = served.services.presence._places["local"]
        # The lid is closed: no timer runs, and the clock on the wall goes on.
        await page.clock.set_system_time(time.time() + 60)
        async with page.expect_response("**/events*"):
            await page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
            await place.wait_left()
        [place] = served.services.presence._places["local"]
        await page.clock.set_system_time(time.time() + 120)
        async with page.expect_response("**/events*"):
            await page.clock.run_for(5_100)
            await place.wait_left()
        await page.clock.resume()
        await say(page, "1")
        await expect(page.get_by_text("Fine.")).to_be_visible()
