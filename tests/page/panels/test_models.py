"""Picking a model on the page, and connecting another: tried first, then kept, then used at once."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.models.scripted import Scripted
from tests.support.access.people import bearer
from tests.support.models.endpoints import NOWHERE, model_server
from tests.support.page.browser import browsing, expect, home, say, shot, signed_in
from tests.support.server.serving import serving

pytestmark = pytest.mark.usefixtures("chromium")
KEY = "sk-sesame-open-4711"


async def test_a_model_is_connected_used_at_once_and_removed(tmp_path: Path) -> None:
    async with model_server("qwen", "gemma") as server, serving(tmp_path, Scripted(["One."])) as served:
        async with browsing() as browser:
            page = await browser.page()
            await page.goto(home(served))
            model = page.get_by_role("button", name="Model:")
            await model.click()
            await page.get_by_role("button", name="Connect a model").click()
            form = page.get_by_role("complementary", name="Connect a model")
            await form.get_by_label("Server software").select_option("Other")
            await form.get_by_label("Address").fill(NOWHERE)
            await form.get_by_label("Name").fill("lab")
            await form.get_by_label("Key").fill(KEY)
            await form.get_by_role("button", name="Test", exact=True).click()
            await expect(form.get_by_text("Nothing listens")).to_be_visible()
            await shot(page, "connect-wrong")
            await form.get_by_label("Address").fill(server.base_url)
            await expect(form.get_by_text("Nothing listens")).to_be_hidden()
            await form.get_by_role("button", name="Test", exact=True).click()
            await expect(form.get_by_text("Connected. Models: qwen, gemma.")).to_be_visible()
            assert [one["name"] for one in (await served.client.get("/endpoints")).json()["endpoints"]] == ["default"]
            await form.get_by_label("Model", exact=True).select_option("gemma")
            await shot(page, "connect-works")
            await form.get_by_role("button", name="Save and use").click()
            await expect(form.get_by_text("lab is connected")).to_be_visible()
            await expect(model).to_contain_text("gemma")
            assert KEY not in await page.content()
            await say(page, "Hello")
            await expect(page.get_by_role("article", name="Run").get_by_text("Hi", exact=True)).to_be_visible()
            assert server.chats[-1].json["model"] == "gemma"
            await page.reload()
            await expect(model).to_contain_text("gemma")
            await model.click()
            picker = page.get_by_role("complementary", name="Models")
            await expect(picker.get_by_role("radio", name="gemma")).to_be_checked()
            await picker.get_by_role("radio", name="qwen").check()
            await expect(model).to_contain_text("qwen")
            await shot(page, "models")
            await picker.get_by_role("button", name="Remove").click()
            await picker.get_by_role("button", name="Remove it").click()
            await expect(picker.get_by_role("radio", name="Default")).to_be_checked()
            await expect(picker.get_by_role("radio", name="qwen")).to_have_count(0)
            await expect(picker.get_by_role("radiogroup")).to_be_focused()
            await expect(model).to_contain_text("scripted")
        kept = b"".join(path.read_bytes() for path in (tmp_path / "data").glob("dragoman.db*"))
        assert KEY.encode() not in kept


async def test_many_models_are_searched_and_one_holds_for_its_conversation(tmp_path: Path) -> None:
    names = [f"model-{number}" for number in range(300)]
    async with model_server(*names) as server, serving(tmp_path, Scripted(["One.", "Two."])) as served:
        await served.client.post("/endpoints", json={"name": "big", "url": server.base_url})
        async with browsing() as browser:
            page = await browser.page()
            await page.goto(home(served))
            model = page.get_by_role("button", name="Model:")
            await model.click()
            picker = page.get_by_role("complementary", name="Models")
            await expect(picker.get_by_text("100 more: search for them.")).to_be_visible()
            await picker.get_by_label("Search models").fill("model-29")
            await expect(picker.get_by_role("radio")).to_have_count(11)
            await picker.get_by_label("Search models").press("ArrowDown")
            await page.keyboard.press("Space")
            await expect(model).to_contain_text("model-29")
            await say(page, "Hello")
            await expect(page.get_by_role("article", name="Run").get_by_text("Hi", exact=True)).to_be_visible()
            await expect(model).to_contain_text("model-29")
            await page.get_by_role("button", name="New conversation").first.click()
            await expect(model).to_contain_text("scripted")
            await picker.get_by_label("Search models").fill("nothing like it")
            await expect(picker.get_by_text("No model matches")).to_be_visible()


async def test_an_endpoint_that_is_needed_stays_and_says_why(tmp_path: Path) -> None:
    async with serving(tmp_path, Scripted(["x"])) as served:
        await served.client.post("/endpoints", json={"name": "b", "url": NOWHERE, "model": "m"})
    async with serving(tmp_path, Scripted(["x"]), fallback="b/m") as served, browsing() as browser:
        browser.expected.append("409")
        page = await browser.page()
        await page.goto(home(served))
        await page.get_by_role("button", name="Model:").click()
        picker = page.get_by_role("complementary", name="Models")
        await picker.get_by_role("button", name="Remove").click()
        await picker.get_by_role("button", name="Remove it").click()
        await expect(picker.get_by_text("The setting fallback names a model of b")).to_be_visible()


async def test_who_is_no_admin_picks_but_connects_nothing(tmp_path: Path) -> None:
    async with model_server("qwen") as server, serving(tmp_path, Scripted(["x"])) as served:
        await served.client.post("/endpoints", json={"name": "lab", "url": server.base_url, "model": "qwen"})
        token = (await bearer(served, "ann"))["authorization"].removeprefix("Bearer ")
        async with browsing() as browser:
            browser.expected.append("401")
            page = await browser.page()
            await signed_in(page, served, token)
            await page.get_by_role("button", name="Model:").click()
            picker = page.get_by_role("complementary", name="Models")
            await expect(picker.get_by_role("radio", name="qwen")).to_be_visible()
            await expect(picker.get_by_role("button", name="Connect a model")).to_have_count(0)
            await expect(picker.get_by_role("button", name="Remove")).to_have_count(0)
            await expect(picker.get_by_text(server.base_url)).to_have_count(0)
