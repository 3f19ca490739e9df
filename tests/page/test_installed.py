"""The installed page: its manifest, and the page that it shows while the server cannot be reached."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from app.models.scripted import Scripted
from routes.page import FOLDER
from tests.support.page.browser import browsing, expect, home, say, shot
from tests.support.server.serving import serving

pytestmark = pytest.mark.usefixtures("chromium")
INSTALL = """async (path) => {
  const { register } = await import(path);
  await register({ scope: "/" });
  await navigator.serviceWorker.ready;
}"""
KEPT = "caches.keys().then((all) => Promise.all(all.map((name) => caches.open(name).then((one) => one.keys()))))"
NAMES = f"{KEPT}.then((all) => all.flat().map((one) => new URL(one.url).pathname))"


async def test_an_installed_page_says_that_the_server_cannot_be_reached(tmp_path: Path) -> None:
    async with browsing() as browser:
        context = await browser.context()
        page = await context.new_page()
        async with serving(tmp_path, Scripted(["A secret answer."])) as served:
            at = home(served)
            await page.goto(at)
            await page.evaluate(INSTALL, "/page/js/notifications/worker.js")
            await page.goto(at)  # now through the worker
            await say(page, "Hello")
            await expect(page.get_by_text("A secret answer.")).to_be_visible()
            kept = await page.evaluate(NAMES)
            assert sorted(kept) == [
                "/page/css/base.css",
                "/page/css/sign_in.css",
                "/page/css/tokens.css",
                "/page/offline.html",
            ]
        browser.expected.append("ERR_|Failed to fetch|refused|network")
        await page.goto(at)
        await expect(page.get_by_role("heading", name="The server cannot be reached")).to_be_visible()
        await shot(page, "offline")


def test_the_manifest_names_icons_that_are_there() -> None:
    manifest = json.loads((FOLDER / "app.webmanifest").read_text())
    assert manifest["display"] == "standalone" and manifest["start_url"] == manifest["scope"] == "/"
    for icon in manifest["icons"]:
        path = FOLDER / icon["src"].removeprefix("/page/")
        assert path.exists(), path
        if path.suffix == ".png":
            width, height = (int.from_bytes(path.read_bytes()[at : at + 4]) for at in (16, 20))
            assert icon["sizes"] == f"{width}x{height}"
