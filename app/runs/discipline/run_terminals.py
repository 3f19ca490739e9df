"""Terminals of a run's commands: the readers of the run, and the window that a command gets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from msgspec import Struct
from pydantic import Field

from app.core.strict_model import StrictModel
from tools.base.screen import Window

TerminalUse = Literal["auto", "on", "off"]


class TerminalSize(StrictModel):
    """The size of the window in which a client shows what commands print, and types into them."""

    columns: int = Field(ge=20, le=400)
    rows: int = Field(ge=5, le=200)

    @property
    def window(self) -> Window:
        return Window(self.rows, self.columns)


class Audience(Struct):
    """The open streams of one run's events: entered by each. `is_gone`: there were some, and there are none.

    Before the first one it is not gone: the client that has started a run may take a moment to follow it.
    """

    was_there: bool = False
    _streams: int = 0

    @property
    def is_gone(self) -> bool:
        return self.was_there and not self._streams

    def __enter__(self) -> None:
        self.was_there = True
        self._streams += 1

    def __exit__(self, *_: object) -> None:
        self._streams -= 1


class RunTerminals(Struct, frozen=True):
    """Decides, as a command begins, if it gets a terminal.

    With `auto`, it does if the client of the run shows terminals, of the size `shown`, and has not left: else a program
    that asks would wait for an answer that never comes.
    """

    use: TerminalUse = "off"
    shown: TerminalSize | None = None
    is_left: Callable[[str], bool] = lambda _: False  # that all readers of a run have left it

    @property
    def usual(self) -> Window | None:
        """The window of the terminals that commands of the run may get; None if they get none."""
        if self.use == "off" or (self.use == "auto" and self.shown is None):
            return None
        return self.shown.window if self.shown else Window()

    def window(self, run: str) -> Window | None:
        """The window of a command that begins now."""
        return None if self.use == "auto" and self.is_left(run) else self.usual
