"""A terminal for tests of commands: what is printed is kept, and answers are given in advance."""

from __future__ import annotations

import io
from collections import deque
from collections.abc import Coroutine, Sequence
from typing import Any, TypeVar

import httpx2
from rich.console import Console, RenderableType
from rich.text import Text

from routes.terminal.answers import Hooks, Over
from routes.terminal.choosing import numbered, numbered_choice
from routes.terminal.event_client import Choices
from routes.terminal.run_display import Output
from routes.terminal.screen import Screen, print_piece
from routes.terminal.talk import Talk
from routes.terminal.view import View

T = TypeVar("T")


class Paper:
    """`lines` are typed, one after the other; then the person leaves."""

    edits = True
    is_typing = False

    def __init__(self, *lines: str) -> None:
        self.hooks = Hooks()
        self._lines = deque(lines)
        self._console = Console(file=io.StringIO(), width=100, markup=False, highlight=False, emoji=False)

    @property
    def shown(self) -> str:
        return str(getattr(self._console.file, "getvalue")())  # noqa: B009

    async def within(self, body: Coroutine[Any, Any, T]) -> T:
        return await body

    async def message(self, draft: str = "") -> str:
        if not self._lines:
            raise Over
        return self._lines.popleft()

    def drop_typed(self) -> None:
        """Nothing is typed too early."""

    async def read(self, prompt: str, menu: str = "", draft: str = "", choices: Sequence[str] = ()) -> str:
        return await self.message()

    async def pick(self, prompt: str, rows: Sequence[str]) -> int | None:
        self.print(Text(numbered(rows) + "\n"))
        return numbered_choice(rows, await self.message())

    def print(self, *pieces: RenderableType) -> None:
        for piece in pieces:
            print_piece(self._console, piece)

    def output(self, view: View) -> Output:
        return Screen(self._console, view)

    def hide(self, *, on: bool) -> None:
        """Nothing is drawn."""


async def conversed(client: httpx2.AsyncClient, *lines: str, choices: Choices | None = None) -> tuple[Talk, str]:
    """A conversation in which these lines were typed, and what was printed."""
    paper = Paper(*lines)
    talk = Talk(paper, client, choices or Choices(), width=lambda: 100, window=lambda: None)
    await talk.converse()
    return talk, paper.shown
