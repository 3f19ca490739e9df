"""A terminal that cannot move its cursor (TERM=dumb, an editor's shell): it edits its lines itself."""

from __future__ import annotations

import asyncio
import codecs
import os
import signal
import sys
import termios
from collections.abc import Coroutine, Sequence
from typing import Any, TypeVar

from rich.console import Console, RenderableType

from routes.terminal.answers import Hooks, Interrupted, Over
from routes.terminal.choosing import numbered, numbered_choice
from routes.terminal.run_display import Output
from routes.terminal.screen import Screen, print_piece
from routes.terminal.view import View

T = TypeVar("T")
PROMPT = "> "


class DumbTerminal:
    """Reads whole lines: for `message` and `read` while they wait, else for `on_line`."""

    edits = is_typing = False

    def __init__(self) -> None:
        self.hooks = Hooks()
        self._console = Console(highlight=False, markup=False, emoji=False)
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._typed = ""
        self._waiting: asyncio.Future[str] | None = None
        self._is_over = False
        self._modes: list[Any] | None = None

    async def within(self, body: Coroutine[Any, Any, T]) -> T:
        """Run `body` while the keyboard is read."""
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGINT, self._interrupt)
        loop.add_signal_handler(signal.SIGQUIT, lambda: self.hooks.stop_call())
        loop.add_reader(sys.stdin.fileno(), self._read)
        try:
            return await body
        finally:
            self.hide(on=False)
            loop.remove_reader(sys.stdin.fileno())
            for number in (signal.SIGINT, signal.SIGQUIT):
                loop.remove_signal_handler(number)

    async def message(self, draft: str = "") -> str:
        return await self._line(PROMPT)

    def drop_typed(self) -> None:
        termios.tcflush(sys.stdin, termios.TCIFLUSH)

    async def read(self, prompt: str, menu: str = "", draft: str = "", choices: Sequence[str] = ()) -> str:
        menu = "\n".join(choices) or menu
        return await self._line(f"{menu}\n{prompt}" if menu else prompt)

    async def pick(self, prompt: str, rows: Sequence[str]) -> int | None:
        return numbered_choice(rows, await self.read(prompt, numbered(rows)))

    def print(self, *pieces: RenderableType) -> None:
        for piece in pieces:
            print_piece(self._console, piece)

    def output(self, view: View) -> Output:
        return Screen(self._console, view)

    def hide(self, *, on: bool) -> None:
        """Do not show what is typed."""
        if on and self._modes is None:
            self._modes = termios.tcgetattr(sys.stdin)
            modes = termios.tcgetattr(sys.stdin)
            modes[3] &= ~termios.ECHO
            termios.tcsetattr(sys.stdin, termios.TCSANOW, modes)
        elif not on and self._modes is not None:
            termios.tcsetattr(sys.stdin, termios.TCSANOW, self._modes)
            self._modes = None

    async def _line(self, prompt: str) -> str:
        if self._is_over:
            raise Over
        print(prompt, end="", flush=True)
        self._waiting = asyncio.get_running_loop().create_future()
        try:
            return await self._waiting
        finally:
            self._waiting = None

    def _interrupt(self) -> None:
        if self._waiting and not self._waiting.done():
            print()
            self._waiting.set_exception(Interrupted())
        else:
            self.hooks.interrupt()

    def _read(self) -> None:
        read = os.read(sys.stdin.fileno(), 65_536)
        if not read:
            asyncio.get_running_loop().remove_reader(sys.stdin.fileno())
            self._is_over = True
            if self._waiting and not self._waiting.done():
                print()
                self._waiting.set_exception(Over())
            return
        *lines, self._typed = (self._typed + self._decoder.decode(read)).split("\n")
        for line in lines:
            if self._waiting and not self._waiting.done():
                self._waiting.set_result(line)
            else:
                self.hooks.line(line)
