"""The page outlives its server and its line: killed, stopped, cut off, slow, it heals, and nothing is doubled."""

from __future__ import annotations

import asyncio
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from app.models.scripted import Reply, Scripted
from tests.support.models.chatting import DONE, chunk, says
from tests.support.models.upstream import hang, stream, upstream
from tests.support.nightly import only_at_night
from tests.support.page.browser import STORY_S, Page, browsing, expect, home, say, shot
from tests.support.page.stories import line_to, pauses, turns
from tests.support.server.dragoman_process import server
from tests.support.server.serving import serving

pytestmark = pytest.mark.usefixtures("chromium")

GONE = r"Failed to load resource|Failed to fetch|net::ERR_"  # what Chromium says of a server that is not there
WHOLE = stream(says("I am back."), chunk(finish="stop"), DONE)
WRITES = stream(says("```write_file\nnote.txt\nfirst\n```"), chunk(finish="stop"), DONE)


def port_of(url: object) -> str:
    return str(urlsplit(str(url)).port)


async def lost(page: Page) -> None:
    """The page says that it hears nothing any more."""
    await expect(page.get_by_role("group", name="Status")).to_contain_text("Not connected")


async def test_a_server_that_is_killed_in_the_middle_of_an_answer_and_started_again(tmp_path: Path) -> None:
    async with asyncio.timeout(STORY_S), upstream(stream(says("Half of"), then=hang), WHOLE, chats=True) as model:
        async with browsing() as browser:
            browser.expected.append(GONE)
            page = await browser.page()
            async with server(tmp_path, model.base_url) as (client, process):
                port = port_of(client.base_url)
                await page.goto(f"http://localhost:{port}/")
                await say(page, "Tell me.")
                await expect(turns(page).get_by_text("Half of")).to_be_visible()
                process.kill()
                await process.wait()
            await lost(page)
            await shot(page, "link-lost")
            async with server(tmp_path, model.base_url, "--port", port):
                await expect(
                    turns(page).get_by_text("The server ended during this run; the run goes on.")
                ).to_be_visible()
                await expect(turns(page).get_by_text("I am back.")).to_be_visible()
                await expect(turns(page).get_by_text("Half of", exact=True)).to_have_count(1)


async def test_a_server_that_is_stopped_says_so_and_the_conversation_goes_on_in_the_next(tmp_path: Path) -> None:
    async with asyncio.timeout(STORY_S), upstream(stream(says("Half of"), then=hang), WHOLE, chats=True) as model:
        async with browsing() as browser:
            browser.expected.append(GONE)
            page = await browser.page()
            async with server(tmp_path, model.base_url, "--shutdown-grace-s", "0") as (client, process):
                port = port_of(client.base_url)
                await page.goto(f"http://localhost:{port}/")
                await say(page, "Tell me.")
                await expect(turns(page).get_by_text("Half of")).to_be_visible()
                process.terminate()
                await expect(turns(page).get_by_text("The server is stopping.")).to_be_visible()
                await process.wait()
            async with server(tmp_path, model.base_url, "--port", port):
                await expect(turns(page).get_by_text("I am back.")).to_be_visible()
                await expect(turns(page).get_by_text("Half of", exact=True)).to_have_count(1)


@only_at_night  # by day the server shows that it waits (test_approvals_survive), and the page a restart
async def test_what_waits_for_a_person_still_waits_after_a_restart(tmp_path: Path) -> None:
    async with asyncio.timeout(STORY_S), upstream(WRITES, WHOLE, chats=True) as model:
        async with browsing() as browser:
            browser.expected.append(GONE)
            page = await browser.page()
            async with server(tmp_path, model.base_url, "--approval-admin", "ask") as (client, process):
                port = port_of(client.base_url)
                await page.goto(f"http://localhost:{port}/")
                await say(page, "Write it.")
                waiting = page.get_by_role("region", name="Waiting for you")
                await expect(waiting.get_by_text("note.txt").first).to_be_visible()
                process.kill()
                await process.wait()
            await lost(page)
            async with server(tmp_path, model.base_url, "--approval-admin", "ask", "--port", port):
                await waiting.get_by_role("button", name="Approve").first.click()
                await expect(turns(page).get_by_text("I am back.")).to_be_visible()
            assert (tmp_path / "work" / "note.txt").read_text() == "first"


async def test_a_line_that_is_cut_and_chops_everything_loses_and_doubles_nothing(tmp_path: Path) -> None:
    first, second = pauses(2)
    replies: list[Reply] = [("Один ", first, "two ✓ ", second, *(f"<{n}> " for n in range(300)), "the end.")]
    async with serving(tmp_path, Scripted(replies)) as served, browsing() as browser:
        browser.expected.append(GONE)
        async with line_to(int(port_of(home(served)))) as line:
            page = await browser.page()
            await page.goto(f"http://localhost:{line.port}/")
            line.slow = True
            await say(page, "Count.")
            await expect(turns(page).get_by_text("Один")).to_be_visible()
            line.cut()
            await lost(page)
            first.event.set()
            line.down = False
            await expect(turns(page).get_by_text("Один two ✓")).to_be_visible()
            await page.context.set_offline(True)
            line.cut()
            await lost(page)
            second.event.set()
            line.down = False
            await page.context.set_offline(False)
            await expect(turns(page).get_by_text("the end.")).to_be_visible()
            words = (await turns(page).inner_text()).split()
            assert [word for word in words if word.startswith("<")] == [f"<{n}>" for n in range(300)]
            assert (words.count("Один"), words.count("two"), words.count("end.")) == (1, 1, 1)


@only_at_night
async def test_a_slow_line_shows_the_page_and_then_the_answer(tmp_path: Path) -> None:
    async with serving(tmp_path, Scripted(["At last."])) as served, browsing() as browser:
        # Not the browser's own throttling, which now and then delivers nothing at all.
        async with line_to(int(port_of(home(served)))) as line:
            browser.expected.append(GONE)  # the line is closed before the page is
            line.late_s = 0.15
            page = await browser.page()
            await page.goto(f"http://localhost:{line.port}/")
            await say(page, "Hello?")
            await expect(turns(page).get_by_text("At last.")).to_be_visible()
