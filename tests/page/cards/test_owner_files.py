"""The files of a run that run on the owner's machine, below the answer: which command runs them, and what they are."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.models.scripted import Scripted
from tests.support.page.browser import PHONE, browsing, expect, home, say, shot
from tests.support.page.stories import shell, too_wide
from tests.support.server.serving import serving

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("chromium")]

FEW = (
    "printf 'all:\\n\\techo hello\\n' > Makefile; echo x > a.py; git init -q sub; rm gone.mk;"
    """ echo '{"scripts": {"postinstall": "node setup.js"}}' > package.json"""
)
MANY = "for i in 1 2 3 4 5 6 7 8 9 10; do mkdir d$i; echo > d$i/conftest.py; done"


async def test_changed_files_that_run_on_the_owners_machine_are_listed(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    for name in ("package.json", "gone.mk"):
        (tmp_path / "work" / name).write_text("{}\n")
    replies = [shell(FEW), "The end.", shell(MANY), "Many.", shell("echo y > a.py"), "None."]
    async with serving(tmp_path, Scripted(replies)) as served, browsing() as browser:
        browser.expected.append("status of 403")  # what lies in a protected place is not sent
        page = await browser.page(color_scheme="dark")
        await page.goto(home(served))
        await say(page, "Do it.")
        listed = page.get_by_role("region", name="Changed files that can run on your machine")
        rows = ["Makefile runs at “make”View", "package.json runs at “npm install”View", "sub/.git runs at “git”View"]
        await expect(listed.locator("li")).to_have_text(rows)
        await shot(page, "owner-files-dark")
        await listed.get_by_role("button", name="View Makefile").click()
        await expect(page.get_by_role("dialog", name="Makefile").locator("code")).to_contain_text("echo hello")
        await page.keyboard.press("Escape")
        await listed.get_by_role("button", name="View package.json").click()
        changes = page.get_by_role("dialog", name="Changes of this run")
        await expect(changes.locator("summary")).to_have_text(["package.json changed"])
        await expect(changes.locator(".diff")).to_contain_text("postinstall")
        await expect(changes.get_by_role("button", name="Undo")).to_have_count(0)  # which would undo more than is shown
        await changes.get_by_role("button", name="Close").click()
        await listed.get_by_role("button", name="View sub/.git").click()
        await expect(page.get_by_role("dialog", name="sub/.git").get_by_role("alert")).to_contain_text(
            "git runs its hooks"
        )
        await page.keyboard.press("Escape")

        await say(page, "Many.")
        await expect(listed.last.locator("li")).to_have_count(8)
        await expect(listed.last).to_contain_text("And 2 more, under “Changes”.")
        await page.reload()
        await expect(listed.last.locator("li")).to_have_count(8)
        await expect(listed.first.locator("li")).to_have_text(rows)
        await say(page, "None.")
        await expect(page.get_by_text("None.", exact=True).last).to_be_visible()
        await expect(listed).to_have_count(2)


async def test_the_list_fits_a_phone_in_german(tmp_path: Path) -> None:
    command = f"{FEW.replace('rm gone.mk', ':')}; mkdir -p {'long-name/' * 6}; echo > {'long-name/' * 6}conftest.py"
    async with serving(tmp_path, Scripted([shell(command), "Fertig."])) as served, browsing() as browser:
        page = await browser.page(locale="de-DE", viewport=PHONE)
        await page.goto(home(served))
        await page.get_by_role("textbox", name="Nachricht").fill("Los.")
        await page.get_by_role("button", name="Senden").click()
        listed = page.get_by_role("region", name="Geänderte Dateien, die auf deinem Rechner laufen können")
        await expect(listed.locator("li").first).to_have_text("Makefile läuft bei „make“Ansehen")
        assert await too_wide(page) == []
        await shot(page, "owner-files-phone")
