"""Cards of tool calls in a real browser, with real processes: what is written, what runs, how it ends."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path

import pytest

from app.core.provider import PictureChunk
from app.models.scripted import Pause, Reply
from parsing import Call, CallDelta, CallOpened
from tests.support.models.pictures import CAT
from tests.support.models.replies import native_bash
from tests.support.models.upstream import answer, upstream
from tests.support.page.browser import Browsing, Locator, Page, expect, shot
from tests.support.page.stories import cards, held, let_go, page_of_turn, unfold
from tests.support.sandbox.processes import alive, all_gone, endless

pytestmark = pytest.mark.usefixtures("chromium")


SEE = Call(0, "read_file", {"path": "cat.png"}, "native")
PROGRESS = "printf '\\033[1mbuilding\\033[m\\n'; for i in 10 20 30; do printf '\\r[\\033[36m#\\033[m] %d%%' $i; done; "


async def undo_by_hand(work: Path, browser: Browsing, page: Page) -> None:
    """Look at the changes of the turn that has made the file; undo them, once the file is as the turn has left it."""
    await page.get_by_role("button", name="Changes").click()
    changes = page.get_by_role("dialog", name="Changes of this run")
    await expect(changes.locator("summary")).to_have_text(["table.csv created"])
    await expect(changes.locator(".diff")).to_contain_text("x,y")
    (work / "table.csv").write_text("by a person")
    browser.expected.append("status of 409")
    await changes.get_by_role("button", name="Undo").click()
    await changes.get_by_role("button", name="Undo all").click()
    await expect(changes.locator(".outcome")).to_contain_text("Nothing was undone.")
    await expect(changes.locator("ul.problem")).to_have_text("table.csv: it has changed since")
    (work / "table.csv").write_text("x,y\n")
    await changes.locator("details").get_by_role("button", name="Restore this file").click()
    await changes.get_by_role("button", name="Restore", exact=True).click()
    await expect(changes).to_contain_text("Already undone: table.csv")
    assert not (work / "table.csv").exists()
    await changes.get_by_role("button", name="Undo", exact=True).click()
    await changes.get_by_role("button", name="Undo all").click()
    await expect(changes).to_contain_text("Undone: the files are as they were")
    await expect(changes.get_by_role("button", name="Undo")).to_have_count(0)
    await changes.get_by_role("button", name="Close").click()


async def see_pictures(page: Page) -> None:
    """The one of a call, and that of the model itself."""
    for at in (cards(page, 3), page.locator(".run-body > .card-pictures")):
        picture = at.get_by_role("button", name="Picture: picture")
        await picture.scroll_into_view_if_needed()  # what is far from it when first drawn is not fetched
        await expect(picture.get_by_role("img")).to_have_js_property("naturalWidth", 80)


async def see_files(work: Path, browser: Browsing, page: Page) -> None:
    """The files that a call has changed, its pictures, and undoing it."""
    files = cards(page, 2).get_by_role("list", name="Changed files")
    await expect(files.locator("li")).to_have_text(["−ondeleted", "+table.csvcreated, 4 B"])
    await files.get_by_role("button").click()
    await expect(page.get_by_role("dialog", name="table.csv").locator("code")).to_have_text("x,y")
    await page.keyboard.press("Escape")
    await see_pictures(page)
    await undo_by_hand(work, browser, page)


async def test_a_command_is_watched_from_its_start_to_its_exit_code(tmp_path: Path) -> None:
    command = f"{PROGRESS}{held('on')}; printf '\\nlinked\\n'; {held('go')}; seq 1 60; printf '\\033[32mover\\033[m\\n'"
    failing = "seq 1 30; echo 'no such file' >&2; exit 3"
    drawn: Reply = [PictureChunk(CAT), "Done."]
    replies = (
        [native_bash(command)],
        [native_bash(failing)],
        [native_bash("printf 'x,y\\n' > table.csv; rm on")],
        [SEE],
        drawn,
    )
    (tmp_path / "work").mkdir()
    (tmp_path / "work/cat.png").write_bytes(CAT)
    async with page_of_turn(tmp_path, *replies) as (_, browser, page):
        card, tail = cards(page), cards(page).locator(".tail")
        await expect(card).to_have_attribute("data-state", "running")
        await expect(page.get_by_role("group", name="bash: printf")).to_have_attribute("aria-label", _ends("running"))
        await expect(tail).to_have_text("building\n[#] 30%\n")
        assert "700" in await tail.get_by_text("building").evaluate("(one) => getComputedStyle(one).fontWeight")
        began = await card.locator(".card-time").inner_text()
        await shot(page, "cards-running")
        let_go(tmp_path, "on")
        await expect(tail).to_contain_text("linked")
        await expect(card.locator(".card-time")).not_to_have_text(began)  # it ticks
        await expect(card.get_by_role("button", name="Stop command")).to_be_visible()
        let_go(tmp_path)
        await expect(card).to_have_attribute("data-state", "done")
        await expect(tail).to_contain_text("60\nover")  # it stays as it was watched, in its colours
        colour = "(one) => getComputedStyle(one).color"
        assert await tail.get_by_text("over").evaluate(colour) == "rgb(26, 107, 52)"
        await expect(card.locator(".tail-count")).to_have_text("64 lines")

        failed = cards(page, 1)
        await expect(failed.locator(".card-state")).to_have_text("failed")
        await expect(failed.locator(".card-extra")).to_have_text("exit 3")
        await expect(failed.locator(".tail")).to_contain_text("30\nno such file")
        await expect(failed.locator(".tail")).not_to_contain_text("exit code")
        await expect(cards(page, 2).locator(".card-state")).to_have_text("done")
        await unfold(page)
        await see_files(tmp_path / "work", browser, page)
        await page.reload()
        await unfold(page)
        await expect(card.locator(".card-brief")).to_have_text("5960over")
        fold = card.get_by_role("button", name="bash printf")
        await fold.focus()
        await page.keyboard.press("Enter")
        await expect(fold).to_have_attribute("aria-expanded", "true")
        await expect(tail).to_contain_text("over")
        await expect(tail.get_by_text("over")).to_have_css("color", "rgb(26, 107, 52)")
        await card.get_by_role("button", name="Show all").click()
        await expect(tail).to_contain_text("building\n[#] 30%\nlinked\n1\n2\n")
        await page.reload()
        await expect(card.locator(".card-brief")).to_have_text("5960over")
        await expect(page.get_by_role("button", name="Changes")).to_have_count(1)
        await expect(failed.locator(".card-extra")).to_have_text("exit 3")
        await expect(page.get_by_role("button", name="Stop command")).to_have_count(0)


def _ends(words: str) -> re.Pattern[str]:
    return re.compile(f", {words}$")


async def test_the_whole_output_is_read_while_it_grows_and_the_reader_stays_where_they_are(tmp_path: Path) -> None:
    command = f"seq 1 2000; {held('on')}; seq 2001 4000; {held('go')}; seq 4001 4100"
    async with page_of_turn(tmp_path, [native_bash(command)], "Done.") as (_, _, page):
        card, tail = cards(page), cards(page).locator(".tail")
        await card.get_by_role("button", name="Show all").click()
        for shown in ("\n1000\n", "\n1999\n2000\n"):  # the last lines alone are there before
            await expect(tail).to_contain_text(shown)
        assert await tail.evaluate("(box) => box.scrollTop > 1000")  # at its end
        await tail.evaluate("(box) => (box.scrollTop = 500)")
        await expect(card.get_by_role("button", name="Scroll to the end")).to_be_visible()
        let_go(tmp_path, "on")
        await expect(tail).to_contain_text("\n3999\n4000\n")
        assert await tail.evaluate("(box) => box.scrollTop") == 500
        await card.get_by_role("button", name="Scroll to the end").click()
        await expect(card.get_by_role("button", name="Scroll to the end")).to_be_hidden()
        await expect(tail).to_be_focused()
        let_go(tmp_path)
        await expect(tail).to_contain_text("\n4099\n4100")
        await expect(card).to_have_attribute("data-state", "done")
        await expect(tail).to_be_visible()  # it does not fold away from who reads it
        await card.get_by_role("button", name="Show less").click()
        await expect(tail).to_contain_text("4100")
        await expect(tail).not_to_contain_text("4000")


def _a_wide_window() -> re.Pattern[str]:
    return re.compile(r"^Name\? Ann\nWord\? 6 characters\n40 (\d{3}|[89]\d)\nstarted by Ann\n$")


async def test_the_stop_button_ends_this_call_and_its_processes(tmp_path: Path) -> None:
    sleeper = endless()
    asks = "read -p 'Name? ' name; read -s -p 'Word? ' word; echo \"${#word} characters\"; stty size"
    command = f'{asks}; {sleeper} & echo "started by $name"; wait'
    async with page_of_turn(tmp_path, [native_bash(command)], "It goes on.") as (_, browser, page):
        card = cards(page)
        await expect(card.locator(".tail")).to_have_text("Name? ")
        line = card.get_by_role("textbox", name="Type into this command")
        await expect(line).to_be_hidden()  # most commands read nothing, and the page would jump
        await card.get_by_role("button", name="Input").click()
        await expect(line).to_be_focused()
        await card.get_by_role("button", name="Input").click()
        await expect(line).to_be_hidden()
        await card.get_by_role("button", name="Input").press("Enter")
        await line.fill("Ann")
        await line.press("Enter")
        hidden = card.get_by_label("Type into this command")
        await expect(hidden).to_have_attribute("type", "password")
        await expect(hidden).to_have_value("")
        await hidden.fill("sesame")
        await hidden.press("Enter")
        await expect(card.locator(".tail")).to_have_text(_a_wide_window())
        await expect(line).to_have_value("")
        browser.expected.append("status of 409")
        refusal = json.dumps({"error": {"code": "busy", "message": "Not now. Try again."}})
        await page.route("**/cancel", lambda route: route.fulfill(status=409, body=refusal))
        stop = card.get_by_role("button", name="Stop command")
        await stop.click()
        await expect(card.get_by_role("alert").filter(has_text="Not now.")).to_be_visible()
        await expect(stop).to_be_enabled()
        await page.unroute("**/cancel")
        assert alive(sleeper)
        await stop.click()
        await expect(card.locator(".card-state")).to_have_text("stopped")
        await expect(stop).to_be_hidden()
        await expect(line).to_be_hidden()
        assert all_gone(sleeper)
        await expect(page.get_by_text("It goes on.")).to_be_visible()
        await page.reload()
        await expect(card.locator(".card-state")).to_have_text("stopped")


async def test_arguments_grow_as_the_model_writes_them(tmp_path: Path) -> None:
    first, second, third = (Pause(asyncio.Event()) for _ in range(3))
    whole = "".join(f"line {n} \u202e\n" for n in range(40))
    written = [CallDelta(0, json.dumps(f"line {n} \u202e\n")[1:-1]) for n in range(40)]
    begin = CallDelta(0, '{"path": "notes/a.md", "content": "')
    replies: tuple[Reply, ...] = (
        [CallOpened(0, "write_file"), begin, *written[:3], first, *written[3:], second, _write(whole)],
        ["<tool_call>\n<function=write_file>\n<parameter=path>\nb.py\n</parameter>\n",
         "<parameter=content>\nx = 1\n", third, "y = 2\n</parameter>\n</function>\n</tool_call>"],
        ["```bash\necho 'made of text'\n", "exit 0\n```"],
        "Done.",
    )  # fmt: skip
    async with page_of_turn(tmp_path, *replies) as (_, _, page):
        growing = cards(page).locator(".streaming-text")
        await expect(growing).to_have_text("line 0 ⟨U+202E⟩\nline 1 ⟨U+202E⟩\nline 2 ⟨U+202E⟩\n")
        await expect(cards(page).locator(".card-title")).to_have_text("notes/a.md")
        await expect(cards(page).locator(".card-state")).to_have_text("writing")
        first.event.set()
        await expect(growing).to_contain_text("line 39")
        await shot(page, "cards-writing")
        second.event.set()
        await expect(cards(page).locator(".card-extra")).to_have_text("+40 −0")

        tagged = cards(page, 1)
        await expect(tagged.locator(".card-title")).to_have_text("b.py")
        await expect(tagged.locator(".streaming-text")).to_contain_text("x = 1")
        third.event.set()
        await expect(tagged.locator(".card-extra")).to_have_text("+2 −0")
        await expect(cards(page, 2).locator(".tail")).to_have_text("made of text\n")
        await expect(cards(page, 2).locator(".command")).to_have_text("echo 'made of text'\nexit 0")


async def test_a_block_of_code_that_ran_is_shown_once(tmp_path: Path) -> None:
    """While it is written, when it runs, and after a reload; a call that is not made shows it, too."""
    written, begun = Pause(asyncio.Event()), "until [ -e go ]; do sleep 0.01; done; echo one"
    drafted = "Perhaps\n```bash\necho drafted\n```\n</think>"
    replies: tuple[Reply, ...] = (
        [f"First:\n\n```bash\n{begun}\n```\n", written, "Second:\n```python\nprint('tw' + 'o')\n```\nBoth."],
        [drafted, "And:\n```bash\n\n```\n"],
        "The end.",
    )
    async with page_of_turn(tmp_path, *replies) as (_, _, page):
        first, second = cards(page), cards(page, 1)
        await expect(first.locator(".streaming-text")).to_have_text(begun)
        await expect(page.locator(".answer")).to_have_text(["First:"])
        written.event.set()
        await expect(first.locator(".card-state")).to_have_text("running")
        await expect(first.locator(".command")).to_have_text(begun)
        await expect(first.locator(".card-title")).to_have_class("card-title visually-hidden")  # the body has it
        await shot(page, "cards-fence")
        let_go(tmp_path)
        for _ in range(2):
            await expect(page.locator(".answer")).to_have_text(["First:", "Second:", "Both.", "And:", "The end."])
            await expect(page.locator(".answer pre")).to_have_count(0)
            await expect(second.locator(".card-title")).to_have_text("print('tw' + 'o')")
            await expect(second.locator(".card-state")).to_have_text("done")
            await expect(cards(page, 2).locator(".card-state")).to_have_text("refused")
            await expect(cards(page, 2).locator(".card-title")).to_have_text("echo drafted")
            await expect(cards(page, 3).locator(".card-reason")).to_contain_text("The fence is empty.")
            await page.reload()
        await expect(first.locator(".card-title")).to_have_class("card-title")


def _write(content: str) -> Call:
    return Call(0, "write_file", {"path": "notes/a.md", "content": content}, "native")


async def test_results_are_shown_as_what_they_are(tmp_path: Path) -> None:
    edit = {"path": "a.py", "old": "two", "new": "zwei\ndrei"}
    replies = (
        [Call(0, "write_file", {"path": "a.py", "content": "one\ntwo\nthree\n"}, "native")],
        [Call(0, "edit_file", edit, "native")],
        [
            Call(0, "read_file", {"path": "a.py"}, "native"),
            Call(1, "list_files", {}, "native"),
            Call(2, "read_file", {"path": "nowhere"}, "native"),
        ],
        [Call(0, "telepathy", {"whom": "you"}, "native"), native_bash("echo '{\"a\": [1]}'; seq 1 9000", 1)],
        [Call(0, "web_search", {"query": "green tea"}, "native")],
        ("Done.", Pause(asyncio.Event())),  # a run that ends folds its cards
    )
    async with (
        upstream(answer(json.dumps({"results": [GREEN, FORGED]}))) as engine,
        page_of_turn(tmp_path, *replies, approval="auto", search_url=f"http://127.0.0.1:{engine.port}") as (_, _, page),
    ):
        changed = cards(page, 1)
        await expect(changed.locator(".card-extra")).to_have_text("+2 −1")
        await expect(changed.locator(".card-brief .diff-row")).to_have_count(3)
        await changed.locator(".card-fold").click()
        diff = changed.get_by_role("group", name="a.py: 2 lines added, 1 removed")
        await expect(diff.locator(".diff-row.removed")).to_have_text("2−removed: two")
        await expect(diff.locator(".diff-row.added").last).to_have_text("3+added: drei")

        read, listed, missing = (cards(page, number) for number in (2, 3, 4))
        await expect(read.locator(".card-extra")).to_have_text("4 lines")
        await read.locator(".card-fold").click()
        await expect(read.locator("figure.code")).to_contain_text("zwei")
        await expect(listed.locator(".card-brief")).to_have_text("a.py")
        await expect(missing.locator(".card-problem")).to_contain_text("nowhere does not exist")
        await shot(page, "cards-results")

        refused, cut = cards(page, 5), cards(page, 6)
        await expect(refused.locator(".card-state")).to_have_text("refused")
        await expect(refused.locator(".card-reason")).to_contain_text("No tool is called 'telepathy'.")
        await expect(cut.locator(".card-state")).to_have_text("done")
        await expect(cut.locator(".tail-count")).to_contain_text("9,001 lines · the model saw ")
        await cut.get_by_role("button", name="Show all").click()
        await expect(cut.locator(".tail-count")).to_contain_text("9,001 lines · the model saw ")
        await expect(cut.locator(".tail")).to_contain_text('{"a": [1]}\n1\n2\n')
        await expect(cut.locator(".tail")).to_contain_text("\n4500\n")  # the model was not told that line
        await page.evaluate("document.fonts.ready")
        await shot(page, "cards-whole")
        await searched(cards(page, 7))


GREEN = {"title": "Green <b>tea</b>", "url": "https://example.org/tea?a=1", "content": "Steep\nit <i>briefly</i>."}
FORGED = {"title": "bank.example <img src=x onerror=alert(1)>", "url": "https://evil.example/", "content": "Pay"}


async def searched(card: Locator) -> None:
    """Look at the results of a search: links that name their hosts."""
    await expect(card.locator(".card-title")).to_have_text("green tea")
    await expect(card.locator(".card-extra")).to_have_text("2 results")
    await expect(card.locator(".card-brief")).to_have_text("Green tea (example.org)bank.example (evil.example)")
    await card.locator(".card-fold").click()
    await expect(card.locator(".card-untrusted")).to_have_text("Untrusted content: the web")
    first, second = card.locator(".search-results li").nth(0), card.locator(".search-results li").nth(1)
    await expect(first).to_have_text("Green teahttps://example.org/tea?a=1Steep it briefly.")
    await expect(first.get_by_role("link", name="Green tea")).to_have_attribute("href", GREEN["url"])
    await expect(first.get_by_role("link")).to_have_attribute("rel", "noopener noreferrer")
    await expect(second.get_by_role("link")).to_have_text("bank.example (evil.example)")
    await shot(card.page, "cards-search")


async def test_a_question_that_is_not_listed_yet_is_shown_as_soon_as_it_is(tmp_path: Path) -> None:
    opened = (CallOpened(0, "bash"), CallOpened(1, "bash"))
    replies: tuple[Reply, ...] = ([*opened, native_bash("touch first"), native_bash("touch second", 1)], "Done.")
    async with page_of_turn(tmp_path, *replies, approval="ask") as (served, _, page):
        await expect(cards(page).locator(".card-state")).to_have_text("waiting for you")
        await expect(cards(page, 1).locator(".card-state")).to_have_text("queued")
        [waiting] = (await served.client.get("/approvals")).json()["approvals"]
        key = {"run": waiting["run"], "call": await cards(page, 1).get_attribute("data-call")}
        tray = page.locator("#approvals")
        await tray.evaluate("(tray, detail) => tray.dispatchEvent(new CustomEvent('show', { detail }))", key)
        await served.client.post(f"/runs/{key['run']}/approvals/{waiting['call']}", json={"decision": "approve"})
        await expect(tray.locator(f"[data-call={key['call']}]")).to_be_focused()


async def test_a_call_that_waits_leads_to_the_question_and_tells_who_changed_it(tmp_path: Path) -> None:
    opened = (CallOpened(0, "bash"), CallOpened(1, "bash"))
    replies: tuple[Reply, ...] = ([*opened, native_bash("touch first"), native_bash("touch second", 1)], "Done.")
    async with page_of_turn(tmp_path, *replies, approval="ask") as (served, _, page):
        first, second = cards(page), cards(page, 1)
        await expect(first.locator(".card-state")).to_have_text("waiting for you")
        await expect(second.locator(".card-state")).to_have_text("queued")
        await first.get_by_role("button", name="Answer").click()
        tray = page.locator("#approvals")
        await expect(tray.locator(":focus")).to_have_count(1)
        waiting = (await served.client.get("/approvals")).json()["approvals"]
        where = f"/runs/{waiting[0]['run']}/approvals/{waiting[0]['call']}"
        await served.client.post(where, json={"decision": "approve", "arguments": {"command": "touch instead"}})
        await expect(first.locator(".card-state")).to_have_text("done")
        await first.locator(".card-fold").click()
        await expect(first.locator(".command")).to_have_text("touch instead")
        await expect(first.locator(".card-note").first).to_have_text("Changed by you.")
        await expect(second.locator(".card-state")).to_have_text("waiting for you")
        waiting = (await served.client.get("/approvals")).json()["approvals"]
        where = f"/runs/{waiting[0]['run']}/approvals/{waiting[0]['call']}"
        await served.client.post(where, json={"decision": "deny", "note": "not today"})
        await expect(second.locator(".card-state")).to_contain_text("not run: denied by you over HTTP: “not today”")
        await expect(second).not_to_contain_text("Do not try it again")  # for the model alone
