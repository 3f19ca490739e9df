"""Whatever models, tools and people write, the page shows it and obeys none of it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from playwright.async_api import BrowserContext, Route

from app.models.scripted import Scripted
from tests import ROOT
from tests.support.page.browser import Browsing, Page, browsing, expect, home
from tests.support.server.serving import Served, serving

pytestmark = pytest.mark.usefixtures("chromium")

CORPUS = json.loads((ROOT / "fixtures/page/hostile.json").read_text())
TEXTS = [row["text"] * row.get("times", 1) for row in CORPUS]
LONGEST = 3_000  # characters of a text where it stands for a name, a path or a title
END = "Here the corpus ends."

WATCH = """() => {
  window.seen = [];
  window.pwned = () => window.seen.push("a script ran");
  addEventListener("securitypolicyviolation", (event) => window.seen.push(event.violatedDirective));
}"""

# What the page is made of; whatever else stands in it came out of words.
KNOWN = (
    "a article aside b bdi blockquote body br button circle code del details dialog div dl dt dd em fieldset "
    "figcaption figure footer form g h1 h2 h3 h4 h5 h6 head header hr html i img input ins kbd label legend li link "
    "main mark meta meter nav noscript ol optgroup option output p path pre progress rect s script section select "
    "small span strong sub summary sup svg table tbody td textarea th thead time title tr u ul"
)
FOUND = r"""(known) => {
  const MATHML = "http://www.w3.org/1998/Math/MathML";
  const elements = new Set(known.split(" "));
  const wrong = [...window.seen];
  const elsewhere = /^on|^(srcdoc|action|formaction|background|ping|xlink:href|srcset)$/;
  for (const element of document.querySelectorAll("*")) {
    const name = element.localName, said = element.closest(".runs") !== null;
    const drawn = element.closest(".math-box > math") !== null; // a formula, whose source stands beside it
    const odd = element.namespaceURI !== MATHML || element.id || /^(maction|semantics|annotation)/.test(name);
    if (drawn && odd) wrong.push(`<${name} ${element.id}>`);
    if (!drawn && !elements.has(name)) wrong.push(`<${name}>`);
    if (said && /^(script|link|meta|iframe|style|form)$/.test(name)) wrong.push(`a ${name}`);
    for (const { name, value } of element.attributes) {
      if (elsewhere.test(name)) wrong.push(`${name}=${value}`);
      if (name === "style" && /url|expression|fixed|image/i.test(value)) wrong.push(`style=${value}`);
      if (said && name === "src" && !value.startsWith("blob:")) wrong.push(`src=${value}`);
      if (said && name === "href" && !/^(https?:\/\/|mailto:)/.test(value)) wrong.push(`href=${value}`);
    }
    if (said && name === "a" && element.rel !== "noopener noreferrer") wrong.push("a link with an opener");
  }
  if ({}.polluted !== undefined) wrong.push("a prototype was changed");
  return wrong;
}"""

SAID = """() => [...document.querySelectorAll(".run")].map((run) => {
  for (const formula of run.querySelectorAll(".math-box")) formula.remove();
  const text = (selector) => run.querySelector(selector)?.textContent ?? "";
  return [text(".user-text"), text(".reasoning-text"), text(".answer .markdown")];
})"""


def events(text: str, run: str, session: str) -> Iterator[dict[str, Any]]:
    """A run that says the text wherever a run can say something."""
    short, call = text[:LONGEST], f"call_{run}"
    given = {"command": text, "path": short, "content": short, "old": short, "new": short, short[:200]: short}
    yield {"type": "run.started", "run": run, "session": session, "model": short, "tools": [short], "limits": {}}
    yield {"type": "round.started", "round": 1}
    yield {"type": "reasoning.delta", "text": text}
    yield {"type": "text.delta", "text": text}
    for number, name in enumerate((short[:200], "bash", ("write_file", "edit_file")[len(text) % 2])):
        one = f"{call}_{number}"
        yield {"type": "tool.delta", "call": one, "text": json.dumps(given)[:LONGEST], "name": name}
        yield {"type": "tool.started", "call": one, "name": name, "arguments": given, "dialect": "native"}
        yield {
            "type": "tool.progress",
            "call": one,
            "elapsed_s": 1.0,
            "tail": short.split("\n"),
            "lines": 1,
            "bytes": 9,
        }
        yield {
            "type": "tool.finished",
            "call": one,
            "name": name,
            "ok": bool(number % 2),
            "text": text,
            "duration_s": 1.0,
            "exit_code": 1,
        }
    yield {"type": "tool.rejected", "call": f"{call}_x", "name": short[:200], "reason": short}
    yield {"type": "notice", "code": short[:50], "message": short}
    yield {"type": "message.added", "text": short}
    yield {"type": "run.failed", "code": short[:50], "message": short, "retryable": False}


def told(log: dict[str, Any], texts: list[str]) -> dict[str, Any]:
    """The session's log as if each text had been a run of it."""
    last = log["runs"][-1]
    runs = []
    for number, text in enumerate([*texts, END]):
        run = f"run_{number:020}"
        numbered = [{"seq": seq, **event} for seq, event in enumerate(events(text, run, log["session"]), 1)]
        asked = last | {"run": run, "model": text[:100], "message": last["message"] | {"text": text}}
        runs.append(asked | {"events": numbered})
    return log | {"title": " ".join(texts)[:LONGEST], "runs": [*runs, last]}


async def hostile_session(served: Served, context: BrowserContext, texts: list[str]) -> str:
    """A session whose log is the texts; its id."""
    session = (await served.chat("<img src=x onerror=pwned()> \u202e {{x}}"))[0]["session"]
    log = told((await served.client.get(f"/sessions/{session}/log")).json(), texts)
    body = json.dumps(log)

    async def answer(route: Route) -> None:
        await route.fulfill(body=body, content_type="application/json")

    await context.route(f"**/sessions/{session}/log*", answer)
    return str(session)


async def opened(browser: Browsing, served: Served, texts: list[str]) -> tuple[Page, list[str]]:
    """A page that shows the texts, and what it asked of other hosts (which got no answer)."""
    context = await browser.context()
    abroad: list[str] = []

    async def outside(route: Route) -> None:
        if urlsplit(route.request.url).netloc == urlsplit(home(served)).netloc:
            await route.fallback()
        else:
            abroad.append(route.request.url)
            await route.abort()

    await context.route("**/*", outside)
    session = await hostile_session(served, context, texts)
    page = await context.new_page()
    page.on("dialog", lambda dialog: abroad.append(f"dialog: {dialog.message}"))
    context.on("page", lambda other: abroad.append(f"opened {other.url}"))
    await page.add_init_script(f"({WATCH})()")
    await page.goto(f"{home(served)}#{session}")
    drawn = page.locator(".run:has(.reasoning-text .markdown-part > *):has(.answer .markdown-part > *)")
    await expect(drawn).to_have_count(len(texts) + 1, timeout=200_000)
    await expect(page.locator(".answer", has_text=END)).to_be_visible()
    return page, abroad


def bare(text: str) -> str:
    """The letters and digits of ASCII: what is left of a text however it is shown, marks of the unseen aside."""
    text = re.sub(r"⟨U\+[0-9A-F]+⟩", "", text)
    return "".join(letter for letter in text if letter.isascii() and letter.isalnum())


@pytest.mark.timeout(240)
async def test_nothing_that_is_said_is_obeyed_and_all_of_it_can_be_read(tmp_path: Path) -> None:
    async with serving(tmp_path, Scripted(["Hello."], repeat=True)) as served, browsing() as browser:
        page, abroad = await opened(browser, served, TEXTS)
        assert await page.evaluate(FOUND, KNOWN) == []
        assert abroad == []
        shown = await page.evaluate(SAID)
        assert len(shown) >= len(TEXTS)
        for text, (asked, thought, answer) in zip(TEXTS, shown, strict=False):
            assert bare(text) in bare(asked), text[:80]
            assert thought.strip() and answer.strip(), text[:80]
