"""What a person does with a code block of an answer: run it by way of a message, save it to the workspace."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from app.core.provider import CallForm
from app.models.scripted import Reply, Scripted
from parsing import Call
from tests.support.page.browser import browsing, expect, home
from tests.support.page.stories import code_block, show_answer
from tests.support.server.serving import serving

pytestmark = pytest.mark.usefixtures("chromium")

PYTHON = 'print("""\n```\n""")'


async def test_code_is_run_by_a_message_and_through_the_gate(tmp_path: Path) -> None:
    answer = f"````python\n{PYTHON}\n````\n\n{code_block('json', '{}')}The end."
    script: list[Reply] = [answer, [Call(0, "bash", {"command": "touch made"}, "native")], "It ran."]
    async with serving(tmp_path, Scripted(script, call_form=CallForm.NATIVE)) as served, browsing() as browser:
        page = await browser.page()
        await show_answer(page, home(served))
        figures = page.locator("figure.code")
        await expect(figures.nth(1).get_by_role("button", name="Run")).to_have_count(0)
        await page.get_by_label("Approvals").select_option("ask")
        await figures.first.get_by_role("button", name="Run").click()
        box = page.get_by_role("textbox", name="Message")
        await expect(box).to_be_focused()
        await expect(box).to_have_value(f"Run this:\n\n````python\n{PYTHON}\n````\n")
        assert len(await served.services.runs.of("local")) == 0  # it is sent by the person
        await box.press("Enter")
        await expect(page.locator("#approvals")).to_contain_text("touch made")
        assert not (tmp_path / "work/made").exists()


async def test_code_is_saved_to_the_workspace_and_replaces_nothing_unasked(tmp_path: Path) -> None:
    script = Scripted([f"{code_block('python', 'a = 1')}The end."], call_form=CallForm.NATIVE)
    async with serving(tmp_path, script) as served, browsing() as browser:
        page = await browser.page()
        await show_answer(page, home(served))
        note, dialog = page.locator(".code-note"), page.get_by_role("dialog")
        name, save = dialog.get_by_role("textbox"), page.get_by_role("button", name="Save to workspace")
        work = served.services.settings.workspace
        await save.click()
        await expect(name).to_have_value("code.py")
        await name.fill("src/one.py")
        await name.press("Enter")
        await expect(note).to_have_text("Saved as src/one.py")
        await expect(save).to_be_focused()
        (work / "src/one.py").write_text("mine\n")
        browser.expected += ["409"]
        await save.click()
        await name.fill("src/one.py")
        await name.press("Enter")
        await dialog.get_by_role("button", name="Keep both").click()
        await expect(note).to_have_text(re.compile(r"Saved as src/one.+\.py"))
        assert sorted(one.read_text() for one in (work / "src").iterdir()) == ["a = 1\n", "mine\n"]
        await save.click()
        await name.press("Escape")
        await expect(dialog).to_have_count(0)
        await save.click()
        await name.fill("../out.py")
        await name.press("Enter")
        await expect(note).to_have_text("Saved as out.py")
        assert (work / "out.py").exists()
        assert not (work.parent / "out.py").exists()
