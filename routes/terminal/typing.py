"""Lines that a person types while a run goes on: for the agent, or for the command that runs.

A terminal whose lines are redrawn neither edits nor shows them meanwhile: what is drawn there would be torn. So that is
done here, with the keys that edit a line everywhere. Ctrl-C and the like stay signals.
"""

from __future__ import annotations

import asyncio
import codecs
import os
import signal
import sys
import termios
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from msgspec import Struct

from app.core.events import ApprovalRequired, Notice
from routes.terminal.event_client import Link
from routes.terminal.run_display import Answerer
from routes.terminal.view import CONTROLS, SEQUENCES

HELP = (
    "While a run goes on: words and Enter are a message to the agent, which reads it after what runs now; "
    "/input WORDS types a line into the running command (/input alone: the next line, without showing it); "
    "/stop or Ctrl-\\ stops the command, Ctrl-C the run. At the prompt: /undo restores files, "
    "/document prints a document, Ctrl-D leaves."
)
INPUT, STOP, SHOW_HELP = "/input", "/stop", "/help"
ENTER, BACKSPACE, CLEAR, WORD = "\r\n", "\x7f\b", "\x15", "\x17"
MOST = 4_000  # characters of one line
HIDDEN_PROMPT = "input (not shown): "
HIDDEN_HINT = "The command reads a line without showing it: /input types one."
HELD_BACK = "Nothing was sent, because the command reads a line without showing it. /input types such a line."


class Line:
    """A line being typed. `feed` returns the lines that are complete."""

    def __init__(self) -> None:
        self.text = ""
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def feed(self, keys: bytes) -> list[str]:
        lines = []
        for key in SEQUENCES.sub("", self._decoder.decode(keys)):
            if key in ENTER:
                lines.append(self.text)
                self.text = ""
            elif key in BACKSPACE:
                self.text = self.text[:-1]
            elif key == CLEAR:
                self.text = ""
            elif key == WORD:
                self.text = self.text[: self.text.rstrip().rfind(" ") + 1]
            elif not CONTROLS.match(key):
                self.text = (self.text + key)[:MOST]
        return lines


class Typing:
    """Reads the keyboard of a run. Enter it; `paused()` while a question is put."""

    def __init__(
        self, link: Link, show: Callable[[Notice], None], stop_call: Callable[[], None], *, redraw: bool
    ) -> None:
        self._link = link
        self._redraw = redraw
        self._show = show
        self._stop_call = stop_call
        self._line = Line()
        self._hides = False
        self._modes: list[Any] | None = None  # of the terminal, as they were
        self._sending = set[asyncio.Task[None]]()

    @property
    def shown(self) -> str:
        """The part of a line that has been typed, as it is shown."""
        if self._hides:
            return HIDDEN_PROMPT
        text = self._line.text
        if self._link.hides_input and not text.startswith("/"):
            return f"{HIDDEN_HINT}{' ...' if text else ''}"
        return text and f"> {text}"

    @contextmanager
    def active(self) -> Iterator[None]:
        """Read what is typed while the run goes on; nothing where there is no terminal."""
        if not (sys.stdin.isatty() and sys.stdout.isatty()):
            yield
            return
        self._start()
        asyncio.get_running_loop().add_signal_handler(signal.SIGCONT, self._take_over)
        try:
            yield
        finally:
            asyncio.get_running_loop().remove_signal_handler(signal.SIGCONT)
            self._stop()

    @contextmanager
    def paused(self) -> Iterator[None]:
        was_active = self._modes is not None
        self._stop()
        try:
            yield
        finally:
            if was_active:
                self._start()

    def take_rest(self) -> str:
        """Take the part of a line that has not ended: the next prompt begins with it."""
        rest, self._line.text = ("" if self._hides or self._link.hides_input else self._line.text), ""
        return rest

    async def settle(self, seconds: float) -> None:
        """Let what is being sent arrive."""
        if self._sending:
            await asyncio.wait(self._sending, timeout=seconds)

    def _start(self) -> None:
        self._modes = termios.tcgetattr(sys.stdin)
        self._take_over()
        asyncio.get_running_loop().add_reader(sys.stdin.fileno(), self._read)

    def _take_over(self) -> None:
        if self._redraw and self._modes is not None:
            modes = termios.tcgetattr(sys.stdin)
            modes[3] &= ~(termios.ICANON | termios.ECHO)
            termios.tcsetattr(sys.stdin, termios.TCSANOW, modes)

    def _stop(self) -> None:
        if self._modes is not None:
            asyncio.get_running_loop().remove_reader(sys.stdin.fileno())
            termios.tcsetattr(sys.stdin, termios.TCSADRAIN, self._modes)
            self._modes = None

    def _read(self) -> None:
        for line in self._line.feed(os.read(sys.stdin.fileno(), 4_096)):
            self._take(line)

    def _take(self, line: str) -> None:
        word, _, rest = line.strip().partition(" ")
        if self._hides:
            self._hides = False
            self._send(self._link.type_in(line), "")
        elif word == INPUT and rest:
            self._send(self._link.type_in(line.lstrip()[len(INPUT) + 1 :]), "")
        elif word == INPUT:
            self._hides = True
        elif line.strip() == STOP:
            self._stop_call()
        elif line.strip() == SHOW_HELP:
            self._show(Notice("help", HELP))
        elif word and self._link.hides_input:  # a password is no message to a model
            self._show(Notice("input", HELD_BACK))
        elif word:
            hint = " /input types into the command." if self._link.reading else ""
            self._send(self._link.steer(line), f"Sent to the agent.{hint}")

    def _send(self, request: Any, sent: str) -> None:
        task = asyncio.get_running_loop().create_task(self._report(request, sent))
        self._sending.add(task)
        task.add_done_callback(self._sending.discard)

    async def _report(self, request: Any, sent: str) -> None:
        if message := await request or sent:
            self._show(Notice("input", message))


class PausingAnswerer(Struct, frozen=True):
    """Puts questions at the terminal, which then has the keyboard alone."""

    typing: Typing
    answerer: Answerer

    async def decision(self, wanted: ApprovalRequired) -> Mapping[str, Any] | None:
        with self.typing.paused():
            return await self.answerer.decision(wanted)
