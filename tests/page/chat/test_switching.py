"""People who are quicker than their line: nothing they send is lost, shown twice, or shown where it does not belong."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from playwright.async_api import Route

from app.models.scripted import Scripted
from tests.support.nightly import only_at_night
from tests.support.page.browser import STORY_S, Page, browsing, expect, home, say
from tests.support.page.stories import held, let_go, pauses, shell, turns
from tests.support.server.serving import serving

pytestmark = pytest.mark.usefixtures("chromium")

# How often the page's clocks go round: one interval for all that ticks.
COUNTING = """
  const begin = setInterval, end = clearInterval, going = new Set();
  globalThis.setInterval = (...given) => { const one = begin(...given); going.add(one); return one; };
  globalThis.clearInterval = (one) => { going.delete(one); end(one); };
  globalThis.going = () => going.size;
"""


class Held:
    """Requests that are on their way until they are let go."""

    def __init__(self) -> None:
        self.waiting: asyncio.Queue[Route] = asyncio.Queue()

    async def __call__(self, route: Route) -> None:
        self.waiting.put_nowait(route)

    async def let_go(self) -> None:
        await (await self.waiting.get()).continue_()


async def holding(page: Page, path: str) -> Held:
    requests = Held()
    await page.route(path, requests)
    return requests


async def go_to(page: Page, session: str) -> None:
    await page.evaluate("(session) => { location.hash = session; }", session)


@only_at_night
async def test_two_people_say_the_same_and_each_gets_their_answer(tmp_path: Path) -> None:
    first, second = pauses(2)
    script = ["Before.", (first, "To the other."), (second, "To me.")]
    async with asyncio.timeout(STORY_S), serving(tmp_path, Scripted(script)) as served, browsing() as browser:
        session = (await served.chat("Begin."))[0]["session"]
        page = await browser.page()
        await page.goto(f"{home(served)}/#{session}")
        await expect(turns(page).get_by_text("Before.")).to_be_visible()
        sent = await holding(page, "**/chat")
        await say(page, "Go on.")
        await expect(turns(page).get_by_text("Sending")).to_be_visible()
        other = asyncio.create_task(served.chat("Go on.", session=session))
        await expect(turns(page).last.get_by_text("Thinking")).to_be_visible()
        await sent.let_go()
        await expect(turns(page)).to_have_count(3)
        for pause in (first, second):
            pause.event.set()
        await expect(turns(page).nth(1)).to_contain_text("To the other.")
        await expect(turns(page).nth(2)).to_contain_text("To me.")
        await expect(page.get_by_text("Go on.", exact=True)).to_have_count(2)
        await other


async def test_turns_stand_in_the_order_in_which_the_server_has_them(tmp_path: Path) -> None:
    async with asyncio.timeout(STORY_S), serving(tmp_path, Scripted(["Before.", pauses(1), "Never."])) as served:
        async with browsing() as browser:
            session = (await served.chat("Begin."))[0]["session"]
            page = await browser.page()
            await page.goto(f"{home(served)}/#{session}")
            await expect(turns(page).get_by_text("Before.")).to_be_visible()
            sent = await holding(page, "**/chat")
            await say(page, "Mine.")
            body = {"message": "Theirs.", "session": session}
            theirs = (await served.client.post("/chat", json=body, headers={"prefer": "respond-async"})).json()
            await expect(turns(page).get_by_text("Theirs.")).to_be_visible()
            await sent.let_go()
            await expect(turns(page).nth(1)).to_contain_text("Theirs.")
            await expect(turns(page).nth(2)).to_contain_text("Mine.")
            async with page.expect_request("**/cancel") as stopping:
                await page.get_by_role("button", name="Stop", exact=True).click()
            assert theirs["run"] in (await stopping.value).url, "the one that is under way"


async def test_whoever_leaves_a_conversation_and_comes_back_at_once_sees_everything_once(tmp_path: Path) -> None:
    first, second = pauses(2)
    script = ["Elsewhere.", ("One ", first, "two ", second, "three."), "The next."]
    async with asyncio.timeout(STORY_S), serving(tmp_path, Scripted(script)) as served, browsing() as browser:
        elsewhere = (await served.chat("There."))[0]["session"]
        page = await browser.page()
        await page.goto(home(served))
        await say(page, "Count.")
        await expect(turns(page).get_by_text("One")).to_be_visible()
        session = page.url.rpartition("#")[2]
        logs = await holding(page, "**/log?*")
        await go_to(page, elsewhere)
        await go_to(page, session)
        await expect(page.get_by_text("Loading the conversation")).to_be_visible()
        body = {"message": "Next.", "session": session, "when_busy": "queue"}
        assert (await served.client.post("/chat", json=body, headers={"prefer": "respond-async"})).status_code == 202
        for _ in range(2):
            await logs.let_go()
        first.event.set()
        await expect(turns(page).get_by_text("One two")).to_be_visible()
        second.event.set()
        await expect(turns(page).nth(1)).to_contain_text("The next.")
        await expect(turns(page)).to_have_count(2)
        assert (await turns(page).first.locator(".answer p").all_inner_texts()) == ["One two three."]


async def test_a_message_that_is_on_its_way_while_its_writer_looks_elsewhere(tmp_path: Path) -> None:
    script = ["Elsewhere.", "Before.", "The answer."]
    async with asyncio.timeout(STORY_S), serving(tmp_path, Scripted(script)) as served, browsing() as browser:
        elsewhere, session = [(await served.chat(words))[0]["session"] for words in ("There.", "Here.")]
        page = await browser.page()
        await page.goto(f"{home(served)}/#{session}")
        await expect(turns(page).get_by_text("Before.")).to_be_visible()
        sent = await holding(page, "**/chat")
        await say(page, "Tell me.")
        await go_to(page, elsewhere)
        await expect(turns(page).get_by_text("Elsewhere.")).to_be_visible()
        await go_to(page, session)
        await expect(turns(page).get_by_text("Before.")).to_be_visible()
        await sent.let_go()
        await expect(turns(page).get_by_text("The answer.")).to_have_count(1)
        await expect(page.get_by_text("Tell me.", exact=True)).to_have_count(1)
        await go_to(page, elsewhere)
        await expect(turns(page).get_by_text("Elsewhere.")).to_be_visible()
        await expect(turns(page)).to_have_count(1)


async def test_a_message_is_in_the_conversation_that_was_open_when_it_was_sent(tmp_path: Path) -> None:
    script = ["Elsewhere.", "Before.", "The answer."]
    async with asyncio.timeout(STORY_S), serving(tmp_path, Scripted(script)) as served, browsing() as browser:
        elsewhere, session = [(await served.chat(words))[0]["session"] for words in ("There.", "Here.")]
        page = await browser.page()
        await page.goto(f"{home(served)}/#{session}")
        await expect(turns(page).get_by_text("Before.")).to_be_visible()
        await page.get_by_role("textbox", name="Message").fill("Tell me.")
        send = page.get_by_role("button", name="Send")
        async with page.expect_response("**/chat") as sent:
            await send.evaluate("(button, other) => { button.click(); location.hash = other; }", elsewhere)
        assert (await (await sent.value).json())["session"] == session
        await expect(turns(page).get_by_text("Elsewhere.")).to_be_visible()
        await expect(turns(page)).to_have_count(1)


async def test_two_messages_that_begin_a_conversation_are_in_one(tmp_path: Path) -> None:
    async with asyncio.timeout(STORY_S), serving(tmp_path, Scripted(["One.", "Two."])) as served:
        async with browsing() as browser:
            page = await browser.page()
            await page.goto(home(served))
            sent = await holding(page, "**/chat")
            await say(page, "First.")
            await say(page, "Second.")
            await expect(turns(page)).to_have_count(2)
            for _ in range(2):
                await sent.let_go()
            await expect(turns(page).nth(0)).to_contain_text("One.")
            await expect(turns(page).nth(1)).to_contain_text("Two.")
            assert len((await served.client.get("/sessions")).json()["sessions"]) == 1


async def test_what_is_sent_before_the_conversation_is_there_stands_behind_it(tmp_path: Path) -> None:
    async with asyncio.timeout(STORY_S), serving(tmp_path, Scripted(["One.", "Two.", "Three."])) as served:
        async with browsing() as browser:
            browser.expected.append("net::ERR_FAILED")
            session = (await served.chat("First."))[0]["session"]
            page = await browser.page()
            logs = await holding(page, "**/log?*")
            await page.goto(f"{home(served)}/#{session}")
            await say(page, "Second.")
            await expect(page.locator("article[data-run]")).to_have_count(1)
            await logs.let_go()
            await expect(turns(page).nth(0)).to_contain_text("One.")
            await expect(turns(page).nth(1)).to_contain_text("Two.")
            await expect(turns(page)).to_have_count(2)

            await page.reload()
            await (await logs.waiting.get()).abort()
            await expect(page.get_by_role("button", name="Try again")).to_be_visible()
            await say(page, "Third.")
            await logs.let_go()
            await expect(turns(page).nth(2)).to_contain_text("Three.")
            await expect(turns(page)).to_have_count(3)


async def test_nothing_ticks_for_a_conversation_that_is_not_shown_any_more(tmp_path: Path) -> None:
    async with asyncio.timeout(STORY_S), serving(tmp_path, Scripted(["Stays.", shell(held()), "Done."])) as served:
        async with browsing() as browser:
            elsewhere = (await served.chat("There."))[0]["session"]
            page = await browser.page()
            await page.add_init_script(COUNTING)
            await page.goto(f"{home(served)}/#{elsewhere}")
            await expect(turns(page).get_by_text("Stays.")).to_be_visible()
            await page.wait_for_function("() => going() === 1")  # which listens whether the connection is alive
            await page.get_by_role("button", name="New conversation").click()
            await say(page, "Run it.")
            await expect(page.locator(".card-time")).to_contain_text("s")
            await page.wait_for_function("() => going() === 2")
            await go_to(page, elsewhere)
            await expect(turns(page).get_by_text("Stays.")).to_be_visible()
            await page.wait_for_function("() => going() === 1")
            let_go(tmp_path)


async def test_who_comes_back_to_a_tab_sees_what_was_named_anew_elsewhere(tmp_path: Path) -> None:
    async with asyncio.timeout(STORY_S), serving(tmp_path, Scripted(["Here."])) as served, browsing() as browser:
        session = (await served.chat("First words."))[0]["session"]
        page = await browser.page()
        await page.goto(f"{home(served)}/#{session}")
        await expect(page.get_by_role("heading", name="First words.")).to_be_visible()
        await expect(page.locator(".session-title")).to_have_text("First words.")
        await served.client.patch(f"/sessions/{session}", json={"title": "Named elsewhere"})
        await page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
        await expect(page.get_by_role("heading", name="Named elsewhere")).to_be_visible()
        await expect(page.locator(".session-title")).to_have_text("Named elsewhere")
