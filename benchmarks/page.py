"""The page in a real Chromium: bytes, time until one can write, and what streams cost the browser's main thread.

Time until one can write is told beside an empty file of the same server (its icon), in the same browser. The
milliseconds are processor time of the main thread: of scripts, styles and layout, and of the longest task, so that a
machine that does other things does not count. `python -m benchmarks.page`.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from playwright.async_api import Browser, Page

from benchmarks.page_model import DELTAS, FLOOD, LINES, PARAGRAPH, ROWS, STEADY, Told
from tests.support.page.browser import Browsing, browsing, home
from tests.support.page.chromium import launched
from tests.support.page.traffic import traffic
from tests.support.server.serving import Served, serving

ROUNDS = 5
RUNS = 100
LIMIT_MS = 120_000
LONG_MS = 50
SLOWER = 4  # a slow laptop's processor
BUSY = ("ScriptDuration", "RecalcStyleDuration", "LayoutDuration")
# When one can write: the page is shown, its box is there, and the server has said how things are.
WATCH = """
window.usable = new Promise((done) => {
  const look = () => {
    const box = document.querySelector("#composer-text");
    if (box && !box.disabled && box.offsetParent) return done(performance.now());
    requestAnimationFrame(look);
  };
  requestAnimationFrame(look);
});
window.frames_seen = 0;
const count = () => { window.frames_seen++; requestAnimationFrame(count); };
requestAnimationFrame(count);
"""


@dataclass(frozen=True, slots=True)
class Cost:
    """What a stretch of time cost the page."""

    seconds: float
    busy_ms: float
    layouts: float
    frames: float
    task_ms: list[float]
    heap_mb: float


def task_ms(events: list[dict[str, Any]]) -> list[float]:
    """Processor time of each task of pages' main threads, out of a trace."""
    threads = [one for one in events if one.get("name") == "thread_name"]
    main = {(one["pid"], one["tid"]) for one in threads if one["args"]["name"] == "CrRendererMain"}
    tasks = (one for one in events if (one["pid"], one["tid"]) in main and str(one.get("name")).endswith("RunTask"))
    return [one.get("tdur", 0) / 1000 for one in tasks]


class Gauge:
    """Chromium's own counters of one page."""

    def __init__(self, browser: Browser, page: Page, session: Any) -> None:
        self.page = page
        self._browser = browser
        self.session = session

    async def counted(self) -> dict[str, float]:
        told = await self.session.send("Performance.getMetrics")
        return {one["name"]: one["value"] for one in told["metrics"]}

    async def cost(self, work: Callable[[], Awaitable[None]]) -> Cost:
        frames = await self.page.evaluate("window.frames_seen")
        await self._browser.start_tracing(page=self.page, categories=["toplevel"])
        before, began = await self.counted(), time.monotonic()
        await work()
        after, seconds = await self.counted(), time.monotonic() - began
        tasks = task_ms(json.loads(await self._browser.stop_tracing())["traceEvents"])
        frames_then = await self.page.evaluate("window.frames_seen")
        await self.session.send("HeapProfiler.collectGarbage")
        heap = (await self.counted())["JSHeapUsedSize"] / 1e6
        grown = {name: after[name] - before[name] for name in ("Timestamp", "TaskDuration", "LayoutCount")}
        return Cost(
            seconds,
            grown["TaskDuration"] * 1000,
            grown["LayoutCount"],
            max(0, frames_then - frames),
            tasks,
            heap,
        )


@asynccontextmanager
async def gauged(browser: Browsing) -> AsyncGenerator[Gauge, None]:
    """A fresh browser's page that counts."""
    context = await browser.context()
    context.set_default_timeout(LIMIT_MS)
    await context.add_init_script(WATCH)
    page = await context.new_page()
    session = await context.new_cdp_session(page)
    await session.send("Performance.enable", {"timeDomain": "threadTicks"})
    await session.send("Network.enable")
    try:
        yield Gauge(browser.browser, page, session)
    finally:
        await context.close()


async def loads(browser: Browsing, address: str) -> None:
    """First load and second, beside the floor."""
    floors, cold, warm, slow = list[float](), list[float](), list[float](), list[float]()
    for _ in range(ROUNDS):
        async with gauged(browser) as gauge:
            await gauge.page.goto(f"{address}/page/icon.svg")
            floors.append(await gauge.page.evaluate("performance.getEntriesByType('navigation')[0].duration"))
        async with gauged(browser) as gauge:
            async with traffic(gauge.page) as seen:
                await gauge.page.goto(address)
                cold.append(await gauge.page.evaluate("window.usable"))
                await gauge.page.wait_for_selector('.status-link[data-state="open"]')
                await gauge.page.wait_for_selector(".examples li")
                size, requests = seen.bytes, len(seen.paths)
            await gauge.page.reload()
            warm.append(await gauge.page.evaluate("window.usable"))
        async with gauged(browser) as gauge:
            await gauge.session.send("Emulation.setCPUThrottlingRate", {"rate": SLOWER})
            await gauge.page.goto(address)
            slow.append(await gauge.page.evaluate("window.usable"))
    floor, first, second, slowly = median(floors), median(cold), median(warm), median(slow)
    print(f"{'first load':25}{size / 1000:9.1f} KB in {requests} requests")
    print(f"{'until one can write':25}{'ms':>9}{'ratio':>8}")
    print(f"{'an empty file (floor)':25}{floor:9.0f}{1:8.1f}")
    print(f"{'first load':25}{first:9.0f}{first / floor:8.1f}")
    print(f"{f'first, processor 1/{SLOWER}':25}{slowly:9.0f}{slowly / floor:8.1f}")
    print(f"{'loaded anew':25}{second:9.0f}{second / floor:8.1f}")


async def asked(page: Page, words: str) -> None:
    await page.get_by_role("textbox", name="Message").fill(words)
    await page.keyboard.press("Enter")


async def ended(page: Page) -> None:
    """The newest turn is over, and drawn; looked at seldom, because looking costs the page, too."""
    over = "() => document.querySelector('#conversation').textContent.includes('That was all.')"
    await page.wait_for_function(over, polling=250, timeout=LIMIT_MS)


def row(name: str, cost: Cost, thousands: float) -> str:
    longest, long = max(cost.task_ms), sum(ms > LONG_MS for ms in cost.task_ms)
    return (
        f"{name:25}{cost.seconds:8.1f}{cost.busy_ms / thousands:13.1f}{cost.frames / cost.seconds:10.0f}"
        f"{cost.layouts:9.0f}{long:12}{longest:12.0f}{cost.heap_mb:10.1f}"
    )


async def streams(browser: Browsing, address: str) -> None:
    print(f"\n{'':25}{'seconds':>8}{'ms per 1,000':>13}{'frames/s':>10}{'layouts':>9}{'over 50 ms':>12}", end="")
    print(f"{'longest ms':>12}{'heap MB':>10}")
    for name, words, thousands in (
        (f"{DELTAS:,} deltas, one answer", "answer", DELTAS / 1000),
        (f"{LINES:,} lines, a command", "command", LINES / 1000),
        (f"{FLOOD:,} lines", "flood", FLOOD / 1000),
        (f"a paragraph, {PARAGRAPH // 1000} KB", "paragraph", PARAGRAPH / 1000),
        (f"a table, {ROWS:,} rows", "table", ROWS / 1000),
    ):
        async with gauged(browser) as gauge:
            page = gauge.page
            await page.goto(address)
            await page.evaluate("window.usable")

            async def one(page: Page = page, words: str = words) -> None:
                await asked(page, words)
                await ended(page)

            print(row(name, await gauge.cost(one), thousands), flush=True)


ALL_TURNS = """async () => {
  const earlier = document.querySelector(".earlier");
  while (!earlier.hidden) {
    earlier.click();
    do await new Promise((done) => setTimeout(done, 20)); while (earlier.disabled);
  }
  document.querySelector("#composer-text").focus();
}"""
SCROLLED = """async () => {
  const box = document.querySelector("#conversation");
  for (const place of [0, 0.5, 0.25, 1]) {
    box.scrollTop = place * box.scrollHeight;
    await new Promise((done) => setTimeout(done, 300));
  }
}"""


async def long_session(browser: Browsing, served: Served, runs: int) -> None:
    """A conversation of many turns: opened by its address, shown from its beginning on, scrolled, written in."""
    session: str | None = None
    for number in range(runs):
        events = await served.chat(f"{STEADY} {number}", **({"session": session} if session else {}))
        session = events[0]["session"]
    async with gauged(browser) as gauge:
        page = gauge.page
        await page.goto(f"{home(served)}/page/icon.svg")

        async def opened() -> None:
            await page.goto(f"{home(served)}/#{session}")
            last = f"() => document.querySelector('#conversation')?.textContent.includes('{STEADY} {runs - 1}')"
            await page.wait_for_function(last, polling=50, timeout=LIMIT_MS)

        async def shown() -> None:
            await page.evaluate(ALL_TURNS)

        async def scrolled() -> None:
            await page.evaluate(SCROLLED)

        async def typed() -> None:
            await page.keyboard.type(STEADY * 4, delay=40)

        async def sent() -> None:
            await page.keyboard.press("Enter")
            await page.wait_for_timeout(1_000)

        steps = (
            ("opened", opened),
            ("all shown", shown),
            ("scrolled", scrolled),
            ("typed in", typed),
            ("a turn", sent),
        )
        for name, step in steps:
            print(row(f"{runs:,} turns, {name}", await gauge.cost(step), runs / 1000), flush=True)


async def measured(runs: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        async with launched(), serving(Path(folder), Told()) as served, browsing() as browser:
            browser.expected.append("404")  # beside the floor's file Chromium looks for an icon of it
            await loads(browser, home(served))
            await streams(browser, home(served))
            await long_session(browser, served, runs)


def main(arguments: list[str] | None = None) -> None:
    """The number of turns of the long conversation may be given: `python -m benchmarks.page 2000`."""
    asyncio.run(measured(int(arguments[0]) if arguments else RUNS))


if __name__ == "__main__":
    main(sys.argv[1:])
