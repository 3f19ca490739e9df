"""Standing permissions on the page: one click on an approval gives one, and the settings list and withdraw it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.models.replies import bash_block
from tests.support.models.upstream import answer, upstream
from tests.support.page.approvals import asking_page, questions_on, until_decided
from tests.support.page.axe import violations
from tests.support.page.browser import expect, say, shot

pytestmark = pytest.mark.usefixtures("chromium")

PLACES = """(button) => {
    const words = document.createRange();
    words.selectNodeContents(button);
    return [button.getBoundingClientRect().top, words.getBoundingClientRect().top];
}"""


async def test_one_click_allows_it_for_good_until_it_is_withdrawn(tmp_path: Path) -> None:
    async with upstream(answer("<p>Stones.</p>", kind="text/html"), repeat=True) as web:
        site = f"http://127.0.0.1:{web.port}"
        fetch = f"```web_fetch\n{site}/reports/a\n```"
        more = {"approval_admin": "sandboxed", "private_hosts": f"127.0.0.1:{web.port}"}
        async with asking_page(tmp_path, fetch, fetch, "Read.", fetch, **more) as (_, _, _, page):
            await say(page, "Look.")
            box = questions_on(page)
            offered = box.get_by_role("button", name="Always:")
            await expect(offered).to_have_count(2)
            await expect(offered.first).to_have_text(f"Always: url below {site}/reports/")
            assert not await violations(page, "an approval with proposals")
            await shot(page, "approval-always")
            await page.set_viewport_size({"width": 375, "height": 740})
            await shot(page, "approval-always-phone")
            await page.set_viewport_size({"width": 1200, "height": 800})
            await offered.first.click()
            await until_decided(page)
            await expect(page.get_by_text("Read.", exact=True)).to_be_visible()

            await page.get_by_role("button", name="Settings").click()
            panel = page.locator("#panel")
            await panel.get_by_text("Standing permissions", exact=True).click()
            row = panel.locator("li.grant")
            await expect(row).to_contain_text(f"web_fetch: url below {site}/reports/")
            await expect(row).to_contain_text("Today (UTC)1")
            assert not await violations(page, "the list of permissions")
            await shot(page, "permissions")
            await row.get_by_role("button", name="Withdraw").click()
            await expect(panel.get_by_text("Nothing is allowed for good")).to_be_visible()
            await page.keyboard.press("Escape")
            await say(page, "Again.")
            await expect(questions_on(page)).to_have_count(1)


async def test_a_long_permission_is_readable_from_its_first_word(tmp_path: Path) -> None:
    async with asking_page(tmp_path, bash_block(f"touch made {'y' * 1500}"), "Done.") as (_, _, _, page):
        await page.set_viewport_size({"width": 375, "height": 740})
        await say(page, "Make it.")
        offered = questions_on(page).get_by_role("button", name="Always:")
        await expect(offered).to_have_count(1)
        top, words = await offered.evaluate(PLACES)
        assert words >= top
        body = await questions_on(page).locator(".approval-body").bounding_box()
        assert body and body["height"] > 80, "the call is still there to be read"
