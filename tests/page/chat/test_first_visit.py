"""Who comes for the first time and finds the embedded model is told what it is, and how to connect a real one."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.async_api import FloatRect

from tests.support.models.endpoints import model_server
from tests.support.page.browser import PHONE, Locator, browsing, expect, home, shot
from tests.support.server.serving import serving

pytestmark = pytest.mark.usefixtures("chromium")


async def box_of(element: Locator) -> FloatRect:
    """The place of an element on the page."""
    found = await element.bounding_box()
    assert found
    return found


async def test_a_first_visit_says_what_the_embedded_model_is_and_connects_another(tmp_path: Path) -> None:
    # Configured, it is called `default`: its name says nothing.
    async with serving(tmp_path, None, model_url="embedded:") as served, browsing() as browser:
        page = await browser.page()
        await page.goto(home(served))
        note = page.get_by_role("region", name="About the demonstration model")
        await expect(note).to_contain_text("is tiny and often wrong.")
        assert (await box_of(note))["height"] < 44, "one line"
        await expect(page.get_by_role("button", name="Send")).to_be_disabled()
        edges = [(await box_of(page.locator(one)))["x"] for one in (".welcome", ".first-visit", ".composer-box")]
        assert len(set(edges)) == 1, "one column"
        await expect(page.locator(".welcome")).to_have_css("opacity", "1")
        await shot(page, "first-visit")
        phone = await browser.page(viewport=PHONE, color_scheme="dark")
        await phone.goto(home(served))
        read = phone.get_by_role("button", name="Continue with this model")
        await expect(read).to_be_visible()
        await expect(phone.locator(".welcome")).to_have_css("opacity", "1")
        await shot(phone, "first-visit-phone-dark")
        demonstration = phone.get_by_role("button", name="Watch a short demonstration")
        await expect(demonstration).to_be_in_viewport(ratio=1)
        await phone.get_by_role("textbox", name="Message").fill("Hello")
        names = ("Attach files", "Compare two models", "Send")
        tools = [await box_of(phone.get_by_role("button", name=name)) for name in names]
        assert len({tool["y"] for tool in tools}) == 1, "one row"
        frame = await box_of(phone.locator(".composer-box"))
        assert tools[-1]["x"] + tools[-1]["width"] < frame["x"] + frame["width"], "inside of the box"
        await read.click()
        await phone.reload()
        await expect(phone.get_by_role("button", name="Model: SmolLM2")).to_be_visible()
        await expect(read).to_have_count(0)
        async with model_server("qwen") as server:
            await page.set_viewport_size({"width": 1280, "height": 560})
            await note.get_by_role("button", name="Connect a model").click()
            form = page.get_by_role("complementary", name="Connect a model")
            await expect(form.get_by_label("Setting")).to_contain_text("DRAGOMAN_MODEL_URL=")
            await form.get_by_label("Address").fill(server.base_url)
            await form.get_by_role("button", name="Test", exact=True).click()
            await form.get_by_role("button", name="Save and use").click()
            await expect(page.get_by_role("button", name="Model: qwen")).to_be_visible()
            await expect(note).to_be_hidden()


async def test_a_demonstration_shows_a_thought_a_live_tail_an_approval_and_a_file(tmp_path: Path) -> None:
    async with serving(tmp_path, None, model_url="embedded:") as served, browsing() as browser:
        page = await browser.page()
        await page.goto(home(served))
        await expect(page.get_by_role("list", name="Things to try").get_by_role("button").first).to_have_text(
            "Run the command date."
        )
        await page.get_by_role("button", name="Watch a short demonstration").click()
        await expect(page.get_by_text("step 2 of 6", exact=True)).to_be_visible()
        await expect(page.get_by_text("step 6 of 6", exact=True)).to_have_count(0)  # it is seen while it runs
        await shot(page, "demonstration-runs")
        tray = page.get_by_role("region", name="Waiting for you")
        await expect(tray.get_by_text("demonstration.md").first).to_be_visible()
        await shot(page, "demonstration-asks")
        await tray.get_by_role("button", name="Approve once").click()
        answer = page.get_by_role("article", name="Run")
        await expect(answer).to_contain_text("These replies were written in advance, not by a model")
        await expect(answer.locator("summary", has_text="Thought").first).to_be_visible()
        await shot(page, "demonstration-ended")
        await expect(answer.locator(".code", has_text="step 1")).to_have_count(0)  # the command is in its card alone
        await page.set_viewport_size({"width": 390, "height": 844})
        foot = answer.locator(".turn-foot")
        changes = await box_of(foot.get_by_role("button", name="Changes"))
        assert changes["x"] + changes["width"] < 390
        assert (await box_of(foot))["height"] < 50, "one line"
        (session,) = (await served.client.get("/sessions")).json()["sessions"]
        written = await served.client.get(f"/sessions/{session['id']}/workspace/demonstration.md")
        assert "| an approval |" in written.text
