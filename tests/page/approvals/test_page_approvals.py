"""What waits for a person, in a real browser: shown exactly, decided once, and never by accident."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import httpx2
import pytest
from playwright.async_api import Request, Route

from tests.support.models.replies import bash_block
from tests.support.page.approvals import NOTICES, asking_page, press, questions_on, until_decided
from tests.support.page.browser import PHONE, choose, expect, home, say, shot

pytestmark = pytest.mark.usefixtures("chromium")

SHIELD = """
window.pressed = 0;
new MutationObserver(() => {
  const button = document.querySelector('[data-action="approve"]');
  if (!button || window.pressed) return;
  window.pressed++;
  button.dispatchEvent(new MouseEvent("click", {bubbles: true, detail: 1}));
}).observe(document, {childList: true, subtree: true});
"""


def decides(request: Request) -> bool:
    return request.method == "POST" and "/approvals/" in request.url


async def test_keys_decide_only_where_they_are_meant_to(tmp_path: Path) -> None:
    flags = {"approval_time_limit_s": "300"}
    async with asking_page(tmp_path, bash_block("touch made"), "Made.", **flags) as (_, _, _, page):
        posted: list[Request] = []
        page.on("request", lambda request: posted.append(request) if decides(request) else None)
        await say(page, "Make it.")
        await expect(questions_on(page).get_by_text("touch made", exact=True)).to_be_visible()
        await expect(questions_on(page).get_by_text("You asked to approve changes.")).to_be_visible()
        await expect(questions_on(page)).to_contain_text("Expires in")
        await expect(page.locator("#urgent")).to_have_text("bash is waiting for you: touch made")
        await expect(page.locator('link[rel="icon"]')).to_have_attribute("href", "/page/icon-waiting.svg")
        assert (await page.title()).startswith("(1) ")
        box = page.get_by_role("textbox", name="Message")
        await box.press_sequentially("yes yyy")
        assert not posted, "what is written in a text field decides nothing"
        await page.keyboard.press("Alt+a")
        await expect(questions_on(page)).to_be_focused()
        await expect(page.locator("#approvals:not([data-settling])")).to_be_visible()
        await page.keyboard.press("e")
        field = questions_on(page).get_by_role("textbox", name="command")
        await expect(field).to_be_focused()
        await field.press_sequentially("yn")
        await expect(field).to_have_value("touch madeyn")
        await page.keyboard.press("Escape")
        await expect(questions_on(page)).to_be_focused()
        await expect(page.locator("#approvals:not([data-settling])")).to_be_visible()
        await page.keyboard.press("y")
        await until_decided(page)
        await expect(page.get_by_text("Made.")).to_be_visible()
        assert (tmp_path / "work/made").exists() and len(posted) == 1
        await expect(page).not_to_have_title("(1) dragoman")
        await expect(page.locator('link[rel="icon"]')).to_have_attribute("href", "/page/icon.svg")
        await expect(box).to_be_focused()


async def test_a_click_that_was_meant_for_something_else_approves_nothing(tmp_path: Path) -> None:
    async with asking_page(tmp_path, bash_block("touch made"), "Made.") as (_, _, _, page):
        posted: list[Request] = []
        page.on("request", lambda request: posted.append(request) if decides(request) else None)
        await page.evaluate(SHIELD)
        await say(page, "Make it.")
        await expect(page.locator("#approvals:not([data-settling]) .approval")).to_be_visible()
        assert await page.evaluate("window.pressed") == 1 and not posted
        await questions_on(page).get_by_role("button", name="Approve once").dblclick()
        await until_decided(page)
        await expect(page.get_by_text("Made.")).to_be_visible()
        assert len(posted) == 1, "pressed twice, decided once"


async def test_a_decision_by_touch_opens_no_keyboard(tmp_path: Path) -> None:
    async with asking_page(tmp_path, bash_block("touch made"), "Made.") as (served, _, browser, _):
        page = await browser.page(viewport=PHONE, has_touch=True, is_mobile=True)
        await page.goto(home(served))
        await page.get_by_role("textbox", name="Message").fill("Make it.")
        await page.get_by_role("button", name="Send").tap()
        await expect(page.locator("#approvals:not([data-settling]) .approval")).to_be_visible()
        approve = questions_on(page).get_by_role("button", name="Approve once")
        await approve.focus()  # as taps do in some browsers
        await approve.tap()
        await expect(page.get_by_text("Made.")).to_be_visible()
        await expect(page.get_by_role("form", name="Message")).to_be_focused()


async def test_a_denial_with_a_reason_is_told_to_the_model(tmp_path: Path) -> None:
    async with asking_page(tmp_path, bash_block("rm -rf build"), "I see.") as (_, provider, _, page):
        await say(page, "Clean up.")
        await press(page, "Deny")
        await questions_on(page).get_by_role("textbox").fill("build is still needed")
        await page.keyboard.press("Enter")
        await expect(page.get_by_text("I see.")).to_be_visible()
        await until_decided(page)
        assert any("saying: build is still needed" in message.text for message in provider.requests[-1].messages)


async def test_what_was_edited_is_what_runs(tmp_path: Path) -> None:
    call = {"name": "bash", "arguments": {"command": "echo one > made\n", "background": False}}
    async with asking_page(tmp_path, f"<tool_call>{json.dumps(call)}</tool_call>", "Done.") as (
        _,
        provider,
        browser,
        page,
    ):
        browser.expected.append("422")
        await say(page, "Make it.")
        await press(page, "Edit first")
        command = questions_on(page).get_by_role("textbox", name="command")
        flag = questions_on(page).get_by_role("textbox", name="background")
        await command.fill("echo two > made; echo \u200bthree")
        await expect(questions_on(page).get_by_text("invisible characters: U+200B")).to_be_visible()
        await questions_on(page).get_by_role("button", name="Remove them").click()
        await flag.fill("perhaps")
        await press(page, "Approve with these changes")
        await expect(questions_on(page).get_by_role("alert")).to_contain_text("background is not valid JSON")
        await flag.fill('"perhaps"')
        await press(page, "Approve with these changes")
        await expect(questions_on(page).get_by_role("alert")).to_contain_text("bash")
        await shot(page, "approval-edited")
        await expect(command).to_have_value("echo two > made; echo three")
        await flag.fill("false")
        await press(page, "Approve with these changes")
        await expect(page.get_by_text("Done.")).to_be_visible()
        assert (tmp_path / "work/made").read_text() == "two\n"
        assert any("local changed the arguments to" in message.text for message in provider.requests[-1].messages)


WRITTEN = [("one.txt", "a"), ("one.txt", "a"), ("notes/two.txt", "b"), ("notes/three.txt", "c")]


async def test_what_is_allowed_for_the_session_is_not_asked_again(tmp_path: Path) -> None:
    written = [f"```write_file\n{path}\n{text}\n```" for path, text in WRITTEN]
    async with asking_page(tmp_path, *written, "Done.") as (served, _, browser, page):
        browser.expected.append("422")
        await say(page, "Look.")
        await press(page, "Approve for this conversation")
        await press(page, "Approve and allow")
        await expect(questions_on(page).get_by_text("notes/two.txt", exact=True)).to_be_visible()
        await press(page, "Approve for this conversation")
        await questions_on(page).get_by_role("radio", name="Calls that match a pattern").check()
        pattern = questions_on(page).get_by_role("textbox", name="path")
        await expect(pattern).to_have_value("notes/two.txt")
        await pattern.fill("src/*")
        await press(page, "Approve and allow")
        await expect(questions_on(page).get_by_role("alert")).to_contain_text("does not match this call")
        await shot(page, "approval-session")
        await pattern.fill("notes/*")
        await press(page, "Approve and allow")
        await expect(page.get_by_text("Done.")).to_be_visible()
        rows = (await served.client.get("/audit")).json()["audit"]
        assert [row["decision"] for row in rows].count("approved") == 2, "four calls, asked for twice"


async def test_what_is_allowed_is_seen_and_taken_back(tmp_path: Path) -> None:
    script = [bash_block("ls -a"), bash_block("ls -l notes"), "Done.", bash_block("ls -a"), "Again."]
    async with asking_page(tmp_path, *script, allowed_commands="true", unsafe_no_sandbox="true") as (_, _, _, page):
        allowed = page.locator(".status-item", has_text="allowed")  # pressed by the menu
        await expect(allowed).to_have_attribute("hidden", "")
        await say(page, "Look.")
        await press(page, "Approve for this conversation")
        await press(page, "Approve and allow")
        await expect(allowed).to_have_text("1 allowed")
        await press(page, "Approve for this conversation")
        await questions_on(page).get_by_role("radio", name="Calls that match a pattern").check()
        await questions_on(page).get_by_role("textbox", name="command").fill("ls -l *")
        await press(page, "Approve and allow")
        await expect(page.get_by_text("Done.")).to_be_visible()
        await choose(page, "2 allowed")
        panel = page.get_by_role("complementary", name="Allowed in this conversation")
        grants = panel.get_by_role("listitem")
        await expect(grants).to_have_count(2)
        await expect(grants.first).to_contain_text("Exactly this call")
        await expect(grants.first.locator("pre")).to_have_text("ls -a")
        await expect(grants.last).to_contain_text("ls -l *")
        await shot(page, "grants")
        await grants.first.get_by_role("button", name="Withdraw").click()
        await expect(grants).to_have_count(1)
        await expect(allowed).to_have_text("1 allowed")
        await say(page, "Once more.")
        await expect(questions_on(page)).to_contain_text("ls -a")
        await press(page, "Approve once")
        await expect(page.get_by_text("Again.")).to_be_visible()
        await grants.get_by_role("button", name="Withdraw").click()
        await expect(panel.get_by_text("Nothing is allowed in advance")).to_be_visible()
        await page.keyboard.press("Escape")
        await expect(allowed).to_have_attribute("hidden", "")


async def test_nothing_misleads_and_nothing_is_missing(tmp_path: Path) -> None:
    command = "rm -rf build/ \u202egnp.yek\u202c\u200b \npaуpal   \necho \u05d0\nset \x1b[8m<b>x</b>"
    asked = f"<tool_call>{json.dumps({'name': 'bash', 'arguments': {'command': command}})}</tool_call>"
    async with asking_page(tmp_path, asked, "No.") as (_, _, _, page):
        await say(page, "Clean up.")
        shown = await questions_on(page).locator("pre").text_content()
        spelled = command.replace("\u202e", "⟨U+202E⟩").replace("\u202c", "⟨U+202C⟩").replace("\u200b", "⟨U+200B⟩")
        assert shown == spelled.replace("\x1b", "⟨U+001B⟩")
        assert await questions_on(page).locator(".end-mark").all_text_contents() == [" ", "   "]
        for warning in ("invisible characters", "right-to-left", "mixes alphabets"):
            await expect(questions_on(page).get_by_text(warning)).to_be_visible()
        await expect(page.locator("#urgent")).to_contain_text("⟨U+202E⟩")
        await shot(page, "approval-hostile")
        await press(page, "Deny")
        await page.keyboard.press("Enter")
        await expect(page.get_by_text("No.", exact=True)).to_be_visible()


async def test_what_is_decided_elsewhere_or_too_late_goes(tmp_path: Path) -> None:
    script = [bash_block("touch one"), "Seen.", bash_block("touch zero"), "No.", bash_block("touch two"), "Late."]
    async with asking_page(tmp_path, *script) as (served, _, browser, page):

        async def forestall(route: Route) -> None:
            await served.client.post(httpx2.URL(route.request.url).path, json={"decision": "deny"})
            await route.continue_()

        browser.expected.append("409")
        await say(page, "Say one.")
        await expect(questions_on(page)).to_be_visible()
        other = await browser.page()
        await other.goto(page.url)
        await expect(questions_on(other).get_by_text("touch one", exact=True)).to_be_visible()
        await questions_on(other).get_by_role("button", name="Approve once").click()
        await expect(page.get_by_text("Seen.")).to_be_visible()
        await until_decided(page)
        await expect(page.get_by_text("Approved by you: bash · touch one")).to_be_visible()
        await page.route("**/approvals/*", forestall)
        await say(page, "Say zero.")
        await press(page, "Approve once")
        await expect(page.get_by_text("touch zero: Denied by you over HTTP")).to_be_visible()
        await until_decided(page)
        served.services.runs.approvals.time_limit_s = 2.0
        await say(page, "Say two.")
        await expect(page.locator(".approval.urgent").get_by_text("touch two", exact=True)).to_be_visible()
        await expect(page.get_by_text("Late.")).to_be_visible()
        await until_decided(page)
        await expect(page.get_by_text("No decision in time: not run: bash · touch two")).to_be_visible()


async def test_other_conversations_wait_in_a_line_and_notices_lead_to_them(tmp_path: Path) -> None:
    script = [bash_block("touch here"), bash_block("touch elsewhere"), "Not elsewhere.", "Done here."]
    async with asking_page(tmp_path, *script) as (served, _, browser, _):
        page = await browser.page()
        await page.add_init_script(NOTICES)
        await page.goto(home(served))
        await say(page, "Say here.")
        await expect(questions_on(page).get_by_text("touch here", exact=True)).to_be_visible()
        await press(page, "Edit first")
        await questions_on(page).get_by_role("textbox", name="command").fill("touch there")
        await page.get_by_role("button", name="Turn on notifications").click()
        await expect(page.get_by_role("button", name="Turn on notifications")).to_be_hidden()
        await page.evaluate("window.away = true")
        elsewhere = asyncio.create_task(served.chat("Say elsewhere."))
        line = page.locator(".approval-others li")
        await expect(line).to_contain_text("Another conversation is waiting for you")
        await expect(page.get_by_role("heading", name="Waiting for you")).to_be_visible()
        notice = "window.notices.map(({title, body}) => [title, body])"
        await page.wait_for_function("() => window.notices.length")  # what describes a call is fetched first
        assert await page.evaluate(notice) == [["bash is waiting for you", "touch elsewhere"]]
        assert (await page.title()).startswith("(2) ")
        await shot(page, "approval-two")
        await page.evaluate("window.away = false; window.notices[0].made.onclick()")
        await expect(questions_on(page).get_by_text("touch elsewhere", exact=True)).to_be_visible()
        await expect(questions_on(page)).to_be_focused()
        await expect(line).to_contain_text("Another conversation is waiting for you")
        await page.evaluate("{ window.away = true; const now = Date.now; Date.now = () => now() + 40_000; }")
        await press(page, "Approve once")
        await expect(page.get_by_text("Not elsewhere.")).to_be_visible()
        await elsewhere
        await page.wait_for_function("() => window.notices.length === 2")
        assert (await page.evaluate(notice))[1][0] == "dragoman is done"
        await line.get_by_role("button", name="Show").click()
        await expect(questions_on(page).get_by_role("textbox", name="command")).to_have_value("touch there")
        await page.evaluate("window.away = false")
        await press(page, "Approve with these changes")
        await expect(page.get_by_text("Done here.")).to_be_visible()
        await expect(page.get_by_role("button", name="Send")).to_be_visible()
        assert (tmp_path / "work/there").exists()
        assert await page.evaluate("window.notices.length") == 2, "who looks at the page needs no notice"


async def test_a_long_file_says_what_is_not_shown_and_shows_it(tmp_path: Path) -> None:
    lines = [f"{number}: all of this is to be written" for number in range(3000)]
    async with asking_page(tmp_path, "\n".join(["```write_file", "notes/plan.md", *lines, "```"]), "No.") as (
        _,
        _,
        _,
        page,
    ):
        await say(page, "Write the plan.")
        content = questions_on(page).get_by_role("group", name="Content of the file")
        await expect(questions_on(page).get_by_text("3,000 lines")).to_be_visible()
        await expect(content).to_contain_text("characters are not shown here")
        await expect(content).to_contain_text("2999: all of this")
        await expect(content).not_to_contain_text("1500: all of this")
        await shot(page, "approval-long")
        await questions_on(page).get_by_role("button", name="Show all").click()
        await expect(questions_on(page).get_by_text("are not shown")).to_have_count(0)
        await expect(content).to_contain_text("2999: all of this")
        assert (await content.text_content() or "").rstrip("\n") == "\n".join(lines)


async def test_a_file_that_changed_meanwhile_is_asked_for_again_on_the_same_card(tmp_path: Path) -> None:
    writes = "```write_file\nnote.txt\nfirst\n```"
    async with asking_page(tmp_path, writes, "Written.") as (_, _, _, page):
        await say(page, "Write it.")
        await expect(questions_on(page)).to_contain_text("Create note.txt?")
        await expect(page.locator("#approvals:not([data-settling])")).to_be_visible()
        (tmp_path / "work/note.txt").write_text("somebody else's work")
        await press(page, "Approve once")
        await expect(questions_on(page)).to_contain_text("not what it was when you were asked")
        await expect(questions_on(page).get_by_role("heading")).to_have_text("Replace note.txt?")
        await expect(questions_on(page)).to_contain_text("There now: 1 line, changed")
        diff = questions_on(page).get_by_role("group", name="note.txt: 1 line added, 1 removed")
        await expect(diff).to_contain_text("somebody else's work")
        await expect(questions_on(page).get_by_text("The whole new content")).to_be_visible()
        await shot(page, "approval-replace")
        assert (tmp_path / "work/note.txt").read_text() == "somebody else's work"
        card = page.locator(".card")
        await expect(card).to_have_count(1)
        await card.get_by_role("button", name="Answer").click()
        await expect(questions_on(page)).to_be_focused()
        await expect(page.locator("#approvals:not([data-settling])")).to_be_visible()
        await press(page, "Approve once")
        await until_decided(page)
        await expect(page.get_by_text("Written.")).to_be_visible()
        await expect(card).to_have_count(1)
    assert (tmp_path / "work/note.txt").read_text() == "first"
