"""How accessible the page is: axe-core finds nothing in its main states, and screen readers are not chattered at."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from app.models.scripted import Reply, Scripted
from parsing import Thought
from tests.support.access.people import bearer
from tests.support.nightly import at_night
from tests.support.page.axe import LOOKS, page_for_axe, violations
from tests.support.page.browser import Page, browsing, choose, expect, home, open_settings, say
from tests.support.page.stories import held, let_go, shell, turns
from tests.support.server.serving import serving

pytestmark = pytest.mark.usefixtures("chromium")

RICH = (
    "## A heading\n\n#### One far below\n\nSome `code`, *words*, a [link](https://example.com/) and\n\n"
    "```js\nconst words = 'hello'; // said\n```\n\n"
    "| one | two |\n|---|---|\n| 1 | 2 |\n\n- [x] a task\n- an item\n  1. inside\n\n> quoted\n\n"
    "A note[^1], <kbd>Esc</kbd>, <mark>marked</mark>\n\n[^1]: Its words.\n\n"
    "<details>\n<summary>More</summary>\n\nof it\n\n</details>\n\n"
)
WRITES = "```write_file\nnote.txt\nfirst line\nsecond line\n```\n"
EDITS = "```edit_file\nnote.txt\nfirst line\nother line\n```\n"
BUILD = shell("printf '\\033[32mok\\033[0m \\033[31mfailed\\033[0m \\033[90mgrey\\033[0m\\n'; echo begun; " + held())


async def workspace_judged(page: Page, work: Path) -> list[str]:
    """The tree of files, and one of them."""
    (work / "folder").mkdir()
    (work / "folder/table.csv").write_text("name,note\nAnn,one\n")
    await choose(page, "Files")
    await page.get_by_role("treeitem", name="folder").locator(".tree-row").first.click()
    found = await violations(page, "workspace")
    await page.get_by_role("treeitem", name="table.csv").last.click()
    await expect(page.get_by_role("table")).to_be_visible()
    found += await violations(page, "a file of the workspace")
    await page.get_by_role("button", name="Close", exact=True).click()
    return found


# By day the phone is light, and what is wide is dark.
@pytest.mark.parametrize("look", at_night(tuple(LOOKS), ("dark", "phone")))
async def test_axe_finds_nothing_wrong(tmp_path: Path, look: str) -> None:
    replies: list[Reply] = [
        (Thought("I think about it."), RICH, WRITES),
        (EDITS,),
        BUILD,
        ("It is over.",),
        (*shell("echo more > more.txt"),),
    ]
    async with serving(tmp_path, Scripted(replies)) as served, browsing() as browser:
        page = await page_for_axe(browser, **LOOKS[look])
        await page.goto(home(served))
        await expect(page.get_by_role("group", name="Status")).to_contain_text("Connected")
        found = await violations(page, "empty")
        found += await workspace_judged(page, tmp_path / "work")
        await say(page, "Show me all that you have.")
        await expect(turns(page).locator(".tail").last).to_contain_text("begun")
        found += await violations(page, "under way")
        let_go(tmp_path)
        await expect(turns(page).get_by_text("It is over.")).to_be_visible()
        closed = turns(page).locator("details:not([open]) > summary")
        while await closed.count():
            await closed.first.click()
        found += await violations(page, "done")
        found += await panels(page)
        await page.get_by_label("Approvals").select_option("ask")
        await say(page, "More.")
        await expect(page.locator("#approvals .approval")).to_be_visible()
        await expect(page.locator("#approvals[data-settling]")).to_have_count(0)
        found += await violations(page, "approval")
        await page.get_by_role("button", name="Approve for this conversation").click()
        await page.get_by_role("button", name="Approve and allow").click()
        await expect(page.locator("#approvals .approval")).to_have_count(0)
        found += await panels(page, ("allowed",))
        found += await drawer(page) if look == "phone" else await dialogs(page)
        assert not found, "\n".join(found)


BAR = ("Model:", "Context:")
PANELS = (*BAR, "Sandboxed", "MCP", "Background jobs", "Settings")


async def panels(page: Page, names: Sequence[str] = PANELS) -> list[str]:
    found = []
    bar = page.get_by_role("group", name="Status")
    for name in names:
        if name == "Settings":
            await open_settings(page)
        elif name in BAR:
            await bar.get_by_role("button", name=name).click()
        else:
            await choose(page, name)
        await expect(page.locator("#panel")).to_be_visible()
        await expect(page.locator("#panel [aria-busy=true]")).to_have_count(0)
        found += await violations(page, f"panel {name}")
        await page.keyboard.press("Escape")
        await expect(page.locator("#panel")).to_be_hidden()
    return found


async def dialogs(page: Page) -> list[str]:
    await choose(page, "Pause")
    await expect(page.get_by_role("dialog")).to_be_visible()
    found = await violations(page, "pause dialog")
    await page.keyboard.press("Escape")
    await expect(page.get_by_role("dialog")).to_have_count(0)
    await page.get_by_role("button", name="More for").first.click()
    found += await violations(page, "menu")
    await page.get_by_text("Delete", exact=True).click()
    await expect(page.get_by_role("dialog")).to_be_visible()
    found += await violations(page, "delete dialog")
    await page.keyboard.press("Escape")
    await expect(page.get_by_role("dialog")).to_have_count(0)
    return found


async def drawer(page: Page) -> list[str]:
    await page.get_by_role("button", name="Conversations").tap()
    await expect(page.get_by_role("link", name="Show me all")).to_be_visible()
    return await violations(page, "drawer")


@pytest.mark.parametrize("look", at_night(("light", "dark"), ("light",)))
async def test_axe_finds_nothing_wrong_with_signing_in(tmp_path: Path, look: str) -> None:
    async with serving(tmp_path, Scripted([])) as served, browsing() as browser:
        browser.expected.append("401")
        await bearer(served, "ann", "user")
        page = await page_for_axe(browser, **LOOKS[look])
        await page.goto(home(served))
        await expect(page.get_by_label("Token")).to_be_visible()
        assert await violations(page, "sign-in") == []


WATCH = """() => {
  window.told = [];
  for (const region of document.querySelectorAll("[aria-live], [role=status], [role=alert], [role=log]")) {
    new MutationObserver(() => region.textContent && window.told.push(region.textContent))
      .observe(region, { childList: true, characterData: true, subtree: true });
  }
}"""


async def test_a_screen_reader_hears_a_handful_of_words_of_a_long_answer(tmp_path: Path) -> None:
    replies: list[Reply] = [tuple(f"word{number} " for number in range(2000)), shell("seq 500; echo begun"), "Over."]
    async with serving(tmp_path, Scripted(replies)) as served, browsing() as browser:
        page = await browser.page()
        await page.goto(home(served))
        await page.evaluate(WATCH)
        await say(page, "Go on.")
        await expect(turns(page).get_by_text("word1999")).to_be_visible()
        await say(page, "Run it.")
        await expect(turns(page).get_by_text("Over.", exact=True)).to_be_visible()
        await expect(page.locator("#polite")).to_contain_text("The run has ended.")
        told = await page.evaluate("window.told")
        assert 1 <= len(told) <= 8, told  # what is said at nearly the same time is said together
        assert not any("word5" in one for one in told)


async def test_what_a_screen_reader_finds(tmp_path: Path) -> None:
    async with serving(tmp_path, Scripted([shell("echo hello"), "It said hello."])) as served, browsing() as browser:
        page = await browser.page()
        await page.goto(home(served))
        await say(page, "Say hello.")
        await expect(turns(page).get_by_text("It said hello.")).to_be_visible()
        await expect(page.locator("body")).to_match_aria_snapshot(
            """
            - link "Skip to the message box"
            - complementary "Conversations":
              - button "New conversation"
            - banner:
              - heading "Say hello." [level=1]
            - main "Conversation":
              - article "Run"
            - contentinfo:
              - form "Message":
                - textbox "Message"
                - button "Send"
              - group "Status"
            """
        )
        for role in ("main", "banner", "contentinfo"):
            await expect(page.get_by_role(role)).to_have_count(1)
