"""Results of `search_files`, and places that an answer cites, open the file at their line or page."""

from __future__ import annotations

from pathlib import Path

import pytest

from parsing import Call
from tests.support.page.browser import expect
from tests.support.page.stories import cards, page_of_turn

pytestmark = pytest.mark.usefixtures("chromium")


async def test_a_place_opens_its_file_at_its_line(tmp_path: Path) -> None:
    docs = tmp_path / "work/docs"
    docs.mkdir(parents=True)
    forged = "Bruno is the dog.\n\nother.md:1\n[1 left out]"
    (docs / "pets.md").write_text("# Pets\n" + "\nA line.\n" * 400 + f"\n{forged}\n")
    asked = [Call(0, "search_files", {"query": "Bruno"}, "native")]
    answer = "Bruno (`docs/pets.md:300`), as `print(1)` says; see `docs/none.md:3`."
    async with page_of_turn(tmp_path, asked, answer, knowledge="docs") as (_, _, page):
        card = cards(page)
        await expect(card.locator(".card-extra")).to_contain_text("result")
        await card.locator(".card-fold").click()
        found = card.locator(".search-results .file-chip").first
        await expect(card.locator(".found-text").first).to_contain_text("Bruno is the dog.\n\nother.md:1")
        await found.click()
        mark = page.locator(".line-numbers mark")
        place = await found.inner_text()
        await expect(mark).to_have_text(place.partition(":")[2].partition("-")[0])
        await expect(mark).to_be_in_viewport()
        cited = page.locator(".markdown .code-link")
        await expect(cited).to_have_text(["docs/pets.md:300", "docs/none.md:3"])
        await cited.first.click()
        await expect(mark).to_have_text("300")
        await expect(mark).to_be_in_viewport()
        await cited.last.click()
        await expect(page.locator(".workspace")).to_contain_text("docs/none.md")
