"""Puts a View on a console: prints the transcript, and redraws running calls in place where the console can."""

from __future__ import annotations

import time
from collections.abc import Callable

from rich.console import Console
from rich.live import Live

from app.core.events import AgentEvent
from routes.terminal.view import View

REDRAWS_PER_SECOND = 5


class Screen:
    """One console and what it shows. Use `close()` at the end of a run, whatever ended it."""

    def __init__(
        self, console: Console, view: View, *, redraw: bool, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.typed: Callable[[], str] = str  # what stands on the line below running calls
        self._console = console
        self._view = view
        self._redraw = redraw
        self._clock = clock
        self._live: Live | None = None

    def show(self, event: AgentEvent) -> None:
        pieces = self._view.apply(event, self._clock())
        if pieces or not self._view.busy:
            self.close()
        for piece in pieces:
            # soft_wrap: the terminal wraps, so a line that is copied or piped stays one line.
            self._console.print(piece, end="", soft_wrap=True)
        # A redraw erases its lines whole: it must not begin in the middle of one.
        if self._redraw and self._view.busy and self._view.at_line_start and not self._live:
            self._live = self._started()

    def close(self) -> None:
        """Take the live region away; what was printed stays."""
        if self._live:
            self._live.stop()
            self._live = None

    def _started(self) -> Live:
        live = Live(
            console=self._console,
            get_renderable=lambda: self._view.live(self._clock(), self._console.height, self.typed()),
            refresh_per_second=REDRAWS_PER_SECOND,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        live.start(refresh=True)
        return live
