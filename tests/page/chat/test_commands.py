"""`/` commands and stored prompts in the message box, and the options of a conversation, with the keyboard alone."""

from __future__ import annotations

from pathlib import Path
from shutil import copy

import pytest
from playwright.async_api import FilePayload

from app.models.scripted import Scripted
from tests.support.page.browser import browsing, expect, home, say, shot
from tests.support.server.serving import serving
from tests.support.transcripts import REAL, TRANSCRIPTS, one_of

pytestmark = pytest.mark.usefixtures("chromium")


async def test_commands_are_completed_and_run_with_the_keyboard(tmp_path: Path) -> None:
    async with serving(tmp_path, Scripted(["Done."], repeat=True)) as served, browsing() as browser:
        page = await browser.page()
        await page.goto(home(served))
        box = page.get_by_role("textbox", name="Message")
        commands = page.get_by_role("listbox", name="Commands and prompts")
        await say(page, "Hello")
        await expect(page.get_by_text("Done.")).to_have_count(1)
        await box.press("/")
        await expect(commands.get_by_role("option")).to_have_count(12)
        await expect(commands.get_by_role("option", name="/new")).to_have_attribute("aria-selected", "true")
        await shot(page, "commands")
        await box.press("ArrowUp")
        await expect(commands.get_by_role("option", name="/help")).to_have_attribute("aria-selected", "true")
        await box.press("Escape")
        await expect(commands).to_be_hidden()
        await expect(box).to_have_value("/")
        await box.press("r")
        await expect(commands.get_by_role("option").first).to_contain_text("/retry")
        assert await box.get_attribute("aria-activedescendant") == "command-0"
        await box.press("Enter")
        await expect(page.get_by_text("Done.")).to_have_count(2)
        await expect(box).to_have_value("")
        await box.fill("/etc/hosts is a file")
        await box.press("Enter")
        await expect(page.get_by_text("Done.")).to_have_count(3)  # it was a message
        await box.fill("/help")
        await box.press("Enter")
        await expect(page.get_by_role("dialog", name="Commands")).to_contain_text("/export")
        await page.keyboard.press("Escape")
        await box.fill("/new")
        await box.press("Enter")
        await expect(page.get_by_text("Done.")).to_have_count(0)
        await box.fill("/plan")
        await box.press("Tab")
        await expect(page.get_by_label("Plan first")).to_be_checked()
        for text, left in (("/plan the move", "the move"), ("/new idea", "idea"), ("/stop it", "it")):
            await box.fill(text)
            await box.press("Enter")
            await expect(box).to_have_value(left)  # no word is lost
        await expect(page.get_by_label("Plan first")).to_be_checked()  # it was on, and the words are for a plan


async def test_a_key_that_is_quicker_than_the_list_takes_what_is_typed(tmp_path: Path) -> None:
    async with serving(tmp_path, Scripted(["Done."])) as served, browsing() as browser:
        page = await browser.page()
        await page.goto(home(served))
        box = page.get_by_role("textbox", name="Message")
        await box.press("/")
        await expect(page.get_by_role("option", name="/new")).to_have_attribute("aria-selected", "true")
        await box.evaluate("""(box) => {
          box.value = "/help";
          box.dispatchEvent(new Event("input", { bubbles: true }));
          box.dispatchEvent(new KeyboardEvent("keydown", { key: "Enter", bubbles: true, cancelable: true }));
        }""")
        await expect(page.get_by_role("dialog", name="Commands")).to_contain_text("/export")


async def test_a_conversation_from_elsewhere_is_shown_and_leaves_as_a_file(tmp_path: Path) -> None:
    async with serving(tmp_path, Scripted(["It goes on."])) as served, browsing() as browser:
        session, _ = await one_of(served, "claude", (TRANSCRIPTS / REAL["claude"]).read_bytes())
        page = await browser.page()
        await page.goto(f"{home(served)}/#{session}")
        await expect(page.get_by_text("The harbour is calm")).to_be_visible()
        await expect(page.get_by_text("Write a line with the shell.").last).to_be_visible()
        await expect(page.locator("#conversation img")).to_have_count(1)
        await shot(page, "imported")
        await say(page, "Go on")
        await expect(page.get_by_text("It goes on.", exact=True)).to_be_visible()
        box, written = page.get_by_role("textbox", name="Message"), dict[str, str]()
        for words, ending in (("", ".md"), (" html", ".html"), (" resp", ".responses.json"), (" json", ".json")):
            await box.fill(f"/export{words}")
            async with page.expect_download() as saving:
                await box.press("Enter")
            assert (await saving.value).suggested_filename == f"Write-a-line-with-the-shell{ending}"
            written[ending] = str(await (await saving.value).path())
        asked = list[str]()
        page.on("request", lambda request: asked.append(request.url))
        copy(written[".html"], alone := tmp_path / "alone.html")
        await page.goto(alone.as_uri())
        await expect(page.get_by_role("heading", name="Agent")).to_have_count(4)
        assert await page.locator("img").evaluate("image => image.naturalWidth") == 1
        assert [url for url in asked if not url.startswith(("data:", "file:"))] == []
        await shot(page, "exported")


async def test_a_prompt_is_stored_and_used_with_its_blanks(tmp_path: Path) -> None:
    async with serving(tmp_path, Scripted([])) as served, browsing() as browser:
        page = await browser.page()
        await page.goto(home(served))
        box = page.get_by_role("textbox", name="Message")
        await box.fill("/prompts")
        await box.press("Enter")
        panel = page.get_by_role("complementary", name="Prompts")
        await panel.get_by_label("Name").fill("review")
        await panel.get_by_label("Prompt", exact=True).fill("Review {{file}} for {{ goal }}, all of {{file}}.")
        await panel.get_by_role("button", name="Save the prompt").click()
        await expect(panel.get_by_text("/review is saved.")).to_be_visible()
        await shot(page, "prompts")
        good = '{"prompts": [{"name": "x", "text": "y"}]}'
        wrong = '{"prompts": [{"name": "y", "text": "y"}, {"name": "../chat", "text": "y"}]}'
        refused = '{"prompts": [{"name": "z", "text": "y"}, {"name": "long", "text": "' + "y" * 16_001 + '"}]}'
        browser.expected.append("422")
        for content, words in (
            ("[1]", "There are no prompts in this file."),
            (wrong, "No prompt was imported: ../chat is not a name"),
            (refused, "The import stopped at long: "),
            (good, "1 prompt imported."),
        ):
            file: FilePayload = {"name": "p.json", "mimeType": "application/json", "buffer": content.encode()}
            await panel.get_by_label("Import").set_input_files(file)
            await expect(panel.get_by_text(words)).to_be_visible()
        await expect(panel.locator("li strong")).to_have_text(["/review", "/x", "/z"])
        await box.fill("My draft")
        await panel.get_by_role("button", name="Use x").click()
        await expect(box).to_have_value("My draft\n\ny")
        await box.fill("/x and more")
        await box.press("Enter")
        await expect(box).to_have_value("y\n\nand more")
        await box.fill("")
        await box.press_sequentially("/rev")
        await page.get_by_role("option", name="/review").click()
        asking = page.get_by_role("dialog", name="/review")
        await asking.get_by_label("file").fill("a.py")
        await asking.get_by_label("goal").fill("bugs")
        await asking.get_by_role("button", name="Use").click()
        await expect(box).to_have_value("Review a.py for bugs, all of a.py.")
        await expect(box).to_be_focused()


async def test_a_conversation_has_instructions_and_new_ones_begin_with_the_defaults(tmp_path: Path) -> None:
    model = Scripted(["Done."], repeat=True)
    async with serving(tmp_path, model) as served, browsing() as browser:
        page = await browser.page()
        await page.goto(home(served))
        await page.get_by_role("button", name="Conversation options").click()
        panel = page.get_by_role("complementary", name="Conversation options")
        await panel.get_by_label("Instructions").fill("Answer in rhymes.")
        await panel.get_by_label("Temperature").fill("0")
        await panel.get_by_label("Plan first in new conversations").check()
        await panel.get_by_role("button", name="Use the values above as my defaults").click()
        await expect(page.get_by_role("button", name="Conversation options: 2 values set")).to_be_visible()
        await shot(page, "conversation-options")
        await page.reload()
        await expect(page.get_by_label("Plan first", exact=True)).to_be_checked()
        await page.get_by_label("Plan first", exact=True).uncheck()
        for seen, words in enumerate(("One", "Two"), 1):
            await say(page, words)
            await expect(page.locator("#conversation").get_by_text("Done.")).to_have_count(seen)
        for request in model.requests:
            assert "Answer in rhymes." in request.opening()[0].text
            assert request.parameters["temperature"] == 0
        await page.get_by_role("button", name="Conversation options").click()
        await panel.get_by_role("button", name="Reset").click()
        await expect(page.get_by_role("button", name="Conversation options", exact=True)).to_be_visible()
        await say(page, "Three")
        await expect(page.locator("#conversation").get_by_text("Done.")).to_have_count(3)
        assert "Answer in rhymes." not in model.requests[-1].opening()[0].text
