"""Whatever gets into the page by a mistake of ours, the browser runs none of it and sends nothing elsewhere."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.async_api import Route

from app.models.scripted import Scripted
from tests.support.page.browser import browsing, home
from tests.support.server.serving import serving

pytestmark = pytest.mark.usefixtures("chromium")

# Ways in, by a name: each answers (or raises) and is told as "blocked" unless it got through.
TRY = """async (elsewhere) => {
  window.ran = [];
  const told = {}, violated = (window.violated = new Set());
  addEventListener("securitypolicyviolation", (event) => violated.add(event.effectiveDirective));
  const made = (tag, props) => document.body.appendChild(Object.assign(document.createElement(tag), props));
  const ways = {
    markup: () => (document.body.appendChild(document.createElement("p")).innerHTML = "<b>x</b>"),
    "inline script": () => made("script", { textContent: "window.ran.push('inline')" }),
    "script address": () => made("script", { src: "data:text/javascript,window.ran.push('data')" }),
    handler: () => document.body.setAttribute("onclick", "window.ran.push('handler')") ?? document.body.click(),
    frame: () => made("iframe", { src: elsewhere }),
    picture: () => made("img", { src: elsewhere + "picture" }),
    form: () => made("form", { action: elsewhere, method: "post" }).submit(),
    base: () => made("base", { href: elsewhere }),
    request: () => fetch(elsewhere),
    worker: () => new Worker(URL.createObjectURL(new Blob(["0"]))),
  };
  for (const [name, way] of Object.entries(ways)) {
    try {
      await way();
      told[name] = "done";
    } catch {
      told[name] = "refused";
    }
  }
  const link = made("a", { href: "javascript:window.ran.push('link')" });
  link.click();
  return told;
}"""

VIOLATED = ["frame-src", "img-src", "form-action", "base-uri", "connect-src"]


async def test_what_the_page_never_does_the_browser_refuses(tmp_path: Path) -> None:
    async with serving(tmp_path, Scripted([])) as served, browsing() as browser:
        browser.expected.append("Content Security Policy|TrustedHTML|TrustedScript|violates")
        context = await browser.context()
        abroad: list[str] = []

        async def outside(route: Route) -> None:
            abroad.append(route.request.url)
            await route.fulfill(body="")

        await context.route("http://elsewhere.invalid/**", outside)
        page = await context.new_page()
        await page.goto(home(served))
        told = await page.evaluate(TRY, "http://elsewhere.invalid/")
        refused = {name for name, became in told.items() if became == "refused"}
        assert {"markup", "inline script", "script address", "handler", "request", "worker"} <= refused
        await page.wait_for_function("(all) => all.every((one) => window.violated.has(one))", arg=VIOLATED)
        assert await page.evaluate("[window.ran, document.baseURI]") == [[], f"{home(served)}/"]
        assert abroad == []
