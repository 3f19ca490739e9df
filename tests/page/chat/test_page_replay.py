"""Watching a run again: its timeline, the page as it was at an event, playing, and links to an event."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from app.models.scripted import Pause, Reply, Scripted
from parsing import Thought
from tests.support.models.replies import native_bash
from tests.support.nightly import at_night
from tests.support.page.axe import LOOKS, page_for_axe, violations
from tests.support.page.browser import STORY_S, Browsing, Locator, Page, browsing, expect, home, say, shot
from tests.support.page.stories import too_wide
from tests.support.server.serving import Served, serving

pytestmark = pytest.mark.usefixtures("chromium")

SCRIPT: list[Reply] = [
    (Thought("How?"), "I ", "look ", "first.\n\n", native_bash("echo one")),
    ("Now I **write**.\n\n", native_bash("echo two")),
    "It is done.",
    "Later words.",
]
LONGEST_MS, SWEEPS = 50, 6  # of a task, in the best of so many sweeps
# What a reader sees of a run: its texts, and the cards with their states and outputs.
SEEN = """(run) => ({
  texts: [...run.querySelectorAll(".answer, .reasoning, .user-message")].map((one) => one.textContent),
  cards: [...run.querySelectorAll(".card")].map((card) => [card.dataset.state,
    ...[...card.querySelectorAll(".card-tool, .card-title, .command, .tail, .card-brief")]
      .map((one) => one.textContent)]),
  working: !run.querySelector(".working").hidden,
})"""
# Resolves once the cursor was dragged to the beginning and to the middle, and all was drawn.
SCRUB = """async ([count, positions]) => {
  const line = document.querySelector("[role=slider]");
  const { left, width, top } = line.getBoundingClientRect();
  line.hasPointerCapture = () => true;
  for (let step = 0; step <= positions; step++) {
    const part = Math.max(1 - (2 * step) / positions, (1.02 * step) / positions - 0.51);
    line.dispatchEvent(new PointerEvent("pointermove", { clientX: left + part * width, clientY: top, pointerId: 1 }));
    await new Promise(requestAnimationFrame);
  }
  for (let frame = 0; frame < 600 && document.querySelectorAll(".replayed .card").length !== count; frame++)
    await new Promise(requestAnimationFrame);
}"""


@asynccontextmanager
async def two_runs(folder: Path) -> AsyncGenerator[tuple[Served, str, Browsing]]:
    """A server with a conversation of two runs, the first of which has two calls."""
    async with asyncio.timeout(STORY_S), serving(folder, Scripted(SCRIPT)) as served, browsing() as browser:
        session = (await served.chat("Do it.", approval="auto"))[0]["session"]
        await served.chat("More.", session=session)
        yield served, session, browser


async def timeline_of(page: Page, at: str) -> Locator:
    """The timeline of the first run, opened."""
    await page.goto(at)
    await page.get_by_role("button", name="Timeline").first.click()
    line = page.get_by_role("slider", name="Timeline of this run")
    await expect(line).to_be_focused()
    return line


async def log_of(served: Served, session: str) -> dict[str, Any]:
    log: dict[str, Any] = (await served.client.get(f"/sessions/{session}/log")).json()
    return log


async def seen_live(browser: Browsing, served: Served, session: str, seq: int) -> Any:
    """What a page shows that got only the events of the first run until this one."""
    log = await log_of(served, session)
    run = log["runs"][0] | {"state": "running", "ended": None}
    run["events"] = [event for event in run["events"] if event["seq"] <= seq]
    page = await browser.page()
    await page.route("**/log?*", lambda route: route.fulfill(json=log | {"runs": [run]}))
    await page.goto(f"{home(served)}/#{session}")
    await expect(page.locator(".run")).to_have_count(1)
    await page.wait_for_function(
        "() => document.querySelector('.run .card, .run .answer, .run .working:not([hidden])')"
    )
    return await settled(page.locator(".run"))


async def settled(run: Locator) -> Any:
    """What is seen of a run once two looks at it are the same: texts are drawn over some frames."""
    last, seen = None, await run.evaluate(SEEN)
    while seen != last:
        await run.evaluate("() => new Promise((done) => setTimeout(() => requestAnimationFrame(done), 60))")
        last, seen = seen, await run.evaluate(SEEN)
    return seen


async def test_the_page_is_as_it_was_at_an_event(tmp_path: Path) -> None:
    async with two_runs(tmp_path) as (served, session, browser):
        page = await browser.page()
        line = await timeline_of(page, f"{home(served)}/#{session}")
        events = (await log_of(served, session))["runs"][0]["events"]
        kinds = {(event["type"], event.get("call")): event["seq"] for event in events}
        wanted = [seq for (kind, _), seq in kinds.items() if kind in ("tool.started", "tool.finished", "round.started")]
        bar = page.locator(".replay-bar")
        await expect(bar).to_be_hidden()
        shown = page.locator(".replayed > .run")
        for seq in (*sorted(wanted, reverse=True)[1:3], sorted(wanted)[1]):  # back, back, and far back
            now = int(await line.get_attribute("aria-valuenow") or 0)
            key = "ArrowLeft" if seq < now else "ArrowRight"
            for _ in range(abs(now - seq)):
                await line.press(key)
            await expect(bar).to_contain_text(f"You see event {seq} of {events[-1]['seq']}.")
            assert await settled(shown) == await seen_live(browser, served, session, seq), seq
        assert await page.locator("#composer").evaluate("(one) => one.inert")
        await expect(page.locator(".runs > .run:visible")).to_have_count(0)
        await shot(page, "replay")
        await page.keyboard.press("Escape")
        await expect(bar).to_be_hidden()
        await expect(page.get_by_text("Later words.")).to_be_visible()
        assert not await page.locator("#composer").evaluate("(one) => one.inert")


async def test_the_timeline_is_a_slider_that_plays_until_now(tmp_path: Path) -> None:
    async with two_runs(tmp_path) as (served, session, browser):
        page = await browser.page()
        loaded: list[str] = []
        page.on("request", lambda request: loaded.append(request.url))
        await page.goto(f"{home(served)}/#{session}")
        await expect(page.locator(".turn-foot")).to_have_count(2)
        assert not [url for url in loaded if "replay" in url or "/runs/" in url]
        await page.get_by_role("button", name="Timeline").first.click()
        line = page.get_by_role("slider", name="Timeline of this run")
        last = int(await line.get_attribute("aria-valuemax") or 0)
        await expect(line).to_have_attribute("aria-valuenow", str(last))
        await line.press("Home")
        await expect(line).to_have_attribute("aria-valuetext", re.compile(r"Start, event 1 of \d+"))
        for _ in range(2):
            await line.press("PageUp")
        await expect(line).to_have_attribute("aria-valuetext", re.compile(r"Step 2, event \d+ of \d+"))
        await line.press("PageDown")
        await expect(line).to_have_attribute("aria-valuetext", re.compile("Step 1, event 2 of"))
        await page.get_by_label("Speed").select_option("100")
        await page.get_by_role("button", name="Play").click()
        await expect(page.locator(".replay-bar")).to_be_hidden()
        await expect(line).to_have_attribute("aria-valuenow", str(last))
        await expect(page.get_by_role("button", name="Play")).to_be_visible()
        await expect(page.get_by_text("Later words.")).to_be_visible()
        await expect(page.locator(".replayed")).to_have_count(0)
        box = await line.bounding_box()
        assert box
        await page.mouse.click(box["x"] + box["width"] / 3, box["y"] + box["height"] / 2)
        await expect(page.locator(".replay-bar")).to_be_visible()
        await page.get_by_role("button", name="Back to now").click()
        await expect(line).to_be_focused()
        await page.keyboard.press("Escape")
        await expect(line).to_have_count(0)
        await expect(page.get_by_role("button", name="Timeline").first).to_be_focused()


async def test_a_link_shows_the_conversation_at_an_event(tmp_path: Path) -> None:
    async with two_runs(tmp_path) as (served, session, browser):
        run = (await log_of(served, session))["runs"][0]
        seq = next(event["seq"] for event in run["events"] if event["type"] == "tool.started")
        context = await browser.context()
        await context.grant_permissions(["clipboard-read", "clipboard-write"])
        page = await context.new_page()
        at = f"{home(served)}/#{session}"
        await page.goto(f"{at}/{run['run']}/{seq}")
        line = page.get_by_role("slider")
        await expect(line).to_have_attribute("aria-valuetext", re.compile(f"Step 1, call bash, event {seq} of"))
        await expect(page.locator(".replayed .card")).to_have_attribute("data-state", "running")
        await expect(page.get_by_role("button", name="Stop command")).to_have_count(0)
        await page.get_by_role("button", name="Copy a link to this event").click()
        await page.wait_for_function(
            "async (text) => (await navigator.clipboard.readText()) === text", arg=f"{at}/{run['run']}/{seq}"
        )
        await page.keyboard.press("Escape")
        await expect(page).to_have_url(at)
        for link, words in {
            f"{run['run']}/9999": "This run has no event 9999.",
            f"{run['run']}/x": "This run has no event x.",
            f"{run['run']}/-1": "This run has no event -1.",
            "run_none/1": "This conversation has no such run",
        }.items():
            await page.evaluate("(link) => (location.hash = link)", f"{session}/{link}")
            dialog = page.get_by_role("dialog", name="Timeline")
            await expect(dialog).to_contain_text(words)
            await dialog.get_by_role("button", name="Close").click()
            await expect(page.get_by_text("Later words.")).to_be_visible()


async def test_a_link_leaves_the_past_that_another_link_has_shown(tmp_path: Path) -> None:
    async with two_runs(tmp_path) as (served, session, browser):
        runs = (await log_of(served, session))["runs"]
        first, second = runs[0]["run"], runs[1]["run"]
        branch = (await served.client.post(f"/sessions/{session}/fork", json={"before": second})).json()["id"]
        page = await browser.page()
        bar = page.locator(".replay-bar")
        await page.goto(f"{home(served)}/#{session}/{first}/3")
        await expect(bar).to_contain_text("You see event 3 of")
        for link in (f"{session}/{first}/2", f"{session}/{second}/2"):
            await page.evaluate("(link) => (location.hash = link)", link)
            await expect(bar).to_contain_text("You see event 2 of")
            await expect(page).to_have_url(f"{home(served)}/#{link}")
        await page.evaluate("(link) => (location.hash = link)", f"{branch}/run_none/2")
        dialog = page.get_by_role("dialog", name="Timeline")
        await dialog.get_by_role("button", name="Close").click()
        await expect(page).to_have_url(f"{home(served)}/#{branch}/run_none/2")
        await expect(page.locator(".message-tools").first).to_be_visible()
        await page.go_back()
        await expect(bar).to_be_visible()
        await page.evaluate("(link) => (location.hash = link)", f"{session}/run_none/2")
        await dialog.get_by_role("button", name="Close").click()
        await expect(bar).to_have_count(0)  # as the words say
        await page.go_back()
        await expect(bar).to_be_visible()
        await page.evaluate("(link) => (location.hash = link)", session)
        await expect(bar).to_be_hidden()


async def test_a_timeline_goes_on_with_its_run(tmp_path: Path) -> None:
    more, rest = asyncio.Event(), asyncio.Event()
    script: list[Reply] = [("It begins. ", Pause(more), native_bash("echo one")), (Pause(rest), "It is done.")]
    async with asyncio.timeout(STORY_S), serving(tmp_path, Scripted(script)) as served, browsing() as browser:
        page = await browser.page()
        await page.goto(home(served))
        await say(page, "Do it.")
        await expect(page.get_by_text("It begins.")).to_be_visible()
        await say(page, "/timeline")
        line = page.get_by_role("slider")
        before = int(await line.get_attribute("aria-valuemax") or 0)
        await line.press("Home")
        more.set()
        await expect(page.locator(".runs > .run .card")).to_have_attribute("data-state", "done")
        await expect(page.locator(".replayed .card")).to_have_count(0)
        await page.keyboard.press("Escape")
        await expect(page.get_by_role("slider", name="Timeline of this run")).to_be_focused()
        await expect(line).not_to_have_attribute("aria-valuemax", str(before))
        await expect(line).to_have_attribute("aria-valuetext", re.compile("Step 2"))
        rest.set()
        await expect(page.locator(".turn-foot")).to_be_visible()


async def test_a_shared_conversation_is_watched_again_read_only(tmp_path: Path) -> None:
    async with two_runs(tmp_path) as (served, session, browser):
        share = (await served.client.post(f"/sessions/{session}/shares", json={})).json()
        link = f"{home(served)}{share['path']}"
        page = await browser.page()
        asked: list[str] = []
        page.on("request", lambda request: asked.append(request.url.removeprefix(home(served))))
        line = await timeline_of(page, link)
        await line.press("PageDown")
        await line.press("ArrowLeft")
        await expect(page.locator(".replayed .card")).to_have_count(2)
        await expect(page.get_by_text("It is done.")).to_be_hidden()
        await expect(page.get_by_role("button", name="Try from here")).to_have_count(0)
        await shot(page, "replay-shared")
        await page.keyboard.press("Escape")
        await expect(page.get_by_text("It is done.")).to_be_visible()
        run = (await log_of(served, session))["runs"][0]["run"]
        await page.goto("about:blank")
        await page.goto(f"{link}#{run}/3")
        await expect(page.locator(".replay-bar")).to_contain_text("You see event")
        await page.evaluate("(link) => (location.hash = link)", f"{run}/2")
        await expect(page.locator(".replay-bar")).to_contain_text("You see event 2 of")
        await page.goto("about:blank")
        await page.goto(f"{link}#run_none/3")
        await expect(page.get_by_role("dialog")).to_contain_text("no such run")
        assert {one.split("/")[1] for one in asked if one.startswith("/")} == {"shared", "page"}, asked


ROUNDS, DELTAS = 40, 120


def long_run() -> list[dict[str, Any]]:
    """The events of a run of 40 rounds, each with text, a call and its output."""
    events: list[dict[str, Any]] = [{"type": "run.started", "run": "r", "session": "s", "model": "m", "tools": []}]
    for number in range(ROUNDS):
        call = {"call": f"c{number}", "name": "bash"}
        events.append({"type": "round.started", "round": number + 1})
        events += [{"type": "text.delta", "text": f"word{one} **of** "} for one in range(DELTAS)]
        events.append({"type": "tool.started", **call, "arguments": {"command": f"seq {number}"}, "dialect": "native"})
        tail = {"tail": [f"line {number}"], "lines": 1, "bytes": 9}
        events.append({"type": "tool.progress", "call": call["call"], "elapsed_s": 1.0, **tail})
        events.append({"type": "tool.finished", **call, "ok": True, "text": f"line {number}\n" * 20, "duration_s": 2.0})
    events.append(
        {"type": "run.finished", "reason": "answered", "text": "", "rounds": ROUNDS, "calls": 40, "usage": {}}
    )
    return [{"seq": seq, **event} for seq, event in enumerate(events, 1)]


async def page_of(browser: Browsing, served: Served, session: str, events: list[dict[str, Any]]) -> Page:
    """A page of the session, in which a run with these events stands for all."""
    stream = "".join(f"id: {one['seq']}\nevent: {one['type']}\ndata: {json.dumps(one)}\n\n" for one in events)
    log = await log_of(served, session)
    log["runs"] = [log["runs"][0] | {"created": 1.0e9, "ended": 1.0e9 + 100, "events": events}]
    page = await browser.page()
    await page.route("**/log?*", lambda route: route.fulfill(json=log))
    await page.route("**/runs/*/events", lambda route: route.fulfill(content_type="text/event-stream", body=stream))
    return page


async def test_a_note_is_as_it_was_before_it_was_repeated(tmp_path: Path) -> None:
    notice = {"type": "notice", "code": "retry", "message": "Once more."}
    events = [long_run()[0], {"type": "round.started"}, notice, {"type": "round.started"}, notice, long_run()[-1]]
    async with two_runs(tmp_path) as (served, session, browser):
        page = await page_of(browser, served, session, [one | {"seq": seq} for seq, one in enumerate(events, 1)])
        line = await timeline_of(page, f"{home(served)}/#{session}")
        note = page.locator(".replayed .note[data-code=retry]")
        for words in ("Once more. (2 times)", "Once more.", "Once more."):
            await line.press("ArrowLeft")
            await expect(note).to_have_text(words)


async def test_a_long_run_is_scrubbed_without_long_tasks(tmp_path: Path) -> None:
    events = long_run()
    async with two_runs(tmp_path) as (served, session, browser):
        page = await page_of(browser, served, session, events)
        line = await timeline_of(page, f"{home(served)}/#{session}")
        await expect(line).to_have_attribute("aria-valuemax", str(len(events)))
        longest = list[float]()
        while len(longest) < SWEEPS and min(longest, default=LONGEST_MS) >= LONGEST_MS:
            await browser.browser.start_tracing(page=page, categories=["toplevel"])
            await page.evaluate(SCRUB, [ROUNDS // 2 + 1, 60])
            longest.append(longest_task_ms(await browser.browser.stop_tracing()))
            await expect(page.locator(".replayed .card")).to_have_count(ROUNDS // 2 + 1)
            await page.keyboard.press("Escape")
            await expect(page.locator(".replayed")).to_have_count(0)
        assert min(longest) < LONGEST_MS, longest


def longest_task_ms(trace: bytes) -> float:
    """Of the processor's time: what a loaded machine adds is not the page's."""
    events = json.loads(trace)["traceEvents"]
    is_main = {
        (one["pid"], one["tid"])
        for one in events
        if one["name"] == "thread_name" and one["args"]["name"] == "CrRendererMain"
    }
    return float(max(one.get("tdur", 0) for one in events if (one["pid"], one["tid"]) in is_main)) / 1000


@pytest.mark.parametrize("look", at_night(tuple(LOOKS), ("dark", "phone")))
async def test_axe_finds_nothing_wrong_with_the_timeline(tmp_path: Path, look: str) -> None:
    async with two_runs(tmp_path) as (served, session, browser):
        page = await page_for_axe(browser, **LOOKS[look])
        line = await timeline_of(page, f"{home(served)}/#{session}")
        found = await violations(page, "opened")
        await line.press("PageDown")
        await line.press("ArrowLeft")
        await expect(page.locator(".replayed .card")).to_have_count(2)
        found += await violations(page, "in the past")
        assert not await too_wide(page)
        await shot(page, f"replay-{look}")
        await page.get_by_role("region", name="Timeline").get_by_role("button", name="Try from here").click()
        await expect(page.get_by_role("dialog")).to_be_visible()
        found += await violations(page, "try from here")
        assert not found
