"""What somebody says yes to is what runs, to the last digit of its numbers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from app.models.scripted import Scripted
from tests.support.page.browser import browsing, expect, home, say
from tests.support.server.serving import serving

pytestmark = pytest.mark.usefixtures("chromium")

LONG = 2**60 + 1  # browsers make it even
GIVEN = {
    "command": "touch one",
    "background": False,
    "constructor": "a name that every object knows",
    "most": {"of": [LONG, -LONG, 0.12345678901234567, 1e25], "text": f'"{LONG}\\" {LONG}'},
    "number": LONG,
}


async def test_numbers_that_a_browser_would_round_are_shown_and_sent_as_they_are(tmp_path: Path) -> None:
    call = f"<tool_call>{json.dumps({'name': 'bash', 'arguments': GIVEN})}</tool_call>"
    provider = Scripted([call, "Done."])
    async with serving(tmp_path, provider, approval_admin="ask") as served, browsing() as browser:
        page = await browser.page()
        await page.goto(home(served))
        await say(page, "Count.")
        box = page.locator(".approval")
        await expect(box.get_by_text("a name that every object knows")).to_be_visible()
        await expect(box.get_by_text(str(LONG), exact=True)).to_be_visible()
        await expect(box.get_by_text(f"-{LONG},")).to_be_visible()
        await page.locator(".card-fold").click()
        await expect(page.locator(".card-arguments").get_by_text(str(LONG), exact=True)).to_be_visible()
        await box.get_by_role("button", name="Edit first").click()
        await box.get_by_role("textbox", name="command").fill("touch two")
        number = box.get_by_role("textbox", name="number")
        await expect(number).to_have_value(str(LONG))
        for wrong in ("1e400", "[-1e999]"):
            await number.fill(wrong)
            await box.get_by_role("button", name="Approve with these changes").click()
            await expect(box.get_by_role("alert")).to_contain_text("too large")
        await number.fill(str(LONG + 2))
        await box.get_by_role("button", name="Approve with these changes").click()
        await expect(page.get_by_text("Done.")).to_be_visible()
        told = next(text for message in provider.requests[-1].messages if "changed the" in (text := message.text))
        changed = told[told.index("{") : told.rindex("}") + 1]
        assert json.loads(changed) == GIVEN | {"command": "touch two", "number": LONG + 2}
