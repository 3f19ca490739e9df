"""A command that wants the network, in a real browser: what it would reach is said, and hosts can be allowed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.models.replies import bash_block
from tests.support.page.approvals import asking_page, press, questions_on, until_decided
from tests.support.page.browser import expect, say, shot
from tests.support.sandbox.sites import THERE, site
from tools.sandbox.sandbox import NoSandbox, find_sandbox

FOUND = find_sandbox(levels=["bubblewrap"])
pytestmark = [
    pytest.mark.usefixtures("chromium"),
    pytest.mark.skipif(isinstance(FOUND, NoSandbox), reason=getattr(FOUND, "reason", "")),
]


def reaching(command: str, network: bool | list[str]) -> str:
    """The addresses of the tests' servers are loopback, for which nothing asks of itself."""
    call = {"name": "bash", "arguments": {"command": command, "network": network}}
    return f"<tool_call>{json.dumps(call)}</tool_call>"


async def test_a_command_with_network_is_one_question_and_hosts_can_be_allowed(tmp_path: Path) -> None:
    with site({"/": b"a page", "/other": b"another page"}) as there:
        calls = [reaching(f"curl -sS {there.url}{path}", True) for path in ("/", "/other")]
        script = [*calls, bash_block("echo home"), "Done."]
        more = {"approval_admin": "sandboxed", "private_hosts": there.host}
        async with asking_page(tmp_path, *script, **more) as (served, provider, browser, page):
            browser.expected.append("422")
            await say(page, "Look.")
            box = questions_on(page)
            await expect(box.get_by_role("heading")).to_have_text("Run this command with network access?")
            await expect(box).to_contain_text("Can reach any public host and send there whatever it can read")
            await expect(box).to_contain_text("it cannot reach this machine's own services or the local network")
            await press(page, "Approve for this conversation")
            await box.get_by_role("radio", name="Network access to these hosts").check()
            hosts = box.get_by_role("textbox", name="Hosts")
            await expect(hosts).to_have_value(THERE)
            await hosts.fill(" \n")
            await press(page, "Approve and allow")
            await expect(box.get_by_role("alert")).to_contain_text("at least one host")
            await hosts.fill("a..b")
            await press(page, "Approve and allow")
            await expect(box.get_by_role("alert")).to_contain_text("a..b")
            await hosts.fill(f"{THERE}\n*.example.org")
            await shot(page, "approval-network")
            await press(page, "Approve and allow")
            await until_decided(page)
            await expect(page.get_by_text("Done.")).to_be_visible()
            assert there.asked == ["/", "/other"]
            told = [message.text for message in provider.requests[-1].messages]
            assert any(f"[network: reached {THERE}]" in text and "a page" in text for text in told)
            grants = (await served.client.get("/audit")).json()["audit"]
            assert [row["decision"] for row in grants].count("approved") == 1, json.dumps(grants)


async def test_hosts_that_a_call_names_are_shown_and_can_be_approved_once(tmp_path: Path) -> None:
    with site({"/": b"a page"}) as there:
        script = [reaching(f"curl -sS {there.url}/", [there.host, "a.example"])] * 2
        more = {"approval_admin": "sandboxed", "private_hosts": there.host}
        async with asking_page(tmp_path, *script, "Done.", **more) as (_, _, _, page):
            await say(page, "Look.")
            for _ in range(2):  # a yes to one call is none to the next
                await expect(questions_on(page)).to_contain_text(
                    f"Can reach {there.host}, a.example and send there whatever it can read"
                )
                await press(page, "Approve once")
                await until_decided(page)
            await expect(page.get_by_text("Done.")).to_be_visible()
            assert there.asked == ["/", "/"]
