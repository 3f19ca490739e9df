"""Where a person writes: sending and failing, drafts, files, stopping."""

from __future__ import annotations

import asyncio
import base64
import json
import re
from pathlib import Path

import pytest
from playwright.async_api import Route

from app.models.scripted import Pause, Scripted
from tests.support.models.pictures import CAT, LAW
from tests.support.models.scripted_models import Blind
from tests.support.nightly import only_at_night
from tests.support.page.browser import Page, browsing, expect, home, say, shot
from tests.support.server.serving import serving

pytestmark = pytest.mark.usefixtures("chromium")

# Puts files into the event as a browser would: `files` are [name, type, base64].
HAND_OVER = """([type, files]) => {
  const carried = new DataTransfer();
  for (const [name, kind, data] of files) {
    carried.items.add(new File([Uint8Array.from(atob(data), (one) => one.charCodeAt(0))], name, { type: kind }));
  }
  const target = document.getElementById("composer-text");
  const event = type === "paste"
    ? new ClipboardEvent("paste", { clipboardData: carried, bubbles: true, cancelable: true })
    : new DragEvent(type, { dataTransfer: carried, bubbles: true, cancelable: true });
  (type === "paste" ? target : document.body).dispatchEvent(event);
}"""


# Whether a select has no room for the word that is chosen.
CUT = """(box) => {
  const measure = document.createElement("canvas").getContext("2d"), style = getComputedStyle(box);
  measure.font = style.font;
  const room = box.clientWidth - parseFloat(style.paddingLeft) - parseFloat(style.paddingRight);
  return measure.measureText(box.selectedOptions[0].text).width > room + 1;
}"""


async def hand_over(page: Page, how: str, *files: tuple[str, str, bytes]) -> None:
    rows = [[name, kind, base64.b64encode(data).decode()] for name, kind, data in files]
    await page.evaluate(HAND_OVER, [how, rows])


async def test_what_could_not_be_sent_is_not_lost(tmp_path: Path) -> None:
    held = asyncio.Event()
    async with serving(tmp_path, Scripted([("Yes.", Pause(held)), "Again."])) as served, browsing() as browser:
        page = await browser.page()
        await page.goto(home(served))
        box = page.get_by_role("textbox", name="Message")
        await expect(box).to_be_focused()
        await served.client.post("/pause", json={})
        browser.expected.append("503")
        await hand_over(page, "paste", ("cat.png", "image/png", CAT))
        await expect(page.get_by_role("list", name="Attached files")).to_contain_text("cat.png")
        await box.fill("Two lines:\nthis is the second.")
        await box.press("Enter")
        await expect(page.locator("#composer").get_by_role("alert")).to_contain_text("paused")
        await expect(box).to_have_value("Two lines:\nthis is the second.")
        await expect(page.get_by_role("list", name="Attached files")).to_contain_text("cat.png")
        await expect(page.get_by_role("article", name="Run")).to_have_count(0)
        await shot(page, "composer-refused")
        await page.get_by_role("button", name="Remove cat.png").click()

        await page.reload()
        await expect(box).to_have_value("Two lines:\nthis is the second.")
        await served.client.post("/resume", json={})
        await box.press("Shift+Enter")
        await box.dispatch_event("keydown", {"key": "Enter", "isComposing": True})
        await expect(page.get_by_role("article", name="Run")).to_have_count(0)
        await box.press("Enter")
        await expect(page.get_by_role("article", name="Run").get_by_text("Yes.")).to_be_visible()
        await expect(box).to_have_value("")
        await box.fill("A draft of this one")
        await page.get_by_role("button", name="New conversation").click()
        await expect(box).to_have_value("")
        await page.go_back()
        await expect(box).to_have_value("A draft of this one")
        held.set()
        await expect(page.locator(".turn-foot")).to_contain_text("first token")
        await box.fill("")
        await box.press("ArrowUp")
        await expect(box).to_have_value("Two lines:\nthis is the second.")


async def test_stop_ends_this_run_by_button_and_by_key(tmp_path: Path) -> None:
    one, two = Pause(asyncio.Event()), Pause(asyncio.Event())
    script = [("First.", one), ("Second.", two), ("Third.", Pause(asyncio.Event()))]
    async with serving(tmp_path, Scripted(script)) as served, browsing() as browser:
        page = await browser.page()
        await page.goto(home(served))
        stop = page.get_by_role("button", name="Stop")
        await say(page, "Begin.")
        await expect(page.get_by_text("First.")).to_be_visible()
        await page.mouse.down(click_count=2)  # "Send" was clicked twice, and "Stop" stands in its place now
        await page.mouse.up(click_count=2)
        await expect(page.get_by_role("textbox", name="Message")).not_to_be_focused()
        await expect(stop).to_be_enabled()
        assert len(await served.services.runs.of("local")) == 1
        await expect(page.get_by_role("button", name="Send")).to_be_hidden()
        await stop.click()
        await expect(page.get_by_text("Stopped.")).to_have_count(1)
        await expect(stop).to_be_hidden()
        await say(page, "Once more.")
        await expect(page.get_by_text("Second.")).to_be_visible()
        box = page.get_by_role("textbox", name="Message")
        await box.press("Escape")
        await expect(page.get_by_text("Stopped.")).to_have_count(2)
        await say(page, "And again.")
        await expect(page.get_by_text("Third.")).to_be_visible()
        await box.fill("/")
        await box.press("Escape")  # closes the commands
        await expect(page.get_by_role("listbox")).to_be_hidden()
        assert len(await served.services.runs.of("local")) == 1
        await box.press("Escape")
        await expect(page.get_by_text("Stopped.")).to_have_count(3)
        await expect(box).to_have_value("/")
        assert not await served.services.runs.of("local")


async def test_escape_closes_commands_that_are_still_being_loaded(tmp_path: Path) -> None:
    loading, let_load = asyncio.Event(), asyncio.Event()

    async def slow(route: Route) -> None:
        loading.set()
        await let_load.wait()
        await route.continue_()

    async with (
        serving(tmp_path, Scripted([("First.", Pause(asyncio.Event()))])) as served,
        browsing() as browser,
    ):
        page = await browser.page()
        await page.route(re.compile("/js/.*completion"), slow)
        await page.goto(home(served))
        await say(page, "Begin.")
        await expect(page.get_by_text("First.")).to_be_visible()
        box = page.get_by_role("textbox", name="Message")
        await box.press("/")
        await loading.wait()
        await box.press("Escape")
        let_load.set()
        await expect(page.locator("#commands")).to_be_attached()
        await expect(page.locator("#commands")).to_be_hidden()
        await box.press("n")
        await expect(page.get_by_role("option", name="/new")).to_be_visible()
        assert len(await served.services.runs.of("local")) == 1
        await expect(page.get_by_text("Stopped.")).to_have_count(0)


async def test_the_words_of_the_choice_of_approvals_are_whole(tmp_path: Path) -> None:
    async with serving(tmp_path, Scripted([])) as served, browsing() as browser:
        for language, width in (("en", 320), ("de", 320), ("de", 390), ("en", 1000), ("de", 1280)):
            page = await browser.page(viewport={"width": width, "height": 700}, locale=language, has_touch=width < 1000)
            await page.goto(home(served))
            if width >= 1000:
                await page.get_by_role("button", name=re.compile("Settings|Einstellungen")).click()  # its panel takes room
            mode = page.locator(".composer-tools .choice").first
            await page.locator("#composer-text").fill("Hello")
            await expect(mode.locator("option").first).not_to_have_text(re.compile("Default|Standard"))
            for value in ("", "ask", "auto"):
                await mode.select_option(value)
                assert not await mode.evaluate(CUT), (language, width, value)


async def test_the_box_keeps_the_focus_of_a_message_to_the_running_turn(tmp_path: Path) -> None:
    held = asyncio.Event()
    async with serving(tmp_path, Scripted([("First.", Pause(held)), "Second."])) as served, browsing() as browser:
        page = await browser.page()
        await page.goto(home(served))
        box = page.get_by_role("textbox", name="Message")
        await say(page, "Begin.")
        await expect(page.get_by_text("First.")).to_be_visible()
        for send in (box.press("Enter"), page.get_by_role("button", name="Send").click()):
            await box.fill("And this.")
            await send
            await expect(box).to_have_value("")
            await expect(box).to_be_focused()
        held.set()
        await expect(page.get_by_text("Second.")).to_be_visible()
        await expect(box).to_be_focused()


async def test_a_refusal_that_is_there_before_the_pause_is_reported_stays(tmp_path: Path) -> None:
    async with serving(tmp_path, Scripted([])) as served, browsing() as browser:
        page = await browser.page()
        await page.goto(home(served))
        box = page.get_by_role("textbox", name="Message")
        browser.expected.append("503")
        refusal = {"error": {"code": "paused", "message": "The server is paused."}}
        await page.route("**/chat", lambda route: route.fulfill(status=503, json=refusal))
        await box.fill("Hello")
        await box.press("Enter")
        reason = page.locator("#composer").get_by_role("alert")
        await expect(reason).to_contain_text("paused")
        await served.client.post("/pause", json={})
        await expect(page.get_by_role("region", name="The server is paused")).to_be_visible()
        await expect(reason).to_contain_text("paused")
        await served.client.post("/resume", json={})
        await expect(reason).to_be_hidden()


async def test_files_go_with_a_message(tmp_path: Path) -> None:
    model = Scripted(["I see.", "I see it."])
    async with serving(tmp_path, model) as served, browsing() as browser:
        page = await browser.page()
        await page.goto(home(served))
        await hand_over(page, "dragenter", ("cat.png", "image/png", CAT))
        await expect(page.get_by_text("Drop files to attach them")).to_be_visible()
        await hand_over(page, "drop", ("cat.png", "image/png", CAT), ("law.pdf", "application/pdf", LAW))
        await expect(page.get_by_text("Drop files to attach them")).to_be_hidden()
        notes = ("notes.md", "text/markdown", b"```\nwords\n```\n")
        await hand_over(page, "paste", notes, ("blob.bin", "", b"\x00\xff"), ("song.mp3", "audio/mpeg", b"ID3"))
        attached = page.get_by_role("list", name="Attached files")
        await expect(attached.get_by_role("listitem")).to_have_count(5)
        await expect(attached.locator("img")).to_have_js_property("naturalWidth", 80)
        await page.get_by_role("button", name="Remove song.mp3").click()
        await shot(page, "composer-attached")
        async with page.expect_request("**/chat") as asked:
            await say(page, "Look at these.")
        body = json.loads((await asked.value).post_data or "")
        assert [part["type"] for part in body["message"]] == ["text", "image", "file", "file", "file"]
        assert body["message"][0]["text"] == "Look at these.\n\nnotes.md:\n````md\n```\nwords\n```\n````"
        assert base64.b64decode(body["message"][1]["data"]) == CAT
        assert base64.b64decode(body["message"][2]["data"]) == LAW
        await expect(attached).to_be_hidden()
        turn = page.get_by_role("article", name="Run")
        await expect(turn).to_have_count(1)
        await expect(turn.get_by_role("img", name="cat.png")).to_be_visible()
        await expect(turn.get_by_role("button", name="notes.md 3 lines")).to_be_visible()
        await turn.get_by_role("button", name="Picture: cat.png").click()
        dialog = page.get_by_role("dialog", name="cat.png")
        await expect(dialog.get_by_role("img")).to_have_js_property("naturalWidth", 80)
        await dialog.get_by_role("button", name="Close").click()
        assert {path.name for path in (tmp_path / "work").iterdir()} == {"cat.png", "law.pdf", "notes.md", "blob.bin"}

        await page.get_by_role("combobox", name="Approvals").select_option("ask")
        async with page.expect_request("**/chat") as asked:
            await say(page, "And now?")
        assert json.loads((await asked.value).post_data or "")["approval"] == "ask"
        await page.reload()
        await expect(page.get_by_role("combobox", name="Approvals")).to_have_value("ask")


async def test_the_mode_that_asks_for_nothing_says_what_it_does_and_what_still_asks(tmp_path: Path) -> None:
    async with serving(tmp_path, Scripted([])) as served, browsing() as browser:
        page = await browser.page()
        await page.goto(home(served))
        modes = page.get_by_role("combobox", name="Approvals")
        meaning = page.locator("#composer-mode")
        await expect(modes).to_have_value("")
        await expect(meaning).to_be_hidden()
        await modes.select_option("auto")
        await expect(meaning).to_contain_text("Commands, the web, MCP servers and the network need no approval.")
        await expect(meaning).to_contain_text("You are still asked about files that your own programs would run")
        await expect(modes).to_have_accessible_description(re.compile("^Commands, the web, .* stay refused"))
        await page.reload()
        await expect(meaning).to_contain_text("need no approval")
        await modes.select_option("ask")
        await expect(meaning).to_be_hidden()


@only_at_night
async def test_a_large_picture_is_made_smaller_before_it_is_sent(tmp_path: Path) -> None:
    async with serving(tmp_path, Scripted(["I see."])) as served, browsing() as browser:
        page = await browser.page()
        await page.goto(home(served))
        sizes = await page.evaluate(
            """async () => {
              const { scaledDown } = await import("/page/js/chat/attachments.js");
              const canvas = new OffscreenCanvas(2600, 1300);
              const context = canvas.getContext("2d");
              const noise = context.createImageData(2600, 1300);
              for (let at = 0; at < noise.data.length; at += 65536) {
                crypto.getRandomValues(noise.data.subarray(at, at + 65536));
              }
              context.putImageData(noise, 0, 0);
              const big = await canvas.convertToBlob({ type: "image/png" });
              const small = await scaledDown(new File([big], "noise.png", { type: "image/png" }));
              const drawn = await createImageBitmap(small);
              return [big.size, small.size, drawn.width, drawn.height];
            }"""
        )
        big, small, width, height = sizes
        assert big > 4 * 1024 * 1024 >= small
        assert (width, height) == (2048, 1024)


async def test_a_picture_for_a_model_that_sees_none_goes_as_words(tmp_path: Path) -> None:
    model = Blind(["A cat, they say."])
    async with serving(tmp_path, model) as served, browsing() as browser:
        page = await browser.page()
        await page.goto(home(served))
        await hand_over(page, "paste", ("cat.png", "image/png", CAT))
        await say(page, "What is it?")
        await expect(page.locator(".end-line")).to_contain_text("cannot see")
        await page.get_by_role("button", name="Send descriptions instead").click()
        await expect(page.get_by_text("A cat, they say.")).to_be_visible()
        told = model.requests[-1].messages[-1]
        assert "[picture cat.png" in told.text and "What is it?" in told.text


PASTE = """(text) => {
  const carried = new DataTransfer();
  carried.setData("text/plain", text);
  const event = new ClipboardEvent("paste", { clipboardData: carried, bubbles: true, cancelable: true });
  return document.getElementById("composer-text").dispatchEvent(event);
}"""
LONG = "".join(f"line {number} of a long text, with words enough to wrap\n" for number in range(3412))


async def test_a_long_paste_is_an_attachment_that_can_be_read_and_put_into_the_message(tmp_path: Path) -> None:
    model = Scripted(["I have read it."])
    async with serving(tmp_path, model, window="200000") as served, browsing() as browser:
        page = await browser.page()
        await page.goto(home(served))
        box, attached = page.get_by_role("textbox", name="Message"), page.get_by_role("list", name="Attached files")
        assert await page.evaluate(PASTE, "x" * 4_000), "a short one is left to the browser"
        await box.fill("What is in it?")
        assert not await page.evaluate(PASTE, LONG)
        await expect(attached.get_by_role("listitem")).to_contain_text("3,412 lines")
        await expect(box).to_have_value("What is in it?")
        await page.reload()
        chip = attached.get_by_role("button", name=re.compile("^Pasted text, .* KB, 3,412 lines"))
        await expect(chip).to_have_count(1)
        await chip.click()
        dialog = page.get_by_role("dialog")
        await expect(dialog).to_contain_text("line 0 of a long text")
        await expect(dialog).not_to_contain_text("line 1700 ")
        await dialog.get_by_role("button", name="Show all").click()
        await expect(dialog).to_contain_text("line 1700 ")
        await dialog.get_by_role("button", name="Put it into the message").click()
        await expect(box).to_have_value(f"What is in it?\n\n{LONG}")
        await expect(attached).to_be_hidden()

        await box.fill("What is in it?")
        assert not await page.evaluate(PASTE, LONG)
        await page.get_by_role("button", name=re.compile("^Remove Pasted text")).click()
        await expect(attached).to_be_hidden()
        assert not await page.evaluate(PASTE, LONG)
        await expect(attached).to_be_visible()
        await page.get_by_role("button", name="New conversation").click()
        await expect(attached).to_be_visible()  # the draft of a new conversation is this one
        async with page.expect_request("**/chat") as asked:
            await box.press("Enter")
        words, file = json.loads((await asked.value).post_data or "")["message"]
        assert words["text"] == f"What is in it?\n\npasted.txt:\n```txt\n{LONG}```"
        assert base64.b64decode(file["data"]).decode() == LONG
        await expect(page.get_by_text("I have read it.")).to_be_visible()
        assert LONG in model.requests[-1].messages[-1].text
        shown = page.locator(".user-text")
        await expect(shown).not_to_contain_text("line 3411 ")
        await page.get_by_role("button", name="Show all").click()
        await expect(shown).to_contain_text("line 3411 ")
        await page.reload()
        await expect(shown).to_contain_text("line 0 of")
        await expect(attached).to_be_hidden()


async def test_half_a_character_of_a_paste_does_not_keep_the_message_from_being_sent(tmp_path: Path) -> None:
    model = Scripted(["I have read it."])
    async with serving(tmp_path, model) as served, browsing() as browser:
        page = await browser.page()
        await page.goto(home(served))
        await page.evaluate(f"({PASTE})('\\ud83d' + 'x'.repeat(4_500))")
        await expect(page.get_by_role("list", name="Attached files").get_by_role("listitem")).to_have_count(1)
        await page.get_by_role("textbox", name="Message").press("Enter")
        await expect(page.get_by_text("I have read it.")).to_be_visible()
        assert "\ufffdxxx" in model.requests[-1].messages[-1].text
