"""What stories of the page share: commands that end when they are told to, a slow line, and how wide a page is."""

from __future__ import annotations

import asyncio
from asyncio import StreamReader, StreamWriter
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from app.models.scripted import Pause, Reply, Scripted
from tests.support.page.browser import STORY_S, Browsing, Locator, Page, browsing, expect, home, say
from tests.support.server.serving import Served, serving

PIECE = 24  # bytes that a slow line carries at a time: events and characters are cut anywhere


def shell(command: str) -> tuple[str, str, str]:
    """A reply that runs this command."""
    return "```bash\n", f"{command}\n", "```\n"


def held(name: str = "go") -> str:
    """A command that ends when the workspace has a file of that name; to read nothing is how bash sleeps."""
    return f"until [ -e {name} ]; do read -t 0.02 <> <(:); done"


def let_go(folder: Path, name: str = "go") -> None:
    (folder / "work" / name).touch()


def pauses(count: int) -> list[Pause]:
    return [Pause(asyncio.Event()) for _ in range(count)]


def turns(page: Page) -> Locator:
    return page.get_by_role("article", name="Run")


def cards(page: Page, number: int = 0) -> Locator:
    return page.locator(".card").nth(number)


async def unfold(page: Page) -> None:
    """Show the calls of a run that has ended."""
    await page.locator(".steps-line[aria-expanded=false]").first.click()


async def too_wide(page: Page) -> list[str]:
    """What makes the page scroll sideways; nothing should."""
    found: list[str] = await page.evaluate(
        """async () => {
          for (const _ of [1, 2]) await new Promise(requestAnimationFrame);  // what a new width brings about has run
          const room = document.documentElement.clientWidth;
          if (document.documentElement.scrollWidth <= room && document.body.scrollWidth <= room) return [];
          const wide = [...document.querySelectorAll("body *")].filter((one) => {
            const box = one.getBoundingClientRect();
            return box.width && box.right > room + 1 && !one.closest("pre, .tail, [hidden]");
          });
          return ["the page", ...wide.map((one) => `${one.localName}.${one.className}`)].slice(0, 9);
        }"""
    )
    return found


class Line:
    """A TCP line to a server: whole or in small pieces, at once or late, and it can be cut."""

    def __init__(self, target: int) -> None:
        self.target = target
        self.port = 0
        self.slow = False
        self.late_s = 0.0  # what each block takes on its way
        self.down = False
        self._open: set[StreamWriter] = set()

    def cut(self) -> None:
        """All connections break, and new ones are refused, until `down` is False again."""
        self.down = True
        for writer in self._open:
            writer.transport.abort()

    async def carry(self, reader: StreamReader, writer: StreamWriter) -> None:
        if self.down:
            writer.transport.abort()
            return
        there, back = await asyncio.open_connection("127.0.0.1", self.target)
        ends = {writer, back}
        self._open |= ends
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._pump(reader, back))
                group.create_task(self._pump(there, writer))
        finally:
            self._open -= ends
            for end in ends:
                end.close()

    async def _pump(self, reader: StreamReader, writer: StreamWriter) -> None:
        with suppress(ConnectionError):
            while block := await reader.read(65536):
                there = asyncio.Event()
                asyncio.get_running_loop().call_later(self.late_s, there.set)
                await there.wait()
                for at in range(0, len(block), PIECE if self.slow else len(block)):
                    writer.write(block[at : at + PIECE] if self.slow else block)
                    await writer.drain()
                    await asyncio.sleep(0)
        with suppress(ConnectionError, OSError):
            writer.close()


@asynccontextmanager
async def line_to(port: int) -> AsyncGenerator[Line, None]:
    line = Line(port)
    server = await asyncio.start_server(line.carry, "127.0.0.1", 0)
    line.port = server.sockets[0].getsockname()[1]
    try:
        yield line
    finally:
        server.close()
        line.cut()


@asynccontextmanager
async def page_of_turn(
    folder: Path, *replies: Reply, approval: str = "sandboxed", **flags: Any
) -> AsyncGenerator[tuple[Served, Browsing, Page], None]:
    """A page on which somebody has just asked for something."""
    async with (
        asyncio.timeout(STORY_S),
        serving(folder, Scripted(replies), approval_admin=approval, **flags) as served,
        browsing() as browser,
    ):
        page = await browser.page()
        await page.goto(home(served))
        await say(page, "Do it.")
        yield served, browser, page


IN_VIEW = """(box) => JSON.stringify([...CSS.highlights.get("tail-found")].map((range) => {
  const { top, bottom } = range.getBoundingClientRect(), { top: first, bottom: last } = box.getBoundingClientRect();
  if (top < first || bottom > last) return "out of view";
  return range.startContainer.data.slice(0, range.endOffset + 1).trim().split("\\n").at(-1);
})[0])"""


async def begun(served: Served, turns: int) -> str:
    """A session of so many turns."""
    known: dict[str, str] = {}
    for turn in range(turns):
        events = await served.chat(f"Question {turn}.", **known)
        known["session"] = events[0]["session"]
    return known["session"]


def code_block(language: str, text: str) -> str:
    return f"```{language}\n{text}\n```\n\n"


async def show_answer(page: Page, at: str) -> None:
    await page.goto(at)
    await say(page, "Show me.")
    await expect(page.get_by_text("The end.")).to_be_visible()
