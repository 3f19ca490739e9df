"""A terminal for tests: a program on a pseudo terminal of its own, and what its window shows."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
import termios
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pyte

from tests import ROOT
from tests.support.server.dragoman_process import DragomanProcess, started_on

STATUS = re.compile(r"\n  [^\n]*(?:sandboxed|auto|plan|ask|deny)$")


class Terminal:
    """What the program wrote, as its window shows it. Use `terminal` to make one."""

    def __init__(self, process: DragomanProcess, fd: int, columns: int, lines: int) -> None:
        self.process = process
        self._fd = fd
        self._window = pyte.Screen(columns, lines)
        self._stream = pyte.ByteStream(self._window)
        self._news = asyncio.Event()

    @property
    def shown(self) -> str:
        return "\n".join(line.rstrip() for line in self._window.display).rstrip()

    @property
    def modes(self) -> list[Any]:
        """How the terminal treats what is typed: whether lines are edited and echoed by it."""
        return termios.tcgetattr(self._fd)

    def press(self, keys: str) -> None:
        os.write(self._fd, keys.encode())

    async def press_until(self, keys: str, text: str) -> str:
        """Press keys, and return the window once it shows the text once more: what is typed earlier may be lost."""
        before = self.shown.count(text)
        self.press(keys)
        return await self._once(lambda: self.shown.count(text) > before)

    def resize(self, columns: int, lines: int, *, wraps: bool = True) -> None:
        """`wraps`: as most terminals do, wrap the rows that are wider than the window now; else they are cut."""
        termios.tcsetwinsize(self._fd, (lines, columns))
        rows = _wrapped(self._window, columns) if wraps else None
        self._window.resize(lines, columns)
        if rows is not None:
            shown, cursor = rows
            above = max(0, len(shown) - lines)  # scrolled out of the window
            self._window.buffer.clear()
            for at, row in enumerate(shown[above:]):
                self._window.buffer[at].update(enumerate(row))
            self._window.cursor.y, self._window.cursor.x = max(0, cursor[0] - above), cursor[1]
            self._window.dirty.update(range(lines))
        self.process.send_signal(signal.SIGWINCH)

    async def until(self, text: str) -> str:
        """The window once it shows this text. The test bounds the wait."""
        return await self._once(lambda: text in self.shown)

    async def ends_with(self, text: str) -> str:
        """The window once this is what it shows last, above the status line."""
        return await self._once(lambda: STATUS.sub("", self.shown).endswith(text))

    async def until_holds(self, holds: Callable[[str], bool]) -> str:
        """The window once this holds of it."""
        return await self._once(lambda: holds(self.shown))

    async def news(self) -> None:
        """Wait until something more is written."""
        self._news.clear()
        await self._news.wait()

    async def _once(self, holds: Callable[[], bool]) -> str:
        try:
            while not holds():
                await self.news()
        except asyncio.CancelledError:
            print(self.shown)  # for whoever wonders why the test waited in vain
            raise
        return self.shown

    def read(self) -> None:
        try:
            written = os.read(self._fd, 65_536)
        except OSError:  # the program's side is closed
            written = b""
        if not written:
            asyncio.get_running_loop().remove_reader(self._fd)
        self._stream.feed(written)
        self._news.set()


def _wrapped(window: pyte.Screen, columns: int) -> tuple[list[list[pyte.screens.Char]], tuple[int, int]]:
    """The rows of the window wrapped to so many columns, down to the last that is filled; and where the cursor is."""
    rows = list[list[pyte.screens.Char]]()
    cursor = (0, 0)
    for at in range(window.lines):
        cells = [window.buffer[at][x] for x in range(window.columns)]
        while cells and cells[-1].data == " ":
            cells.pop()
        if at == window.cursor.y:
            cursor = (len(rows) + window.cursor.x // columns, window.cursor.x % columns)
        rows += [cells[x : x + columns] for x in range(0, max(1, len(cells)), columns)]
    while len(rows) > cursor[0] + 1 and not rows[-1]:
        rows.pop()
    return rows, cursor


@asynccontextmanager
async def terminal(
    *arguments: str,
    columns: int = 80,
    lines: int = 60,
    term: str = "xterm-256color",
    home: Path,
    variables: dict[str, str] | None = None,
) -> AsyncGenerator[Terminal, None]:
    """`dragoman` with these arguments, and variables of its environment, in a window of this size."""
    ours, theirs = os.openpty()
    termios.tcsetwinsize(ours, (lines, columns))
    loop = asyncio.get_running_loop()
    try:
        environ = environment(home) | {"TERM": term} | (variables or {})
        async with started_on(theirs, *arguments, environ=environ) as process:
            os.close(theirs)
            made = Terminal(process, ours, columns, lines)
            loop.add_reader(ours, made.read)
            try:
                yield made
            finally:
                loop.remove_reader(ours)
    finally:
        os.close(ours)  # also when the test waited in vain


async def piped(*arguments: str, home: Path) -> asyncio.subprocess.Process:
    """`dragoman` with these arguments and no terminal at all."""
    pipe = asyncio.subprocess.PIPE
    command: Sequence[str] = (sys.executable, "-m", "routes", *arguments)
    return await asyncio.create_subprocess_exec(
        *command, stdin=asyncio.subprocess.DEVNULL, stdout=pipe, stderr=pipe, cwd=ROOT, env=environment(home)
    )


def environment(home: Path) -> dict[str, str]:
    settings = {"DRAGOMAN_GENERATED_TITLES": "never"}  # the tests' models have an answer for each request of theirs
    return {"PATH": os.environ["PATH"], "HOME": str(home), "LANG": "C.UTF-8"} | settings
