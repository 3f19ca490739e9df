"""An app of the extension's own kit in a browser, in a frame of the origin that is for apps (`apps_origin`)."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
import uvicorn

from app.models.scripted import Scripted
from routes.access.rate_limits import BoundedProtocol
from routes.server import create_server
from routes.services import open_services
from tests.support.mcp.faulty_servers import free_port
from tests.support.mcp.real_servers import SETTLED_S, node_server
from tests.support.mcp.served import READS, write_list
from tests.support.page.browser import REFUSED_PROBE, browsing, expect
from tests.support.server.serving import chosen, running, settings_in

pytestmark = pytest.mark.usefixtures("chromium")

REACHES = """(page) => Promise.all([
  location.origin,
  (() => { localStorage.kept = "yes"; return localStorage.kept; })(),
  (() => { try { return parent.document.title; } catch (error) { return error.name; } })(),
  fetch(`${page}/tools`).then(({ status }) => status, (error) => error.name),
  fetch("/tools").then(({ status }) => status, (error) => error.name),
])"""


async def test_an_app_has_an_origin_of_its_own_and_nothing_of_the_page(tmp_path: Path) -> None:
    real = node_server("basic-vanillajs", "--stdio")
    write_list(tmp_path, basic={"command": real.command, "args": list(real.args)})
    provider, port = Scripted(["```mcp__basic__get-time\n{}\n```", "Late."]), free_port()
    home, apps = f"http://localhost:{port}", f"http://apps.localhost:{port}"
    settings = settings_in(tmp_path, tools=READS, public_url=home, apps_origin=apps)
    async with open_services(settings, partial(chosen, provider)) as services, browsing() as browser:
        config = uvicorn.Config(
            create_server(services), "127.0.0.1", port, lifespan="off", log_level="warning", http=BoundedProtocol
        )
        async with running(config):
            assert (await services.mcp.manager.settled("basic", SETTLED_S)).tools
            browser.expected += [REFUSED_PROBE, "Content Security Policy", "ERR_BLOCKED"]
            page = await browser.page()
            await page.goto(home)
            await page.get_by_role("textbox", name="Message").fill("What time is it?")
            await page.keyboard.press("Enter")
            view = page.locator("iframe.app-view")
            again = view.content_frame.get_by_role("button", name="Get Server Time")
            await expect(again).to_be_visible()
            assert await view.get_attribute("sandbox") == "allow-scripts allow-forms allow-same-origin"
            [frame] = [one for one in page.frames if one.url.startswith(apps)]
            refused = ["SecurityError", "TypeError", "TypeError"]
            assert await frame.evaluate(REACHES, home) == [apps, "yes", *refused]
            time = view.content_frame.locator("code").first
            before = await time.inner_text()
            await again.click()
            await expect(time).not_to_have_text(before)  # by a call of the app
            await page.close()
            await services.runs.close()
