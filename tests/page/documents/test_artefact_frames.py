"""Previews and inner frames: each would be a realm of its own, with the WebRTC that was taken out of the preview's."""

from __future__ import annotations

import asyncio
import json
import re
from asyncio import DatagramProtocol, DatagramTransport
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from app.core.provider import CallForm
from app.models.scripted import Scripted
from routes.page import FRAME, PROBE
from tests import ROOT
from tests.support.page.browser import NARROW, Browsing, Locator, Page, browsing, expect, home, shot
from tests.support.page.chromium import BROWSER
from tests.support.page.stories import code_block, show_answer
from tests.support.server.serving import Served, serving

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("chromium")]

WAYS = ROOT / "fixtures/page/inner_frames.txt"
# A document that sends packets to one port of this machine, and one that holds it in a frame.
SENDER = (
    "<script>const peer = new RTCPeerConnection({ iceServers: [{ urls: 'turn:127.0.0.1:PORT?transport=udp', "
    "username: 'DATA', credential: 'x' }] }); peer.createDataChannel('x'); "
    "peer.createOffer().then((offer) => peer.setLocalDescription(offer))</script>"
)
FRAMED = f'<iframe srcdoc="{SENDER}"></iframe>'
MAKING = """<!doctype html><body><script>
const ways = #WAYS#, got = {};
const add = (node) => document.body.appendChild(node);
const fill = (frame) => { frame.srcdoc = window.text; add(frame) };
for (const [name, [port, code]] of Object.entries(ways)) {
  window.text = #SENDER#.replace("PORT", port);
  window.html = #FRAMED#.replace("PORT", port);
  window.escaped = text.replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/"/g, "&quot;");
  try { (0, eval)(code); got[name] = "made" } catch (error) { got[name] = `${error}` }
}
addEventListener("load", () =>
  document.body.append(Object.assign(document.createElement("pre"), { id: "got", textContent: JSON.stringify(got) })));
</script>"""


class Port(DatagramProtocol):
    """A port of this machine that counts packets."""

    def __init__(self) -> None:
        self.packets = 0
        self.came = asyncio.Event()
        self.transport: DatagramTransport | None = None

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def datagram_received(self, data: bytes, _: Any) -> None:
        self.packets += 1
        self.came.set()

    @property
    def number(self) -> str:
        assert self.transport
        return str(self.transport.get_extra_info("sockname")[1])


@asynccontextmanager
async def ports(*names: str) -> AsyncGenerator[dict[str, Port], None]:
    loop = asyncio.get_running_loop()
    found = {name: (await loop.create_datagram_endpoint(Port, local_addr=("127.0.0.1", 0)))[1] for name in names}
    try:
        yield found
    finally:
        for port in found.values():
            assert port.transport
            port.transport.close()
        await asyncio.sleep(0)  # which closes them


def ways() -> tuple[dict[str, str], dict[str, str]]:
    """The code by name, and the documents by name."""
    _, scripts, written = re.split(r"^# .*\n", WAYS.read_text(), flags=re.MULTILINE)
    found = (re.split(r"^(\w[\w ]*): ", part, flags=re.MULTILINE)[1:] for part in (scripts, written))
    by_scripts, by_documents = (dict(zip(parts[::2], parts[1::2], strict=True)) for parts in found)
    return by_scripts, by_documents


def documents(at: Mapping[str, Port]) -> list[str]:
    """All that scripts do in one document, the others in one each."""
    made, written = ways()
    numbered = {name: (at[name].number, code) for name, code in made.items()}
    values = {"WAYS": numbered, "SENDER": SENDER, "FRAMED": FRAMED}
    texts = {name: json.dumps(value).replace("</", "<\\/") for name, value in values.items()}
    parts = {"F": FRAMED, "S": SENDER, "SCRIPT": SENDER.replace("</", "<\\/")}
    others = {name: re.sub("#([A-Z]+)#", lambda found: parts[found[1]], text) for name, text in written.items()}
    return [
        re.sub("#([A-Z]+)#", lambda found: texts[found[1]], MAKING),
        *(f"<!doctype html><body>{text}".replace("PORT", at[name].number) for name, text in others.items()),
    ]


async def without_header(page: Page, *files: str) -> None:
    """A browser that does not know the header, for these files."""

    async def strip(route: Any) -> None:
        answer = await route.fetch()
        headers = {name: value for name, value in answer.headers.items() if name != "connection-allowlist"}
        await route.fulfill(response=answer, headers=headers)

    for file in files:
        await page.route(f"**/{file}", strip)


@asynccontextmanager
async def shown(tmp_path: Path, answer: str) -> AsyncGenerator[tuple[Served, Browsing, Page], None]:
    scripted = Scripted([f"{answer}The end."], call_form=CallForm.NATIVE)
    async with serving(tmp_path, scripted) as served, browsing() as browser:
        browser.expected.append("")  # each of the tries is a complaint
        yield served, browser, (page := await browser.page(viewport=NARROW))
        await page.unroute_all(behavior="wait")  # a frame may still be loading


async def previewed(page: Page, served: Served) -> Locator:
    """Each of the code blocks as a preview."""
    await show_answer(page, home(served))
    figures = page.locator("figure.code")
    for figure in await figures.all():
        # Not by a pointer: what grows above moves the button away between its press and its release.
        await figure.get_by_role("button", name="Preview").dispatch_event("click")
    return figures


async def packets_of(at: Mapping[str, Port]) -> dict[str, int]:
    """Packets by way, once the same document has sent some where nothing prevents it: the last that could come."""
    async with ports("free") as free:
        context = await BROWSER.get().new_context()
        await (await context.new_page()).set_content(FRAMED.replace("PORT", free["free"].number))
        await asyncio.wait_for(free["free"].came.wait(), 30)
        await context.close()
    return {name: port.packets for name, port in at.items() if port.packets}


@pytest.mark.parametrize("unknown", [(), (FRAME,), (FRAME, PROBE)], ids=["as served", "locked alone", "unknown"])
async def test_nothing_makes_a_frame_that_sends(tmp_path: Path, unknown: tuple[str, ...]) -> None:
    made, written = ways()
    async with ports(*made, *written) as at:
        answer = "".join(code_block("html", text) for text in documents(at))
        async with shown(tmp_path, answer) as (served, _, page):
            crashes: list[Any] = []
            page.on("crash", lambda _: crashes.append(1))
            await without_header(page, *unknown)
            figures = await previewed(page, served)
            note = figures.first.locator(".artefact-note")
            if PROBE in unknown:
                await expect(note).to_have_text(STILL)
            else:
                got = await figures.first.frame_locator("iframe").locator("#got").inner_text()
                assert [*json.loads(got)] == [*made]
            assert await packets_of(at) == {}
            assert await page.evaluate("1 + 1") == 2 and not crashes


HELLO = "<h1>Hello</h1><link rel=preconnect href=//x.test><script>document.body.append('ran')</script>"
PICTURE = '<svg viewBox="0 0 200 100" onload="x()"><rect width="200" height="100" fill="teal"/></svg>'
STATIC = {"html": HELLO, "svg": PICTURE, "mermaid": "flowchart LR\n  A[Begin] --> B[End]"}
STILL = "Shown without its scripts: this browser cannot keep a preview off the network."


async def test_where_a_preview_is_not_kept_offline_it_stands_still(tmp_path: Path) -> None:
    answer = "".join(code_block(*each) for each in STATIC.items()) + code_block("html", "<p style='color: teal'>Plain")
    async with shown(tmp_path, answer) as (served, _, page):
        await page.set_viewport_size({"width": 1000, "height": 3_000})  # a frame out of sight is not laid out
        await without_header(page, FRAME, PROBE)
        figures = await previewed(page, served)
        notes = figures.locator(".artefact-note")
        await expect(notes).to_have_text([STILL, STILL, "", ""])
        document = figures.nth(0).frame_locator("iframe").frame_locator("iframe")
        await expect(document.locator("body")).to_have_text("Hello")
        await expect(document.locator("script, link")).to_have_count(0)
        for at, width in ((1, 200), (2, None)):
            picture = figures.nth(at).frame_locator("iframe").locator("img")
            await expect(picture).to_be_visible()
            assert width in (None, await picture.evaluate("one => one.naturalWidth"))
        await expect(figures.nth(1).locator(".artefact-frame")).to_have_css("height", "128px")
        plain = figures.nth(3).frame_locator("iframe").frame_locator("iframe")
        await expect(plain.get_by_text("Plain")).to_have_css("color", "rgb(0, 128, 128)")
        await shot(page, "artefact-still")


NO_WEBRTC = "for (const name of Object.getOwnPropertyNames(window)) if (/RTC/.test(name)) delete window[name];"
RUNS = """<b></b><script>
const say = (text) => document.querySelector("b").append(text);
say(`ran ${document.createElement("link").localName}`);
fetch("/livez", { mode: "no-cors" }).then(() => say(" sent"), () => say(" refused"));
</script>"""


async def test_where_no_frame_has_webrtc_scripts_run(tmp_path: Path) -> None:
    async with shown(tmp_path, code_block("html", RUNS)) as (served, _, page):
        await page.add_init_script(NO_WEBRTC)
        await without_header(page, FRAME, PROBE)
        figures = await previewed(page, served)
        await expect(figures.frame_locator("iframe").locator("b")).to_have_text("ran meta refused")


async def test_a_document_with_frames_is_shown_without_them(tmp_path: Path) -> None:
    text = (
        "<iframe src=https://x.test/></iframe><p>After</p>"
        "<script>for (let i = 0, frame = 2; i <frame ; i++) document.body.append('ran')</script>"
    )
    async with shown(tmp_path, code_block("html", text)) as (served, _, page):
        figures = await previewed(page, served)
        await expect(figures.frame_locator("iframe").locator("body")).to_contain_text("ranran")
        await expect(figures.frame_locator("iframe").locator("iframe")).to_have_count(0)
        left_out = "A preview cannot hold other pages: the frames of this document were left out."
        await expect(figures.locator(".artefact-note")).to_have_text(left_out)


async def test_a_preview_of_a_shared_conversation_runs_as_well(tmp_path: Path) -> None:
    answer = code_block("html", HELLO + FRAMED.replace("PORT", "9"))
    async with shown(tmp_path, answer) as (served, _, page):
        events = await served.chat("Show me.")
        shared = await served.client.post(f"/sessions/{events[0]['session']}/shares", json={})
        crashes: list[int] = []
        page.on("crash", lambda _: crashes.append(1))
        await page.goto(f"{home(served)}{shared.json()['path']}")
        await page.get_by_role("button", name="Preview").click()
        document = page.locator("figure.code").frame_locator("iframe")
        await expect(document.locator("body")).to_contain_text("ran")
        await expect(document.locator("iframe")).to_have_count(0)
        assert await page.evaluate("1 + 1") == 2 and not crashes


WRITES = """<p>before</p><script>
document.write("<table><caption>One</caption>");
for (let row = 1; row < 3; row++) {
  document.write("<tr>");
  for (let at = 1; at < 4; at++) document.write("<td>" + row * at + "</td>");
  document.write("</tr>");
}
document.write("</table>");
document.write("<b id=b>1</b><br>");
document.getElementById("b").append("2");
document.write("<ul><li>open");
document.write("<ifr"); document.write("ame src=x></ifr" + "ame>");
</script><p>after</p>"""


async def test_tags_that_scripts_write_in_pieces_belong_together(tmp_path: Path) -> None:
    async with shown(tmp_path, code_block("html", WRITES)) as (served, _, page):
        document = (await previewed(page, served)).frame_locator("iframe")
        await expect(document.locator("table tr")).to_have_text(["123", "246"])
        await expect(document.locator("td")).to_have_count(6)
        await expect(document.locator("#b")).to_have_text("12")
        await expect(document.locator("p, caption, b, li")).to_have_text(["before", "One", "12", "open", "after"])
        await expect(document.locator("iframe")).to_have_count(0)
