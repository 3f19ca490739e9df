"""What admins see of people: roles and disabling, the devices of a person, and the audit with the calls."""

from __future__ import annotations

from contextlib import aclosing
from pathlib import Path

import pytest

from app.models.scripted import Scripted
from tests.support.access.people import bearer
from tests.support.page.axe import LOOKS, page_for_axe, violations
from tests.support.page.browser import browsing, expect, home, open_settings, shot, signed_in
from tests.support.server.serving import serving, until

pytestmark = pytest.mark.usefixtures("chromium")


async def test_an_admin_changes_people_and_reads_what_was_decided(tmp_path: Path) -> None:
    command = "echo " + "word " * 60
    async with serving(tmp_path, Scripted([f"```bash\n{command}\n```", "Done."])) as served, browsing() as browser:
        browser.expected.append("401|409")
        root, ann = await bearer(served, "root", "admin"), await bearer(served, "ann")
        served.client.headers |= ann
        async with aclosing(served.turn(message="Go", approval="sandboxed")) as turn:
            await until(turn, "run.finished")
        await served.client.post("/sign-ins", headers={"user-agent": "Mozilla/5.0 (X11; Linux x86_64) Firefox/140.0"})
        page = await browser.page()
        await signed_in(page, served, root["authorization"].removeprefix("Bearer "))
        await page.get_by_role("button", name="Settings").click()
        panel = page.get_by_role("complementary", name="Settings")
        await panel.get_by_text("People", exact=True).click()
        row = panel.get_by_role("listitem").filter(has=page.get_by_text("ann", exact=True))
        await row.get_by_text("Details").click()
        await expect(row).to_contain_text("Signed-in devices1")
        await shot(page, "people")
        await row.get_by_label("Role of ann").select_option("guest")
        await expect(row).to_contain_text("user, no expiry")  # an arrow key alone changes nothing
        await row.get_by_role("button", name="Change role").click()
        await expect(row).to_contain_text("guest, no expiry")
        await row.get_by_role("button", name="Sign out everywhere").click()
        await expect(row.get_by_role("button", name="Sign out everywhere")).to_have_count(0)
        await row.get_by_role("button", name="Disable").click()
        await row.get_by_role("button", name="Disable").click()
        await expect(row.get_by_role("button", name="Enable")).to_be_visible()
        assert (await served.client.get("/sessions")).status_code == 401
        own = panel.get_by_role("listitem").filter(has=page.get_by_text("root", exact=True))
        await own.get_by_label("Role of root").select_option("user")
        await own.get_by_role("button", name="Change role").click()
        await expect(own).to_contain_text("root is the last admin")
        await panel.get_by_text("Decisions", exact=True).click()
        decisions = panel.get_by_role("region", name="Decisions")
        await expect(decisions).to_contain_text("disabled")
        await panel.get_by_label("Action").fill("bash")
        await panel.get_by_role("button", name="Filter").click()
        await expect(decisions.get_by_text("disabled")).to_have_count(0)
        await decisions.get_by_text("bash", exact=True).first.click()
        await expect(decisions.locator(".decision-call").first).to_contain_text(command.strip())
        await shot(page, "decisions")


async def test_a_person_sees_the_devices_that_stay_signed_in(tmp_path: Path) -> None:
    async with serving(tmp_path, Scripted([])) as served, browsing() as browser:
        browser.expected.append("401")
        ann = await bearer(served, "ann")
        await served.client.post("/sign-ins", headers=ann | {"user-agent": "Mozilla/5.0 (iPhone) Safari/604.1"})
        page = await browser.page()
        await signed_in(page, served, ann["authorization"].removeprefix("Bearer "))
        await page.get_by_role("button", name="Settings").click()
        panel = page.get_by_role("complementary", name="Settings")
        await panel.get_by_text("Signed-in devices").click()
        await shot(page, "devices")
        await panel.get_by_role("button", name="Sign out Safari on iPhone").click()
        await expect(panel.get_by_text("No device stays signed in.")).to_be_visible()


@pytest.mark.parametrize("look", LOOKS)
async def test_axe_finds_nothing_in_what_a_person_sets(tmp_path: Path, look: str) -> None:
    async with serving(tmp_path, Scripted(["```bash\necho hello\n```", "Done."])) as served, browsing() as browser:
        browser.expected.append("401")
        root = await bearer(served, "root", "admin")
        served.client.headers |= root
        async with aclosing(served.turn(message="Go", approval="sandboxed")) as turn:
            await until(turn, "run.finished")
        await served.client.put("/prompts/review", json={"text": "Review {{file}}.", "about": "A look at a file"})
        page = await page_for_axe(browser, **LOOKS[look])
        await page.goto(home(served))
        await expect(page.get_by_label("Token")).to_be_visible()
        found = await violations(page, "sign-in")
        await shot(page, f"sign-in-{look}")
        await signed_in(page, served, root["authorization"].removeprefix("Bearer "))
        box = page.get_by_role("textbox", name="Message")
        await box.fill("/")
        await expect(page.get_by_role("option", name="/review")).to_be_visible()
        found += await violations(page, "commands", "#composer")
        await shot(page, f"commands-{look}")
        await box.fill("/review")
        await box.press("Enter")
        await expect(page.get_by_role("dialog")).to_be_visible()
        found += await violations(page, "blanks of a prompt")
        await page.keyboard.press("Escape")
        for command in ("options", "prompts"):
            await box.fill(f"/{command}")
            await box.press("Enter")
            await expect(page.locator("#panel form").first).to_be_visible()
            found += await violations(page, command)
            await shot(page, f"{command}-{look}")
            await page.keyboard.press("Escape")
        await open_settings(page)
        for section, shown in (("People", "no expiry"), ("Decisions", "allow"), ("Signed-in devices", "No device")):
            await page.locator("#panel").get_by_text(section, exact=True).first.click()
            await expect(page.locator("#panel").get_by_text(shown).first).to_be_visible()
            await page.locator("#panel").get_by_text(shown).first.scroll_into_view_if_needed()
            await shot(page, f"{section.lower()}-{look}")
        found += await violations(page, "settings")
    assert not found, "\n".join(found)


async def test_a_person_links_a_chat_and_an_admin_sees_its_members(tmp_path: Path) -> None:
    async with serving(tmp_path, Scripted([["Hi."]] * 3)) as served, browsing() as browser:
        browser.expected.append("401")
        root = await bearer(served, "root", "admin")
        bot = await bearer(served, "telegram", members=True)
        said = {"message": "Hello", "member": "Ann 42", "conversation": "telegram:42"}
        assert (await served.client.post("/chat", json=said, headers=bot)).status_code == 200
        page = await browser.page()
        await signed_in(page, served, root["authorization"].removeprefix("Bearer "))
        await page.get_by_role("button", name="Settings").click()
        panel = page.get_by_role("complementary", name="Settings")
        await panel.get_by_text("Linked chats", exact=True).click()
        await expect(panel).to_contain_text("No chat is linked to your account.")
        await panel.get_by_role("button", name="Link with telegram").click()
        words = panel.get_by_text("It works once")
        code = ((await words.text_content()) or "").split()[1]
        sent = {"code": code, "member": "Ann 42"}
        assert (await served.client.post("/member-links", json=sent, headers=bot)).status_code == 200
        assert (await served.client.post("/chat", json=said, headers=bot)).status_code == 200
        await panel.get_by_text("People", exact=True).click()
        row = panel.get_by_role("listitem").filter(has=page.get_by_text("telegram", exact=True))
        await row.get_by_text("Members", exact=True).click()
        await expect(row).to_contain_text("telegram: Ann 42root")
        await shot(page, "members")
        await page.reload()
        await expect(page.get_by_role("link", name="Hello")).to_contain_text("telegram:42")
        await page.get_by_role("button", name="Settings").click()
        await panel.get_by_text("Linked chats", exact=True).click()
        await panel.get_by_role("button", name="Unlink").click()
        await panel.get_by_role("button", name="Unlink").last.click()
        await expect(panel).to_contain_text("No chat is linked to your account.")
