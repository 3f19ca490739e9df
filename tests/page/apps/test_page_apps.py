"""Apps of MCP servers in the conversation: what they learn, what they may do, and what a person sees of it."""

from __future__ import annotations

import json
import sys
from base64 import b64decode
from pathlib import Path
from typing import Any

import pytest
import trustme

from app.models.scripted import Scripted
from routes.page import FRAME, PROBE
from tests.support.mcp.faulty_servers import FIXTURES
from tests.support.mcp.real_servers import node_server
from tests.support.mcp.served import READS, helper, serving_mcp
from tests.support.page.apps import CLIENT, AppServer, apps, serve_apps
from tests.support.page.axe import LOOKS, violations
from tests.support.page.browser import NARROW, PHONE, REFUSED_PROBE, browsing, expect, home, say, shot
from tests.support.page.stories import too_wide
from tests.support.sandbox.sites import THERE, site
from tests.support.server.serving import serving

pytestmark = pytest.mark.usefixtures("chromium")

PICTURE = b64decode("R0lGODlhAQABAIAAAAAAAP///yH5BAEAAAAALAAAAAABAAEAAAIBRAA7")
SHOP = (
    CLIENT
    + """<style>:root { color-scheme: light dark; font-family: sans-serif } body { margin: 12px }</style>
<h2 id=title>Prices</h2><p>Three <b id=price></b></p>
<button id=call>Refresh</button> <button id=say>Ask</button> <button id=link>Help</button>
<button id=give>Choose</button> <button id=full>Large</button> <button id=odd>Odd</button>
<script>
const on = (id, action) => document.getElementById(id).onclick = () => action().then((value) =>
  note(`${id}-got`, value));
begin().then((host) => {
  note("host", host);
  document.documentElement.style.colorScheme = host.hostContext.theme;
  tell("ui/notifications/size-changed", { height: 300 });
});
setInterval(() => {
  const result = heard.find(({ method }) => method.endsWith("tool-result"));
  document.getElementById("price").textContent = result ? result.params.structuredContent.price : "?";
  const theme = heard.findLast(({ method }) => method.endsWith("context-changed"))?.params.theme;
  if (theme) document.documentElement.dataset.theme = theme;
}, 50);
on("call", () => ask("tools/call", { name: "refresh", arguments: { n: 1 } }));
on("say", () => ask("ui/message", { role: "user", content: [{ type: "text", text: "What does it\\u202e cost?" }] }));
on("link", () => ask("ui/open-link", { url: "https://user.example/help?to=user.example#b" }));
on("give", () => ask("ui/update-model-context", { content: [{ type: "text", text: "Chosen: lamp" }] }));
on("full", () => ask("ui/request-display-mode", { mode: "fullscreen" }));
on("odd", () => ask("sampling/createMessage"));
</script>"""
)


async def test_an_app_learns_its_host_and_what_it_does_a_person_sees(tmp_path: Path) -> None:
    async with serving(tmp_path, Scripted(["Hello."])) as served, browsing() as browser:
        browser.expected.append(REFUSED_PROBE)
        context = await browser.context(viewport=NARROW, color_scheme="dark", timezone_id="Europe/Vienna")
        server = AppServer(answers={"tools/call": {"content": [], "structuredContent": {"price": 4}}})
        address = await serve_apps(served, context, [SHOP], server)
        page = await context.new_page()
        await page.goto(address)
        app = apps(page)
        frame = app.frame_locator("iframe")
        await expect(frame.locator("#price")).to_have_text("3")
        host = json.loads(await frame.locator("#host").inner_text())
        assert host["protocolVersion"] == "2026-01-26" and host["hostInfo"]["name"] == "dragoman"
        known = host["hostContext"]
        assert {name: known[name] for name in ("theme", "locale", "timeZone", "displayMode")} == {
            "theme": "dark",
            "locale": "en-US",
            "timeZone": "Europe/Vienna",
            "displayMode": "inline",
        }
        assert known["toolInfo"]["tool"]["name"] == "show" and known["containerDimensions"]["maxHeight"] == 640
        assert "light-dark(" in known["styles"]["variables"]["--color-text-primary"]
        await expect(app.locator(".artefact-frame")).to_have_css("height", "300px")
        assert await app.locator("iframe").get_attribute("sandbox") == "allow-scripts allow-forms"
        assert await violations_free(page)

        await frame.get_by_role("button", name="Large").click()
        full = page.get_by_role("dialog", name="App of shop")
        await expect(full.frame_locator("iframe").locator("#price")).to_have_text("3")
        await expect(full.frame_locator("iframe").locator("#full-got")).to_have_text('{"mode":"fullscreen"}')
        await shot(page, "app-full")
        await page.keyboard.press("Escape")
        await expect(full).to_have_count(0)
        await expect(frame.locator("#full-got")).to_be_attached()  # it has not begun again

        await frame.get_by_role("button", name="Refresh").dispatch_event("click")
        await expect(frame.locator("#call-got")).to_contain_text('"price":4')
        await frame.get_by_role("button", name="Odd").dispatch_event("click")
        await expect(frame.locator("#odd-got")).to_have_text("-32601")

        await frame.get_by_role("button", name="Ask").dispatch_event("click")
        question = app.locator(".app-question")
        await expect(question).to_contain_text("What does it⟨U+202E⟩ cost?")
        assert server.of("ui/message") == []
        await shot(page, "app-message")
        await question.get_by_role("button", name="Send").press("Enter")
        await expect(frame.locator("#say-got")).to_have_text("{}")
        assert server.of("ui/message")[0]["content"] == [{"type": "text", "text": "What does it\u202e cost?"}]

        await frame.get_by_role("button", name="Choose").dispatch_event("click")
        context_line = app.locator(".app-context")
        await context_line.locator("summary").click()
        await expect(context_line).to_contain_text("Chosen: lamp")
        await shot(page, "app-context")
        await context_line.get_by_role("button", name="Remove").click()
        await expect(context_line).to_be_hidden()
        assert server.of("ui/update-model-context")[-1] == {"content": []}

        await frame.get_by_role("button", name="Help").dispatch_event("click")
        await expect(question).to_contain_text("https://user.example/help?to=user.example#b")
        await expect(question.locator("b")).to_have_text("user.example")
        await context.route("https://user.example/**", lambda route: route.fulfill(body="Help"))
        async with context.expect_page() as opened:
            await question.get_by_role("button", name="Open user.example").press("Enter")
        assert (await opened.value).url == "https://user.example/help?to=user.example#b"
        assert await (await opened.value).evaluate("window.opener") is None
        assert server.of("ui/open-link") == [{"url": "https://user.example/help?to=user.example#b"}]

        await page.emulate_media(color_scheme="light")
        await expect(frame.locator("html")).to_have_attribute("data-theme", "light")


async def violations_free(page: Any) -> bool:
    return await too_wide(page) == []


@pytest.mark.parametrize("look", LOOKS)
async def test_axe_finds_nothing_wrong_with_an_app(tmp_path: Path, look: str) -> None:
    async with serving(tmp_path, Scripted(["Hello."])) as served, browsing() as browser:
        browser.expected.append(REFUSED_PROBE)
        page = await browser.page(**LOOKS[look])  # with its policy, without which no app runs
        await page.goto(await serve_apps(served, page.context, [SHOP], AppServer()))
        frame = apps(page).frame_locator("iframe")
        await frame.get_by_role("button", name="Choose").dispatch_event("click")
        await frame.get_by_role("button", name="Ask").dispatch_event("click")
        await page.locator(".app-context > summary").click()
        await shot(page, f"app-{look}")
        assert await violations(page, "an app", ".call-app") == []
        assert await too_wide(page) == []


async def test_an_app_speaks_german(tmp_path: Path) -> None:
    async with serving(tmp_path, Scripted(["Hello."])) as served, browsing() as browser:
        browser.expected.append(REFUSED_PROBE)
        context = await browser.context(locale="de-DE", viewport=PHONE)
        page = await context.new_page()
        await page.goto(await serve_apps(served, context, [SHOP], AppServer()))
        await apps(page).frame_locator("iframe").get_by_role("button", name="Ask").dispatch_event("click")
        await expect(page.get_by_role("group", name="App von shop")).to_contain_text("möchte diese Nachricht senden")
        await shot(page, "app-german")
        assert await too_wide(page) == []


async def test_an_app_comes_back_as_it_was_and_a_replay_of_it_does_nothing(tmp_path: Path) -> None:
    async with serving(tmp_path, Scripted(["Hello."])) as served, browsing() as browser:
        browser.expected.append(REFUSED_PROBE)
        context = await browser.context(viewport=NARROW)
        kept = {"context": {"content": [{"type": "text", "text": "Chosen: lamp"}]}}
        server = AppServer(state=kept)
        page = await context.new_page()
        await page.goto(await serve_apps(served, context, [SHOP], server))
        await expect(apps(page).locator(".app-context")).to_be_visible()
        await page.get_by_role("button", name="Timeline").first.click()
        await page.get_by_role("slider").press("ArrowLeft")
        past = page.locator(".replayed .call-app")
        frame = past.frame_locator("iframe")
        await expect(frame.locator("#price")).to_have_text("3")
        assert json.loads(await frame.locator("#host").inner_text())["hostCapabilities"].keys() == {"sandbox"}
        asked = len(server.asked)
        for name in ("Refresh", "Ask", "Choose", "Help"):
            await frame.get_by_role("button", name=name).dispatch_event("click")
        for name in ("call", "say", "give", "link"):
            await expect(frame.locator(f"#{name}-got")).to_have_text("-32601")
        await expect(past.get_by_role("button", name="Remove")).to_have_count(0)
        assert len(server.asked) == asked


async def test_where_no_app_can_run_a_card_says_why(tmp_path: Path) -> None:
    async with serving(tmp_path, Scripted(["Hello."])) as served, browsing() as browser:
        browser.expected.append("")
        context = await browser.context(viewport=NARROW)
        page = await context.new_page()

        async def strip(route: Any) -> None:
            answer = await route.fetch()
            headers = {name: value for name, value in answer.headers.items() if name != "connection-allowlist"}
            await route.fulfill(response=answer, headers=headers)

        for file in (FRAME, PROBE):
            await page.route(f"**/{file}*", strip)
        await page.goto(await serve_apps(served, context, [SHOP], AppServer()))
        await expect(apps(page)).to_contain_text("this browser cannot keep it off the network")
        await expect(page.locator(".call-app iframe")).to_have_count(0)
        await shot(page, "app-offline")
        await page.unroute_all(behavior="wait")
        await page.goto(await serve_apps(served, context, [SHOP], AppServer(), file=None))
        await expect(apps(page)).to_contain_text("is shown here in the conversation itself")
        await expect(page.locator(".call-app").get_by_role("button")).to_have_count(0)


async def test_an_app_may_end_what_it_does_and_few_run_at_a_time(tmp_path: Path) -> None:
    async with serving(tmp_path, Scripted(["Hello."])) as served, browsing() as browser:
        browser.expected.append(REFUSED_PROBE)
        context = await browser.context(viewport={"width": 1000, "height": 4_000})
        page = await context.new_page()
        ending = SHOP + "<script>window.ending = () => ask('tools/call', { name: 'save' })</script>"
        server = AppServer()
        await page.goto(await serve_apps(served, context, [ending] * 8, server))
        await expect(page.locator(".call-app iframe")).to_have_count(6)
        await expect(page.get_by_text("“Reload” starts it again")).to_have_count(2)
        running = apps(page).filter(has=page.locator("iframe"))  # the last six that came into view
        await expect(running.last.frame_locator("iframe").locator("#price")).to_have_text("3")
        async with page.expect_response(lambda one: "save" in (one.request.post_data or "")):
            await page.get_by_role("button", name="New conversation").click()
        await expect(page.locator("iframe")).to_have_count(0)


REACHING = (
    CLIENT
    + """<script>begin().then(async () => {
  const got = {}, loads = (src) => new Promise((resolve, reject) =>
    Object.assign(new Image(), { src, onload: () => resolve("loaded"), onerror: () => reject() }));
  const way = async (name, attempt) => { got[name] = await attempt().then(() => "reached", () => "refused") };
  for (const name of ["FIRST", "SECOND"]) {
    await way(`fetch ${name}`, () => fetch(`https://${name}/fetch`, { mode: "no-cors" }));
    await way(`picture ${name}`, () => loads(`https://${name}/picture`));
    for (const rel of ["preconnect", "dns-prefetch", "prefetch"])
      document.head.append(Object.assign(document.createElement("link"), { rel, href: `https://${name}/${rel}` }));
  }
  note("got", got);
  onclick = () => { location = "https://FIRST/navigation" };
});</script>"""
)


@pytest.mark.parametrize("kind", ["connectDomains", "resourceDomains"])
async def test_an_app_reaches_what_an_admin_has_allowed_and_nothing_else(tmp_path: Path, kind: str) -> None:
    certificate = trustme.CA().issue_cert(THERE)
    pages = {"/fetch": b"x", "/picture": PICTURE}
    async with serving(tmp_path, Scripted(["Hello."])) as served, browsing() as browser:
        browser.expected.append("")
        with site(pages, certificate) as first, site(pages, certificate) as second:
            context = await browser.context(viewport=NARROW, ignore_https_errors=True)
            html = REACHING.replace("FIRST", first.host).replace("SECOND", second.host)
            csp = {"connectDomains": [], "resourceDomains": [], kind: [f"https://{first.host}"]}
            page = await context.new_page()
            await page.goto(await serve_apps(served, context, [html], AppServer(), csp=csp))
            shown = apps(page).frame_locator("iframe").locator("#got")
            got = json.loads(await shown.inner_text())
            await shown.dispatch_event("click")
            way = "fetch" if kind == "connectDomains" else "picture"
            assert [name for name, became in got.items() if became == "reached"] == [f"{way} {first.host}"], got
            await page.frames[1].wait_for_url("chrome-error://**")
            assert {*first.asked} - {"/prefetch"} == {f"/{way}"} and second.asked == []


CALLING = CLIENT + (
    "<script>begin().then(async () => { for (const name of ['tick', 'think', 'mcp__helper__echo', 'plain'])"
    " note(name, await ask('tools/call', { name, arguments: { text: 'x' } })); "
    " note('read', await ask('resources/read', { uri: 'note://data' })) })</script>"
)


async def test_calls_of_an_app_wait_in_the_tray_and_stay_on_its_server(tmp_path: Path) -> None:
    servers: dict[str, object] = {
        "clock": {"command": sys.executable, "args": [str(FIXTURES / "apps.py")]},
        "helper": helper(),
    }
    script = Scripted(["```mcp__clock__show\n{}\n```", "There it is."])
    async with serving_mcp(tmp_path, script, servers) as served, browsing() as browser:
        browser.expected += [REFUSED_PROBE, "403"]
        page = await browser.page(viewport=NARROW)

        async def give(route: Any) -> None:
            answer = await route.fetch()
            text = await answer.text()
            await route.fulfill(response=answer, body=CALLING if text.startswith("<!doctype html>") else text)

        await page.route("**/sessions/*/files/*", give)
        await page.goto(home(served))
        await say(page, "Show me the clock.")
        tray = page.locator("#approvals")
        for name in ("show", "tick", "plain", "resources"):
            await expect(tray.locator(".approval")).to_contain_text(name)
            await expect(page.locator("#approvals[data-settling]")).to_have_count(0)
            await tray.get_by_role("button", name="Approve once").click()
            if name == "tick":
                frame = apps(page).frame_locator("iframe")
                await expect(frame.locator("#tick")).to_contain_text("tick has run")
                await shot(page, "app-approval")
        await expect(frame.locator("#think")).to_have_text("-32000")
        await expect(frame.locator("#mcp__helper__echo")).to_have_text("-32000")
        await expect(frame.locator("#read")).to_contain_text("data of the server")
        await page.unroute_all(behavior="wait")


async def test_an_app_of_the_extensions_own_kit_works_as_it_is(tmp_path: Path) -> None:
    real = node_server("basic-vanillajs", "--stdio")
    servers: dict[str, object] = {"basic": {"command": real.command, "args": list(real.args)}}
    script = Scripted(["```mcp__basic__get-time\n{}\n```", "There it is.", "I have read it."])
    async with serving_mcp(tmp_path, script, servers, tools=READS) as served, browsing() as browser:
        browser.expected.append(REFUSED_PROBE)
        page = await browser.page(viewport=NARROW)
        await page.goto(home(served))
        await say(page, "What time is it?")
        frame = apps(page).frame_locator("iframe")
        time = frame.get_by_text("T", exact=False).filter(has_text="20").first
        await expect(time).to_be_visible()
        async with page.expect_response(
            lambda one: one.request.method == "POST" and one.url.endswith("/app")
        ) as called:
            await frame.get_by_role("button", name="Get Server Time").dispatch_event("click")
        assert (await called.value).status == 200
        await frame.get_by_role("button", name="Send Message").dispatch_event("click")
        await page.locator(".app-question").get_by_role("button", name="Send").press("Enter")
        await expect(page.get_by_text("I have read it.")).to_be_visible()
        words = page.get_by_role("group", name="From the app of basic, confirmed by you")
        for _ in range(2):
            await expect(page.locator(".run")).to_have_count(
                2
            )  # a call of the app is no turn: the app shows its result
            await expect(words).to_be_visible()
            await expect(page.get_by_text("Untrusted data of the app")).to_have_count(0)
            await page.reload()
            await expect(frame.get_by_role("button", name="Get Server Time")).to_be_visible()


STORING = CLIENT + (
    "<script>begin().then(() => { localStorage.setItem('a', '1'); "
    "note('got', [origin, localStorage.length, parent === top]); try { parent.document } catch { note('apart', 1) } })"
    "</script>"
)


async def test_an_origin_of_their_own_is_for_apps_of_one_server_at_a_time(tmp_path: Path) -> None:
    origin = "http://apps.example.org"
    own = "http://page.example.org"
    scripted = Scripted(["Hello."])
    async with serving(tmp_path, scripted, apps_origin=origin, public_url=own) as served, browsing() as browser:
        browser.expected.append(REFUSED_PROBE)
        context = await browser.context(viewport={"width": 1000, "height": 3_000})

        async def frame_of(route: Any) -> None:
            path = route.request.url.removeprefix(origin)
            answer = await served.client.get(path, headers={"host": "apps.example.org"})
            policy = answer.headers["content-security-policy"].replace(own, home(served))
            headers = dict(answer.headers) | {"content-security-policy": policy}
            await route.fulfill(body=answer.text, headers=headers | {"content-encoding": "", "content-length": ""})

        await context.route(f"{origin}/**", frame_of)
        server = AppServer(origin=origin)
        page = await context.new_page()
        await page.goto(await serve_apps(served, context, [STORING] * 2, server, servers=["shop", "bank"]))
        await expect(page.locator(".call-app iframe")).to_have_count(1)
        last = apps(page).last
        await last.get_by_role("button", name="Reload").click()
        await expect(last.frame_locator("iframe").locator("#got")).to_have_text(f'["{origin}",1,true]')
        await expect(last.frame_locator("iframe").locator("#apart")).to_be_attached()
        assert await last.locator("iframe").get_attribute("sandbox") == "allow-scripts allow-forms allow-same-origin"
        await expect(page.locator(".call-app iframe")).to_have_count(1)
        await expect(apps(page).first).to_contain_text("“Reload” starts it again")
