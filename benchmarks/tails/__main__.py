"""The page's tails under 100,000 lines, and the echo of a key on its screen: `python -m benchmarks.tails`.

Real Chromium, server and processes. Milliseconds of tasks are processor time of the page's main thread. Lines are an
output that is opened as a whole, searched and scrolled through; the screen is the same output in xterm.js, and
a program there that redraws all of it a hundred times.
"""

from __future__ import annotations

import asyncio
import json
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from statistics import median

from app.models.scripted import Scripted
from benchmarks.page import LONG_MS, task_ms
from parsing import Call
from tests.support.page.browser import Browsing, Page, browsing, expect, home, say
from tests.support.page.chromium import launched
from tests.support.server.serving import serving

LINES = 100_000
KEYS = 20
COMMAND = f"for i in $(seq 0 99); do seq -f 'compiling module %.0f of {LINES}' $((i * 1000 + 1)) $((i * 1000 + 1000)); "
COMMAND += "sleep 0.02; done; read"
REDRAWS = """
import os, time
for step in range(100):
    rows = b"\\r\\n".join(b"\\x1b[3%dm%03d %s\\x1b[m" % (row % 8, step, b"x" * 70) for row in range(24))
    os.write(1, b"\\x1b[H" + rows)
    time.sleep(0.03)
os.write(1, b"\\x1b[H\\x1b[2Jall drawn\\r\\n")
while os.read(0, 1):
    pass
"""
LIMIT_MS = 30_000


async def measured(browser: Browsing, page: Page, name: str, work: Callable[[], Awaitable[None]]) -> None:
    await browser.browser.start_tracing(page=page, categories=["toplevel"])
    began = time.monotonic()
    await work()
    seconds = time.monotonic() - began
    tasks = task_ms(json.loads(await browser.browser.stop_tracing())["traceEvents"])
    long = sum(ms > LONG_MS for ms in tasks)
    print(f"{name:45}{seconds:8.1f}{sum(tasks):10.0f}{max(tasks):10.1f}{long:8}", flush=True)


async def lines(browser: Browsing, page: Page) -> None:
    card = page.locator(".card").first

    async def watched() -> None:
        await say(page, "Build.")
        await card.get_by_role("button", name="Show all").click()
        last = f"() => document.querySelector('.tail')?.textContent.includes('module {LINES} of')"
        await page.wait_for_function(last, polling=250, timeout=LIMIT_MS)

    async def searched() -> None:
        await card.get_by_role("button", name="Search").click()
        await card.get_by_role("searchbox").fill(f"module {LINES - 5}")
        await page.wait_for_function("() => document.querySelector('.tail-found').textContent", timeout=LIMIT_MS)

    async def drawn() -> None:
        await card.get_by_role("button", name="As a screen").click()
        last = f"() => document.querySelector('.xterm-rows')?.textContent.includes('{LINES}')"
        await page.wait_for_function(last, polling=250, timeout=LIMIT_MS)

    await measured(browser, page, f"{LINES:,} lines, watched as a whole", watched)
    await measured(browser, page, "the same, searched", searched)
    await measured(browser, page, "the same, replayed on a screen", drawn)
    await card.get_by_label("Type into this command").press("Enter")
    await expect(card).to_have_attribute("data-state", "done")


async def screen(browser: Browsing, page: Page) -> None:
    async def redrawn() -> None:
        await say(page, "Draw.")
        await page.locator(".card").nth(1).locator(".xterm-rows").scroll_into_view_if_needed()  # else it is not drawn
        done = "() => [...document.querySelectorAll('.xterm-rows')].at(-1)?.textContent.includes('drawn')"
        await page.wait_for_function(done, polling=250, timeout=LIMIT_MS)

    await measured(browser, page, "a program that redraws 24 rows 100 times", redrawn)
    await page.locator(".card").nth(1).get_by_role("textbox", name="Output of bash").focus()
    echoes = list[float]()
    for number in range(KEYS):
        began = time.monotonic()
        await page.keyboard.type("x")
        shown = "(text) => [...document.querySelectorAll('.xterm-rows')].at(-1).textContent.includes(text)"
        await page.wait_for_function(shown, arg="x" * (number + 1), polling="raf", timeout=LIMIT_MS)
        echoes.append((time.monotonic() - began) * 1000)
    print(f"{'a key until its echo is drawn, ms':45}{median(echoes):8.0f} (longest {max(echoes):.0f})")


async def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "work").mkdir()
        (folder / "work/draws.py").write_text(REDRAWS)
        commands = [COMMAND, "python3 draws.py"]
        replies = [reply for one in commands for reply in ([Call(0, "bash", {"command": one}, "native")], "Done.")]
        async with (
            launched(),
            serving(folder, Scripted(replies), approval_admin="sandboxed") as served,
            browsing() as browser,
        ):
            page = await browser.page()
            await page.goto(home(served))
            print(f"{'':45}{'seconds':>8}{'busy ms':>10}{'longest':>10}{'>50 ms':>8}")
            await lines(browser, page)
            await screen(browser, page)


if __name__ == "__main__":
    asyncio.run(main())
