"""A preview that ends its tab: in a browser of its own."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.async_api import async_playwright

from app.core.provider import CallForm
from app.models.scripted import Scripted
from tests.browser import home
from tests.chromium import ARGUMENTS, executable
from tests.nightly import only_at_night
from tests.serving import serving
from tests.test_routes_page_artefacts import block, elsewhere, opened

pytestmark = pytest.mark.anyio

# In a document of its own, where the frame has not taken WebRTC away.
NESTED = """<body><script>
const frame = document.createElement("iframe");
frame.srcdoc = `<script>
  const peer = new RTCPeerConnection({ iceServers: [{ urls: "stun:WHERE" }] });
  peer.createDataChannel("x");
  peer.createOffer().then((offer) => peer.setLocalDescription(offer));
<\\/script>`;
document.body.append(frame);
</script>"""


@only_at_night
async def test_a_nested_document_reaches_nothing_either(tmp_path: Path) -> None:
    async with elsewhere() as other, async_playwright() as playwright:
        arguments = [*ARGUMENTS, "--site-per-process"]
        browser = await playwright.chromium.launch(executable_path=executable(), args=arguments)
        answer = block("html", NESTED.replace("WHERE", other.address))
        async with serving(tmp_path, Scripted([f"{answer}The end."], call_form=CallForm.NATIVE)) as served:
            page = await browser.new_page()
            await opened(page, home(served))
            # Rather than let WebRTC out, Chromium ends the tab, which is there again when reloaded.
            async with page.expect_event("crash"):
                await page.get_by_role("button", name="Preview").click()
            assert other.reached == []
            await browser.close()  # first: the server waits for what the page has open
