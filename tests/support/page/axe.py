"""axe-core on the page: what it finds wrong, in each look."""

from __future__ import annotations

from functools import cache
from typing import Any

from tests.support.page.browser import INSTALLED, PHONE, WIDE, Browsing, Page, needed

TAGS = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
RUN = """async ([tags, within]) => {
  await Promise.all(document.getAnimations().map((one) => one.finished.catch(() => null)).slice(0, 50)
    .map((one) => Promise.race([one, new Promise((done) => setTimeout(done, 400))])));
  const found = await axe.run(within, { runOnly: { type: "tag", values: tags } });
  return found.violations.flatMap((one) => one.nodes.map((node) =>
    `${one.id}: ${node.target.join(" ")}: ${(node.any[0] ?? node.all[0] ?? node.none[0])?.message ?? one.help}`));
}"""


@cache
def axe() -> str:
    return needed(INSTALLED / "axe-core/axe.min.js", "axe-core").read_text()


async def violations(page: Page, state: str, within: str = "html") -> list[str]:
    """What is wrong with the page as it is, or with a part of it, such as a list that covers the others."""
    if not await page.evaluate("typeof window.axe === 'object'"):
        await page.evaluate(axe())
    return [f"{state}: {one}" for one in await page.evaluate(RUN, [TAGS, within])]


async def page_for_axe(browser: Browsing, **options: Any) -> Page:
    """Axe is let in where the page's own policy would keep it out."""
    return await browser.page(bypass_csp=True, **options)


LOOKS: dict[str, dict[str, Any]] = {
    "light": {"viewport": WIDE},
    "dark": {"viewport": WIDE, "color_scheme": "dark"},
    "phone": {"viewport": PHONE, "has_touch": True, "is_mobile": True},
}
