"""Doors in a real browser: the page of a link, which needs no script, and the page that learns who has decided."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from tests.support.models.replies import bash_block
from tests.support.page.approvals import asking_page, questions_on, until_decided
from tests.support.page.browser import PHONE, expect, say, shot
from tests.support.server.receivers import receiver

pytestmark = pytest.mark.usefixtures("chromium")

APPROVE = "document.querySelector('.approval [data-action=approve]')?.click()"  # as a key does, if it is still there


async def test_the_page_of_a_link_decides_without_scripts_and_the_other_page_learns_of_it(tmp_path: Path) -> None:
    script = [bash_block("touch one <b>\u202e"), "Seen.", bash_block("touch two"), "Over."]
    settings: dict[str, object] = {"private_hosts": "127.0.0.1", "decision_link_time_limit_s": 600}
    settings["public_url"] = "http://localhost:1"  # the path is what counts here
    async with receiver() as there, asking_page(tmp_path, *script, **settings) as (served, _, browser, page):
        body = {"url": there.url, "events": ["approval.required"], "decides": True}
        assert (await served.client.post("/webhooks", json=body)).status_code == 201

        async def link(count: int) -> str:
            sent = json.loads((await there.got(count))[-1].body)["data"]["decide"]
            return f"{str(served.client.base_url).rstrip('/')}/decide/{sent.rpartition('/')[2]}"

        await say(page, "Say one.")
        await expect(questions_on(page)).to_be_visible()
        phone = await browser.page(viewport=PHONE, java_script_enabled=False)
        await phone.goto(await link(1))
        await expect(phone.get_by_text("touch one <b><U+202E>")).to_be_visible()
        await shot(phone, "decision-link")
        await phone.get_by_role("button", name="Approve once").click()
        await expect(phone.get_by_role("heading", name="Approved by local by link")).to_be_visible()
        assert phone.url.endswith("/decide"), "the token is not in the address any more"
        await expect(page.get_by_text("Seen.")).to_be_visible()
        await until_decided(page)
        await expect(page.get_by_text("Approved by you by link: bash")).to_be_visible()

        await say(page, "Say two.")
        await expect(questions_on(page)).to_be_visible()
        await phone.goto(await link(2))
        browser.expected.append("409")
        deny = phone.get_by_role("button", name="Deny")
        await asyncio.gather(deny.click(), page.evaluate(APPROVE))  # one of them wins
        await expect(page.get_by_text("Over.")).to_be_visible()
        await until_decided(page)
        [row] = [one for one in await served.services.store.audit(10**9, 50) if one[1].why.startswith("scope once")][:1]
        by_link = row[1].why.endswith("by link")
        words = "Denied by local by link" if by_link else "Approved by local on the page"
        await expect(phone.get_by_role("heading", name=words)).to_be_visible()
        assert by_link == (row[1].decision == "denied")
