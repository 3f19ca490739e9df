"""The one connection of all windows in Chromium: identities, dead workers, restarts of the server, slow windows."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import BrowserContext, Route

from app.models.scripted import Line, Pause, Scripted
from tests.support.access.people import bearer, port_of
from tests.support.nightly import at_night
from tests.support.page.browser import STORY_S, Browsing, Page, browsing, expect, home
from tests.support.page.engines import ChromiumWindow
from tests.support.page.windows import check_each_follows_its_own, opened, shows, until_streams
from tests.support.page.wire import wired
from tests.support.server.feeding import begin
from tests.support.server.serving import serving

pytestmark = pytest.mark.usefixtures("chromium")

LIMIT_S = at_night(600, STORY_S)
CUT = r"net::ERR_(CONNECTION|INCOMPLETE|EMPTY|SOCKET)"
# What comes by any port or request of the window, as text.
OVERHEAR = """
  globalThis.overheard = [];
  const { set } = Object.getOwnPropertyDescriptor(MessagePort.prototype, "onmessage");
  Object.defineProperty(MessagePort.prototype, "onmessage", {
    set(handler) {
      set.call(this, (event) => (overheard.push(JSON.stringify(event.data)), handler(event)));
    },
  });
"""


async def shown(context: BrowserContext, url: str, session: str, token: str = "") -> Page:
    window = ChromiumWindow(await context.new_page())
    await opened(window, url, session, token)
    return window.page


async def test_windows_of_two_identities_share_nothing_and_a_revoked_token_ends_its_own(tmp_path: Path) -> None:
    canary = "canary-of-ann-7731"
    replies: list[Sequence[Line]] = [
        ["Hi."],
        ["Hi."],
        [f"{canary} ", Pause(asyncio.Event()), "end."],
        ["For ben."],
        ["Again for ben."],
    ]
    async with asyncio.timeout(STORY_S), serving(tmp_path, Scripted(replies)) as served, browsing() as browser:
        browser.expected.append("status of 401")
        context = await browser.context()
        await context.add_init_script(OVERHEAR)
        people = {name: await bearer(served, name) for name in ("ann", "ben")}
        client = served.client

        async def says(name: str, text: str, session: str | None = None) -> dict[str, Any]:
            client.headers.update(people[name])
            return await begin(served, text, session)

        sessions = {name: (await says(name, f"secret of {name}"))["session"] for name in people}
        tokens = {name: header["authorization"].split()[1] for name, header in people.items()}
        ann = [await shown(context, home(served), sessions["ann"], tokens["ann"]) for _ in range(2)]
        ben = await shown(context, home(served), sessions["ben"], tokens["ben"])
        for name in people:
            await until_streams(served, name, 1)
            assert served.services.presence.streams(name) == 1
        run = (await says("ann", "go", sessions["ann"]))["run"]
        for page in ann:
            await expect(page.locator("#conversation").get_by_text(canary)).to_be_visible()
        await says("ben", "go", sessions["ben"])
        await expect(ben.get_by_text("For ben.")).to_be_visible()
        overheard = "".join(await ben.evaluate("overheard"))
        assert "For ben." in overheard
        assert not [
            word for word in (canary, "secret of ann", sessions["ann"], run, tokens["ann"]) if word in overheard
        ]
        root = await bearer(served, "root", "admin")
        assert (await client.delete("/tokens/ann", headers=root)).status_code == 204
        for page in ann:
            await expect(page.get_by_label("Token")).to_be_visible()
        await says("ben", "more", sessions["ben"])
        await expect(ben.get_by_text("Again for ben.")).to_be_visible()


async def test_a_proxy_that_lets_another_person_in_shows_neither_what_the_other_has(tmp_path: Path) -> None:
    proxied = '[trusted_header]\nuser = "Remote-User"\nfrom = ["127.0.0.1"]\ndefault_role = "admin"\n'
    (tmp_path / "dragoman.toml").write_text(f'public_url = "https://agent.example"\n{proxied}')
    person, go_on = b"ann", asyncio.Event()

    async def vouched(block: bytes) -> bytes:
        if person == b"ben" and block.startswith(b"GET /events"):
            await go_on.wait()
        return block.replace(b"\r\nHost:", b"\r\nRemote-User: " + person + b"\r\nHost:")

    async with asyncio.timeout(STORY_S), AsyncExitStack() as stack, browsing() as browser:
        browser.expected.append(CUT)
        script = Scripted([["Hi."], ["For ann.", Pause(asyncio.Event())]])
        served = await stack.enter_async_context(serving(tmp_path, script))
        served.client.headers["remote-user"] = "ann"
        wire = await stack.enter_async_context(wired(port_of(served)))
        wire.asked = vouched
        context = await browser.context()
        await context.add_init_script(OVERHEAR)
        session = (await served.chat("secret of ann"))[0]["session"]
        ann = await shown(context, wire.url, session)
        person = b"ben"
        ben = await context.new_page()
        await ben.goto(wire.url)
        await ben.wait_for_function("() => overheard.length")
        await begin(served, "more", session)
        await ann.wait_for_function(r"() => overheard.some((one) => /runs\W+id/.test(one))")
        assert session not in "".join(await ben.evaluate("overheard"))
        go_on.set()
        await expect(ann).to_have_url(f"{wire.url}/")
        await expect(ann.get_by_text("secret of ann")).to_have_count(0)


async def killed_worker(browser: Browsing) -> None:
    """End the shared worker of the only page that is open, as the browser does when it breaks."""
    cdp = await browser.browser.new_browser_cdp_session()
    workers = [one for one in (await cdp.send("Target.getTargets"))["targetInfos"] if one["type"] == "shared_worker"]
    assert len(workers) == 1, workers
    await cdp.send("Target.closeTarget", {"targetId": workers[0]["targetId"]})
    await cdp.detach()


async def test_windows_whose_worker_dies_get_another_one(tmp_path: Path) -> None:
    go_on = asyncio.Event()
    replies: list[Sequence[Line]] = [["Old."], ["Before. ", Pause(go_on), "After."]]
    async with asyncio.timeout(STORY_S), serving(tmp_path, Scripted(replies)) as served, browsing() as browser:
        context = await browser.context()
        await context.clock.install()
        session = (await served.chat("1"))[0]["session"]
        pages = [await shown(context, home(served), session) for _ in range(3)]
        await until_streams(served, "local", 1)
        await begin(served, "2", session)
        for page in pages:
            await expect(page.get_by_text("Before.")).to_be_visible()
        await killed_worker(browser)
        await until_streams(served, "local", 0)
        for _ in range(2):  # a ping that is not answered, and one that finds that out
            await context.clock.run_for(10_100)
        go_on.set()
        for page in pages:
            await expect(page.get_by_text("Before. After.")).to_have_count(1)
        await until_streams(served, "local", 1)


async def test_seven_windows_outlive_their_server(tmp_path: Path) -> None:
    count = at_night(7, 3)
    async with asyncio.timeout(STORY_S), AsyncExitStack() as first, browsing() as browser:
        browser.expected.append(CUT)
        served = await first.enter_async_context(serving(tmp_path, Scripted([["Old."]], repeat=True)))
        sessions = [(await served.chat("Hello"))[0]["session"] for _ in range(count)]
        async with wired(port_of(served)) as wire:
            context = await browser.context()
            pages = [await shown(context, wire.url, session) for session in sessions]
            await first.aclose()
            for page in pages:
                await expect(page.get_by_text("Connection lost")).to_be_visible()
            async with serving(tmp_path, Scripted([["New."]], repeat=True)) as second:
                wire.to = port_of(second)
                await pages[0].get_by_role("button", name="Reconnect now").click()
                for page in pages:
                    await expect(page.get_by_text("Connection lost")).to_be_hidden()
                await check_each_follows_its_own(second, [ChromiumWindow(page) for page in pages], sessions)
                await until_streams(second, "local", 1)


# Nothing else happens in the window until the answer has come.
BLOCKED = """void setTimeout(() => {
  const request = new XMLHttpRequest();
  request.open("GET", "/livez?held", false);
  request.send();
})"""


async def test_a_slow_window_holds_up_none_of_the_others(tmp_path: Path) -> None:
    replies: list[Sequence[Line]] = [["Old."], ["Old."], ["For the slow one."], ["For the quick one."]]
    async with asyncio.timeout(STORY_S), serving(tmp_path, Scripted(replies)) as served, browsing() as browser:
        context = await browser.context()
        sessions = [(await served.chat("1"))[0]["session"] for _ in range(2)]
        slow, quick = [await shown(context, home(served), session) for session in sessions]
        held, go_on = asyncio.Event(), asyncio.Event()

        async def hold(route: Route) -> None:
            held.set()
            await go_on.wait()
            await route.fulfill(json={})

        await slow.route("**/livez?held", hold)
        await slow.evaluate(BLOCKED)
        await held.wait()
        for session in sessions:
            await served.chat("2", session=session)
        await expect(quick.get_by_text("For the quick one.")).to_be_visible()
        go_on.set()
        await expect(slow.get_by_text("For the slow one.")).to_be_visible()


@pytest.mark.timeout(LIMIT_S + 10)
async def test_fifty_tabs_each_follow_their_own_conversation(tmp_path: Path) -> None:
    count, go_on = at_night(50, 8), asyncio.Event()
    replies: list[Sequence[Line]] = [["Old."]] * count + [["Begun. ", Pause(go_on), "Live."]] * count
    provider = Scripted(replies)
    async with (
        asyncio.timeout(LIMIT_S),
        serving(tmp_path, provider, max_runs=str(count)) as served,
        browsing() as browser,
    ):
        context = await browser.context()
        sessions = [(await served.chat("Hello"))[0]["session"] for _ in range(count)]
        windows = [ChromiumWindow(await shown(context, home(served), session)) for session in sessions]
        await until_streams(served, "local", 1)
        await check_each_follows_its_own(served, windows, sessions)
        go_on.set()
        for window in windows:
            await window.wait_for(shows("Live."))
        assert served.services.presence.streams("local") == 1
