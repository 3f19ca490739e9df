"""Getting a model on the page: from the first visit, with its progress, an error in words, and selected in the end."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.models.embedded.supervisor import SMOLLM2, package_folder
from tests.support.models.model_hub import model_hub
from tests.support.models.real_models import need_embedded
from tests.support.page.axe import LOOKS, page_for_axe, violations
from tests.support.page.browser import browsing, expect, home, shot
from tests.support.server.serving import serving

pytestmark = pytest.mark.usefixtures("chromium")
REPO, FILE = "ann/small-GGUF", "small-Q4_1.gguf"


async def test_the_first_visit_gets_a_model_cancels_and_selects_it(tmp_path: Path) -> None:
    need_embedded()
    content = (package_folder(SMOLLM2.package) / SMOLLM2.file).read_bytes()
    async with (
        model_hub({REPO: {FILE: content}}, held_at=len(content) // 3) as hub,
        serving(tmp_path, None, model_url="embedded:", model_hub=hub.url) as served,
        browsing() as browser,
    ):
        browser.expected.append("422")
        page = await page_for_axe(browser, **LOOKS["phone"], locale="de-DE")
        await page.goto(home(served))
        about = page.get_by_role("region", name="Über das Vorführmodell")
        await about.get_by_role("button", name="Modell holen").click()
        panel = page.get_by_role("complementary", name="Modell holen")
        field = panel.get_by_label("Modell", exact=True)
        await panel.get_by_role("button", name="Qwen3 4B: 2,3 GB").click()
        await expect(field).to_have_value("hf:Qwen/Qwen3-4B-GGUF:Q4_K_M")
        await field.fill(f"hf:{REPO}:Q2_K")
        await panel.get_by_role("button", name="Herunterladen").click()
        await expect(panel.get_by_text("There are: Q4_1")).to_be_visible()
        await field.fill(f"hf:{REPO}")
        await panel.get_by_role("button", name="Herunterladen").click()
        await expect(panel.get_by_text("33 % · 31,3 MB von 93,8 MB")).to_be_visible()
        await expect(panel.get_by_role("progressbar", name="Download von small-q4_1")).to_be_visible()
        await shot(page, "get-model-phone-german")
        assert await violations(page, "downloading") == []
        assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        await panel.get_by_role("button", name="Abbrechen").click()
        await expect(panel.get_by_role("progressbar")).to_have_count(0)
        hub.held_at, hub.checksum = None, "0" * 64
        await field.fill(f"hf:{REPO}")
        await panel.get_by_role("button", name="Herunterladen").click()
        await expect(panel.get_by_text("has not the checksum")).to_be_visible()
        assert await violations(page, "failed") == []
        hub.checksum = None
        await panel.get_by_role("button", name="Fortsetzen").click()
        await expect(page.get_by_role("button", name="Modell: Smollm2")).to_be_visible()
        await expect(panel.get_by_text("Ab jetzt antwortet small-q4_1/Smollm2")).to_be_visible()
        await expect(panel.get_by_role("listitem")).to_have_count(0)
        await shot(page, "get-model-done-phone-german")
        assert "small-q4_1" in {one["name"] for one in (await served.client.get("/endpoints")).json()["endpoints"]}
