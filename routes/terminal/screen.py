"""A run on a console that is only written to: a pipe, a dumb terminal, or a terminal without a keyboard."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from rich.console import Console, RenderableType
from rich.text import Text

from app.core.events import AgentEvent
from routes.terminal.rendering.transcript import Transcript
from routes.terminal.view import View


class PipeConsole(Console):
    """A console whose reader may leave (`| head -1`); rich would exit with 1."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


class Screen:
    """One console and what it shows. Use `close()` at the end of a run, whatever ended it."""

    def __init__(
        self, console: Console, view: View, *, markdown: bool = False, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._console = console
        self._view = view
        self._transcript = Transcript(view) if markdown else None
        self._clock = clock

    def show(self, event: AgentEvent) -> None:
        shown = self._transcript or self._view
        self._print(shown.apply(event, self._clock()))

    def close(self) -> None:
        if self._transcript:
            self._print(self._transcript.finish())

    def _print(self, pieces: Iterable[RenderableType]) -> None:
        for piece in pieces:
            print_piece(self._console, piece)


def print_piece(console: Console, piece: RenderableType) -> None:
    # soft_wrap: the terminal wraps, so a line that is copied or piped stays one line.
    console.print(piece, end="", soft_wrap=isinstance(piece, Text))
