"""Model files on the page: added, refused with a reason, served, stopped and forgotten."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.models.embedded.supervisor import SMOLLM2, package_folder
from app.models.scripted import Scripted
from tests.support.models.gguf_files import written
from tests.support.models.real_models import need_embedded
from tests.support.page.browser import browsing, expect, home, shot
from tests.support.server.serving import serving

pytestmark = pytest.mark.usefixtures("chromium")


async def test_a_model_file_is_added_served_stopped_and_forgotten(tmp_path: Path) -> None:
    need_embedded()
    folder = tmp_path / "models"
    written(folder / "text.gguf", b"text")
    (folder / "small.gguf").write_bytes((package_folder(SMOLLM2.package) / SMOLLM2.file).read_bytes())
    async with serving(tmp_path, Scripted(["One."]), model_folders=str(folder)) as served, browsing() as browser:
        browser.expected.append("422")
        page = await browser.page()
        await page.goto(home(served))
        await page.get_by_role("button", name="Model:").click()
        picker = page.get_by_role("complementary", name="Models")
        await picker.get_by_text("Model files on the server").click()
        await expect(picker.get_by_text("No model files yet.")).to_be_visible()
        await picker.get_by_label("File (GGUF)").fill("text.gguf")
        await picker.get_by_role("button", name="Add file").click()
        await expect(picker.get_by_text("is no GGUF file")).to_be_visible()
        await picker.get_by_label("File (GGUF)").fill("small.gguf")
        await picker.get_by_label("Context in tokens").fill("1024")
        await picker.get_by_role("button", name="Add file").click()
        await expect(picker.get_by_text("small added.")).to_be_visible()
        files = picker.get_by_role("list", name="Model files")
        await expect(files.get_by_text("stopped")).to_be_visible()
        await files.get_by_role("button", name="Start").click()
        await expect(files.get_by_text("running ·")).to_be_visible()
        await expect(picker.get_by_role("radio", name="Smollm2")).to_have_count(1)
        await shot(page, "served-models")
        await files.get_by_role("button", name="Stop").click()
        await expect(files.get_by_text("stopped")).to_be_visible()
        await expect(picker.get_by_role("radio", name="Smollm2")).to_have_count(0)
        await files.get_by_role("button", name="Remove").click()
        await files.get_by_role("button", name="Remove it").click()
        await expect(picker.get_by_text("No model files yet.")).to_be_visible()
