"""What an MCP server or the model asks in the middle of a call, in a real browser: a form, or a page to open."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from app.models.scripted import Scripted
from tests.support.mcp.served import READS, helper, serving_mcp
from tests.support.page.browser import browsing, expect, home, say, shot

TICKED = [{"step": "Look", "state": "done"}, {"step": "Paint", "state": "active"}]
CHOICE = f"```ask_user\n{json.dumps({'question': 'Red or blue?', 'choices': ['red', 'blue']})}\n```"
PLANS = [f"```update_plan\n{json.dumps({'steps': steps})}\n```" for steps in (["Look", "Paint"], TICKED)]
pytestmark = pytest.mark.usefixtures("chromium")


async def test_a_person_answers_an_mcp_server(tmp_path: Path) -> None:
    visit = f"```mcp__helper__visit\n{json.dumps({'url': 'https://pay.example.com/order?id=1'})}\n```"
    asked = ["```mcp__helper__ask\n```", "Blue.", visit, "Not paid.", CHOICE, "So blue."]
    provider = Scripted([*asked, *PLANS, "Painted."])
    async with serving_mcp(tmp_path, provider, {"helper": helper()}, tools=READS) as served, browsing() as browser:
        browser.expected.append("422")
        page = await browser.page()
        await page.goto(home(served))
        await say(page, "Ask me.")
        question = page.get_by_role("group", name="helper asks you")
        await expect(question.get_by_text("Which colour?")).to_be_visible()
        await expect(question.get_by_role("spinbutton", name="size")).to_have_value("7")
        await question.get_by_role("button", name="Send answer").click()
        await expect(question.get_by_role("alert")).to_contain_text("colour")
        await question.get_by_role("combobox", name="colour").select_option("blue")
        await shot(page, "question")
        await question.get_by_role("button", name="Send answer").click()
        await expect(page.get_by_text("Blue.", exact=True)).to_be_visible()
        assert any('"colour": "blue"' in message.text for message in provider.requests[-1].messages)

        await say(page, "Pay.")
        link = question.get_by_role("link", name="Open pay.example.com in a new tab")
        await expect(link).to_have_attribute("href", "https://pay.example.com/order?id=1")
        await expect(link).to_have_attribute("rel", "noopener noreferrer")
        await question.get_by_role("button", name="Decline").click()
        await expect(page.get_by_text("Not paid.")).to_be_visible()
        assert any('"action": "decline"' in message.text for message in provider.requests[-1].messages)

        await say(page, "Ask me yourself.")
        question = page.get_by_role("group", name="The agent asks you")
        await expect(question.get_by_text("Red or blue?")).to_be_visible()
        await question.get_by_role("button", name="Send answer").click()
        await expect(question.get_by_role("alert")).to_contain_text("Choose an answer")
        await question.get_by_role("textbox", name="Or in your own words").fill("rather green")
        await question.get_by_role("combobox", name="Your answer").select_option("blue")
        await question.get_by_role("button", name="Send answer").click()
        await expect(page.get_by_text("So blue.", exact=True)).to_be_visible()
        assert "blue\nrather green" in provider.requests[-1].messages[-1].text

        await say(page, "Paint it.")
        plan = page.get_by_role("group", name="Plan", exact=True)
        await expect(page.get_by_text("Painted.", exact=True)).to_be_visible()
        await expect(plan).to_have_count(1)
        await expect(plan.get_by_role("listitem")).to_have_text(["✓Look (done)", "▸Paint (in progress)"])
        await expect(plan).to_contain_text("1 of 2 done")
