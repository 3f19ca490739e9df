"""States of the page: how to reach each, and its parts. One table for boxes, pictures and all engines."""

from __future__ import annotations

import asyncio
import json
from asyncio import Task
from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

from app.core.provider import CallForm, ProviderFailed
from app.models.scripted import Pause, Raise, Reply, Scripted
from parsing import Thought
from tests.support.access.people import bearer
from tests.support.models.replies import native_call
from tests.support.page.engines import Window
from tests.support.page.windows import OPEN
from tests.support.server.serving import Served, serving

# One step: a click, or words in a field.
STEP = """((one, words) => {
  if (!words) return one.click();
  one.value = words;
  one.dispatchEvent(new Event("input", { bubbles: true }));
})(document.querySelector(%s), %s)"""
# What a page asks the server for is there.
SETTLED = """Boolean(document.querySelector("#app")?.hidden || (
  document.querySelector(".session-list")?.childElementCount
  && !document.querySelector("#panel [aria-busy=true]")
  && !/^$|…/.test(document.querySelector(".status-model")?.textContent ?? "")))"""
# Nothing moves or comes any more, and what differs from time to time says the same.
STILL = """(async () => {
  await document.fonts.ready;
  const calm = new CSSStyleSheet();
  calm.replaceSync(`*, ::before, ::after { animation: none !important; transition: none !important;
    caret-color: transparent !important; scroll-behavior: auto !important; scrollbar-width: none !important; }`);
  document.adoptedStyleSheets = [...document.adoptedStyleSheets, calm];
  document.activeElement?.blur();
  const boxes = () => JSON.stringify(%s.map((part) => document.querySelector(part)?.getBoundingClientRect()))
    + document.body.innerHTML.length;
  for (let seen = "", same = 0, left = 100; same < 4 && left; left--) {
    await new Promise((resolve) => setTimeout(resolve, 50));
    same = seen === (seen = boxes()) ? same + 1 : 0;
  }
  for (let id = setTimeout(() => 0); id; id--) clearTimeout(id);
  const words = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (words.nextNode()) {
    const node = words.currentNode, text = node.data;
    const same = node.parentElement.closest("time") ? "12:00" : text
      .replace(/\\b\\d+([.,])\\d s\\b/g, "1$10 s").replace(/localhost:\\d+/g, "localhost:8724")
      .replace(/\\/\\S+\\/work\\b/g, "/home/work").replace(/\\d+ GB/g, "9 GB");
    if (same !== text) node.data = same;
  }
})()"""
# The boxes of parts and what is wrong with them. A panel or drawer that lies over the page hides the parts below it.
MEASURE = """((parts, touch) => {
  const wrong = [], room = document.documentElement.clientWidth, boxes = {};
  const over = ["#panel", "#sidebar"].map((one) => document.querySelector(one)).find((one) =>
    one?.checkVisibility({ visibilityProperty: true }) && getComputedStyle(one).position === "fixed"
      && one.getBoundingClientRect().right > 1);
  const seen = (one) => {
    const box = one.getBoundingClientRect();
    return one.checkVisibility({ visibilityProperty: true }) && box.width && box.height && box.right > 0
      && (!over || over.contains(one));
  };
  const found = parts.map((part) => [part, document.querySelector(part)]).filter(([part, one]) => {
    if (one && (seen(one) || part === "#sidebar" || (over && !over.contains(one)))) return seen(one);
    wrong.push(`${part} is not visible`);
  });
  for (const [part, one] of found) {
    const { x, y, width, height } = one.getBoundingClientRect();
    boxes[part] = [x, y, width, height].map((value) => Math.round(value * 10) / 10);
  }
  found.forEach(([name, one], at) => found.slice(at + 1).forEach(([other, two]) => {
    if (one.contains(two) || two.contains(one)) return;
    const [a, b] = [one.getBoundingClientRect(), two.getBoundingClientRect()];
    const wide = Math.min(a.right, b.right) - Math.max(a.left, b.left);
    const high = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
    const scrolls = document.querySelector("#conversation");
    if (wide > 2 && high > 2 && scrolls?.contains(one) === scrolls?.contains(two)) {
      wrong.push(`${name} lies over ${other}`);
    }
  }));
  const pages = [document.documentElement, document.body, ...document.querySelectorAll("#conversation, .panel-body")];
  for (const one of pages) {
    if (one.scrollWidth > one.clientWidth + 1) wrong.push(`${one.localName}#${one.id} scrolls sideways`);
  }
  const { scrollHeight, clientHeight } = document.documentElement;
  if (scrollHeight > clientHeight && !document.querySelector("#app").hidden) wrong.push("the whole page scrolls");
  for (const [part, [x, , width]] of Object.entries(boxes)) {
    if (x < -1 || x + width > room + 1) wrong.push(`${part} is not whole inside the page`);
  }
  if (touch) {
    const words = "button:not(.foot-button, .code-link), select, summary, textarea, .session-link, .tree-row"
      + ", input:not(.visually-hidden)";
    for (const one of document.querySelectorAll(words)) {
      const box = (one.closest("label") ?? one).getBoundingClientRect();
      if (!seen(one) || one.closest("[inert]") || (box.width >= 44 && box.height >= 44)) continue;
      wrong.push(`${one.localName}.${one.className} is ${Math.round(box.width)} x ${Math.round(box.height)} px`);
    }
  }
  return { boxes, wrong };
})(%s, %s)"""
LIMIT_S = 60
FRAME = ("#sidebar", "#topbar", "#conversation", ".composer-box", "#status")
PANEL = (".panel-head", ".panel-body")
RICH = (
    "# How long a request takes\n\nIt waits in the `queue`, then **the model** answers; see "
    "[the notes](https://example.com/).\n\n"
    "```python\ndef feed(self, text: str) -> list[Event]:\n    return list(self._events(text))  # once\n```\n\n"
    "| part | bound |\n|---|---|\n| queue | 100 requests |\n| call | 120 s |\n\n"
    "$$ \\bar t = \\frac{1}{n} \\sum_{i=1}^{n} t_i $$\n\n> [!NOTE]\n> Measured twice.\n\nThat is all.\n"
)
CODE = "".join(f"line_{number} = {number}\n" for number in range(6))
EDIT = native_call("edit_file", path="feed.py", old="line_2 = 2", new="line_2 = 'two'")


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """A state: the conversation that it shows, what is clicked there or gets words, and the parts it must have.

    `also` is what it is compared in beside 1280 px in light: "dark", or "phone" with a finger on it.
    """

    name: str
    tells: str = ""  # the message whose conversation is shown
    steps: tuple[tuple[str, str], ...] = ()
    parts: tuple[str, ...]
    also: str = "phone"
    empty: bool = False  # of a server with the embedded model
    narrow: bool = False  # it is a state of narrow pages alone
    ready: str = "true"


LOOKS = (
    Look(name="first", parts=(*FRAME, ".welcome-title", ".welcome-demonstration", ".examples button")),
    Look(
        name="embedded",
        empty=True,
        also="dark",
        parts=(*FRAME, ".welcome-title", ".welcome-demonstration .primary", ".examples button", ".first-visit"),
    ),
    Look(
        name="answer",
        tells="How long?",
        parts=(*FRAME, ".user-message", ".answer pre", ".answer table", ".answer math", ".turn-foot"),
    ),
    Look(name="folded", tells="Write it.", also="dark", parts=(*FRAME, ".steps-line", ".answer", ".turn-foot")),
    Look(
        name="unfolded",
        tells="Write it.",
        steps=((".steps-line", ""),),
        parts=(*FRAME, ".steps-line", ".run-body .card:nth-of-type(1)", ".reasoning", ".turn-foot"),
    ),
    Look(name="error", tells="Fail.", also="dark", parts=(*FRAME, ".end-line p", ".end-line .again")),
    Look(name="settings", steps=((".list-tools button:last-child", ""),), parts=(*FRAME, *PANEL)),
    Look(
        name="workspace",
        tells="Write it.",
        steps=((".status-gap + button", ""),),
        also="dark",
        parts=(*FRAME, *PANEL, ".workspace-bar", ".tree-row"),
    ),
    Look(
        name="search",
        steps=((".menu-button", ""), ("#sidebar [type=search]", "queue")),
        also="dark",
        ready="document.querySelector('.session-snippet') !== null",
        parts=(*FRAME, ".search", ".session-link", ".session-snippet"),
    ),
    Look(
        name="drawer",
        tells="How long?",
        narrow=True,
        steps=((".menu-button", ""),),
        parts=("#sidebar", ".sidebar-head"),
    ),
    Look(name="streaming", tells="Go on.", parts=(*FRAME, ".user-message", ".answer", ".stop")),
    Look(
        name="approval",
        tells="Change it.",
        parts=(*FRAME[:2], "#approvals", ".approval-head", ".approval-body", ".approval-foot", ".composer-box"),
    ),
    Look(name="others", tells="How long?", also="dark", parts=(*FRAME, "#approvals")),
    Look(
        name="sign-in",
        ready="document.querySelector('.sign-in-box') !== null",
        parts=(".sign-in-box h1", ".sign-in-box .primary", ".sign-in-box form"),
    ),
)


@dataclass(slots=True)
class Stage:
    """A server that plays the stories, each once, when a look first asks for it."""

    served: Served
    embedded: Served | None
    sessions: dict[str, str] = field(default_factory=dict)
    under_way: list[Task[Any]] = field(default_factory=list)
    _loads: count[int] = field(default_factory=count)

    async def _told(self, look: Look) -> None:
        if look.name == "sign-in" and "sign-in" not in self.sessions:
            await bearer(self.served, "ann")
            self.sessions["sign-in"] = ""
        if look.name == "answer" and look.tells not in self.sessions:
            for message in ("How long?", "Write it.", "Fail."):
                approval = {} if message == "Fail." else {"approval": "auto"}
                self.sessions[message] = (await self.served.chat(message, **approval))[0]["session"]
        until = {"Go on.": "text.delta", "Change it.": "approval.required"}
        if look.tells in until and look.tells not in self.sessions:
            here: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self.under_way.append(asyncio.create_task(self._follow(look.tells, until[look.tells], here)))
            await here

    async def _follow(self, message: str, until: str, here: asyncio.Future[None]) -> None:
        async with aclosing(self.served.turn(message=message, approval="ask")) as turn:
            async for event in turn:
                self.sessions.setdefault(message, event.get("session", ""))
                if event["type"] == until and not here.done():
                    here.set_result(None)

    async def show(self, window: Window, look: Look, *, language: str = "en") -> None:
        """Bring a window to the state, and hold it still."""
        async with asyncio.timeout(LIMIT_S):
            await self._told(look)
        served = self.embedded if look.empty and self.embedded else self.served
        home = str(served.client.base_url)
        await window.goto(f"{home}/page/css/tokens.css")  # any file of the page has its storage
        # A page that had been signed in says why it is so no more.
        await window.evaluate(f"(sessionStorage.clear(), localStorage.setItem('dragoman.language', {language!r}))")
        await window.goto(f"{home}/?{next(self._loads)}#{self.sessions.get(look.tells, '')}")
        if look.name != "sign-in":
            await window.wait_for(OPEN)
        if look.tells:
            await window.wait_for(f"document.querySelector('#conversation')?.innerText.includes({look.tells!r})")
        for selector, words in look.steps:
            await window.wait_for(f"document.querySelector({selector!r}) !== null")
            await window.evaluate(STEP % (json.dumps(selector), json.dumps(words)))
        await window.wait_for(look.ready)
        await window.wait_for(SETTLED)
        await window.wait_for(f"{json.dumps(look.parts)}.every((part) => document.querySelector(part))")
        await window.evaluate(STILL % json.dumps(look.parts))


@asynccontextmanager
async def stage(folder: Path) -> AsyncGenerator[Stage, None]:
    """The servers of all looks."""
    held = asyncio.Event()
    replies: list[Reply] = [
        RICH,
        ("First I look.\n\n", native_call("bash", command="echo one")),
        (Thought("And now?"), "Then I write.\n\n", native_call("write_file", path="feed.py", content=CODE)),
        "It is done.",
        [Raise(ProviderFailed("model_down", "The model's server is down. Start it, then try again.", retryable=False))],
        ("The queue is read once, and its words come ", Pause(held), "later."),
        ("I change the line.\n\n", EDIT),
    ]
    for name in ("one", "two"):
        (folder / name).mkdir()
    async with (
        serving(folder / "one", Scripted(replies, call_form=CallForm.NATIVE)) as served,
        serving(folder / "two", None, model_url="embedded:") as embedded,
    ):
        made = Stage(served, embedded)
        try:
            yield made
        finally:
            for task in made.under_way:
                task.cancel()
            await asyncio.gather(*made.under_way, return_exceptions=True)


async def measured(window: Window, look: Look, *, touch: bool = False) -> tuple[dict[str, list[float]], list[str]]:
    """Return the boxes of the visible parts, and what is wrong with them."""
    found = await window.evaluate(MEASURE % (json.dumps(look.parts), json.dumps(touch)))
    return found["boxes"], found["wrong"]
