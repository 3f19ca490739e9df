"""The terminal of a conversation: the transcript scrolls by, and below it stand what changes and the prompt.

The lower part is a prompt_toolkit application that is drawn in place. Text for the transcript is printed above it: the
lower part is erased, the text written and the part drawn again in one write, so nothing flickers. What has been
printed is the terminal's; it stays when the program leaves.
"""

from __future__ import annotations

import asyncio
import io
import os
import signal
import sys
import termios
import time
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from typing import Any, TypeVar

from msgspec import Struct
from prompt_toolkit.application import Application
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.document import Document
from prompt_toolkit.filters import Condition, is_searching
from prompt_toolkit.formatted_text import ANSI, AnyFormattedText
from prompt_toolkit.input.vt100 import Vt100Input
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.keys import Keys
from prompt_toolkit.output.vt100 import Vt100_Output
from rich.console import Console, RenderableType
from rich.text import Text

from app.core.events import AgentEvent
from routes.terminal.answers import Interrupted, Over
from routes.terminal.history import LONGEST, StoredHistory, history_file
from routes.terminal.keyboard import Keyboard, Pastes, unread
from routes.terminal.rendering.transcript import Transcript
from routes.terminal.screen import print_piece
from routes.terminal.view import View
from routes.terminal.window_layout import Drawing, WordCompleter, layout, wraps_again
from routes.texts import text

T = TypeVar("T")
PROMPT, STEER = "> ", "» "
REDRAW_S = 0.05  # least time between two drawings
TICK_S = 0.25  # while a run goes on, its time passes
SHARE = 0.2  # of the time, at most, that may go into drawing what is being written
SMALLEST = 3  # lines of the live region, however low the window
CALL_LINES = 14  # of the live region, for calls


class _HeldOutput(Vt100_Output):
    """Writes when it is let go, so that several drawings are one."""

    held = False

    def erase_down(self) -> None:
        self.write_raw(
            "\x1b[K\x1b[C\x1b[J\x1b[D"
        )  # `J` at the first column may put the window into the scrollback (tmux)

    def flush(self) -> None:
        if not self.held:
            super().flush()


class _Reading(Struct):
    """A line that is waited for."""

    line: asyncio.Future[str]
    prompt: str
    menu: str = ""
    is_message: bool = False


class Window:
    """Reads what is typed: for `message` and `read` while they wait, else for `on_line`."""

    edits = True

    def __init__(self, environ: Mapping[str, str]) -> None:
        self.on_line: Callable[[str], None] = lambda _line: None
        self.on_interrupt: Callable[[], None] = lambda: None
        self.on_stop_call: Callable[[], None] = lambda: None
        self.completions: Callable[[str], list[str]] = lambda _text: []
        self.hides: Callable[[str], bool] = lambda _typed: False  # what is being typed is not shown
        self.sign: Callable[[], str] = str
        self.on_switch: Callable[[], None] = lambda: None
        self._hidden = False
        self._status: Callable[[], str] | None = None
        self._reading: _Reading | None = None
        self._interrupted_again = False
        self._pastes = Pastes()
        self._unprinted: list[RenderableType] = []
        self._run: RunOutput | None = None
        self._pen = Console(
            file=io.StringIO(), force_terminal=True, highlight=False, markup=False, emoji=False, width=80
        )
        output = _HeldOutput.from_pty(sys.stdout, os.environ.get("TERM"))
        assert isinstance(output, _HeldOutput)  # as it is declared, it would be a Vt100_Output
        self._output = output
        self._output.enable_cpr = False  # a terminal that does not tell where its cursor is would be scolded
        self._input = Vt100Input(sys.stdin)
        self.buffer = Buffer(
            history=StoredHistory(history_file(environ)),
            completer=WordCompleter(lambda typed: self.completions(typed)),
            complete_while_typing=Condition(lambda: self.buffer.text.startswith("/") or "@" in self.buffer.text),
        )
        self._app: Application[None] = Application(
            layout(self.buffer, self._live, self._menu, self._prompt, self._is_hidden),
            key_bindings=self._keys(),
            input=self._input,
            output=self._output,
            erase_when_done=True,
            min_redraw_interval=REDRAW_S,
        )
        self._app.renderer = Drawing(self._app.renderer.style, output, wraps=wraps_again(environ))

    async def within(self, body: Coroutine[Any, Any, T]) -> T:
        """Run `body` while the prompt is there. The terminal is left as it was, however that ends. Raises Over."""
        loop = asyncio.get_running_loop()
        self._input.vt100_parser = Keyboard(self._input.vt100_parser.feed_key_callback, unread(sys.stdin.fileno()))
        app = loop.create_task(self._app.run_async(handle_sigint=False, set_exception_handler=False))
        loop.add_signal_handler(signal.SIGINT, self._interrupt)
        talk = loop.create_task(body)
        ticking = loop.create_task(self._tick())
        try:
            await asyncio.wait((app, talk), return_when=asyncio.FIRST_COMPLETED)
            if not talk.done():  # the terminal is gone
                talk.cancel()
                await asyncio.wait((talk,))
                raise Over
            return talk.result()
        finally:
            ticking.cancel()
            talk.cancel()
            await asyncio.gather(talk, return_exceptions=True)
            self._flush()
            if self._app.is_running and not app.done():
                self._app.exit()
            with suppress(EOFError):
                await app
            loop.remove_signal_handler(signal.SIGINT)

    async def message(self) -> str:
        """The next message or command. Raises Interrupted, Over."""
        return await self._wait(_Reading(asyncio.get_running_loop().create_future(), PROMPT, is_message=True))

    def drop_typed(self) -> None:
        termios.tcflush(sys.stdin, termios.TCIFLUSH)

    async def read(self, prompt: str, menu: str = "", draft: str = "") -> str:
        """An answer. What stood at the prompt before stands there again afterwards."""
        before = self.buffer.document
        self.buffer.set_document(Document(draft, len(draft)), bypass_readonly=True)
        try:
            return await self._wait(_Reading(asyncio.get_running_loop().create_future(), prompt, menu))
        finally:
            self.buffer.set_document(before, bypass_readonly=True)

    async def _wait(self, reading: _Reading) -> str:
        if self._interrupted_again:
            self._interrupted_again = False
            raise Interrupted
        self._reading = reading
        self._app.invalidate()
        try:
            return await reading.line
        finally:
            self._reading = None
            self._app.invalidate()

    def print(self, *pieces: RenderableType) -> None:
        """Print above the prompt, soon and in order."""
        if not self._unprinted:
            asyncio.get_running_loop().call_soon(self._flush)
        self._unprinted.extend(pieces)

    def output(self, view: View) -> RunOutput:
        self._run = RunOutput(self, Transcript(view))
        return self._run

    def run_begins(self, status: Callable[[], str]) -> None:
        self._interrupted_again = False
        self._status = status
        self._app.invalidate()

    def run_ends(self) -> None:
        self._run = self._status = None
        self._app.invalidate()

    def hide(self, *, on: bool) -> None:
        """Do not show what is typed."""
        self._hidden = on
        self._app.invalidate()

    @property
    def columns(self) -> int:
        return self._output.get_size().columns

    def redraw(self) -> None:
        self._app.invalidate()

    # Keys

    def _keys(self) -> KeyBindings:
        """Enter sends; Alt-Enter, Ctrl-J and a backslash before Enter begin a new line."""
        bound = KeyBindings()
        buffer = self.buffer
        is_empty = Condition(lambda: not buffer.text)

        @bound.add("enter", filter=~is_searching)
        def _enter(_event: KeyPressEvent) -> None:
            if buffer.document.text_before_cursor.endswith("\\"):
                buffer.delete_before_cursor()
                buffer.insert_text("\n")
            else:
                self._take_typed()

        @bound.add("escape", "enter", filter=~is_searching)
        @bound.add("c-j", filter=~is_searching)
        def _new_line(_event: KeyPressEvent) -> None:
            buffer.insert_text("\n")

        @bound.add(Keys.BracketedPaste)
        def _paste(event: KeyPressEvent) -> None:
            buffer.insert_text(self._pastes.shown(event.data))

        @bound.add("c-c", filter=~is_searching)
        def _interrupt(_event: KeyPressEvent) -> None:
            self._interrupt()

        @bound.add("c-d", filter=is_empty & ~is_searching)
        def _end(_event: KeyPressEvent) -> None:
            self._end()

        @bound.add("c-\\")
        def _stop(_event: KeyPressEvent) -> None:
            self.on_stop_call()

        @bound.add("c-t")
        def _switch(_event: KeyPressEvent) -> None:
            self.on_switch()

        @bound.add("c-z")
        def _suspend(event: KeyPressEvent) -> None:
            event.app.suspend_to_background()

        return bound

    def _take_typed(self) -> None:
        typed = self.buffer.text
        whole = self._pastes.whole(typed)
        reading = self._reading
        if (reading is None or reading.is_message) and not self._is_hidden() and len(whole) <= LONGEST:
            self.buffer.history.append_string(whole)
        self.buffer.reset()
        self._pastes.forget()
        if reading is None or reading.line.done():  # several lines may come at once
            self.on_line(whole)
        else:
            reading.line.set_result(whole)

    def _interrupt(self) -> None:
        """Ctrl-C: clear what is typed at the prompt; else it is the reader's, or the run's."""
        reading = self._reading
        if reading is None:
            self.on_interrupt()
        elif reading.is_message and self.buffer.text:
            self.buffer.reset()
            self._pastes.forget()
        elif not reading.line.done():
            reading.line.set_exception(Interrupted())
        else:  # two keys in one read: the second is for the next prompt
            self._interrupted_again = True

    def _end(self) -> None:
        """Ctrl-D on an empty line."""
        if self._reading is None:
            self.print(Text(f"! {text('terminal.end_while_running')}\n", "yellow"))
        elif not self._reading.line.done():
            self._reading.line.set_exception(Over())

    # Drawing

    def _prompt(self) -> str:
        if self._hidden:
            return text("terminal.input.prompt")
        return self._reading.prompt if self._reading else self.sign() or STEER

    def _is_hidden(self) -> bool:
        return self._hidden or (self._reading is None and self.hides(self.buffer.text))

    def _menu(self) -> str:
        return self._reading.menu if self._reading else ""

    def _live(self) -> AnyFormattedText:
        asked = self._reading is not None
        if self._status is None or asked:
            return ""
        rows = self._output.get_size().rows - self.buffer.document.line_count - 3
        lines = self._run.lines(max(SMALLEST, rows)) if self._run else []
        return ANSI("\n".join([*lines, f"\x1b[2m{self._status()}\x1b[0m"]))

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(TICK_S)
            if self._status:
                self._app.invalidate()

    def draw(self, *pieces: RenderableType) -> str:
        """The pieces as text with colours, as wide as the window is now."""
        file = self._pen.file = io.StringIO()
        self._pen.width = self.columns
        for piece in pieces:
            print_piece(self._pen, piece)
        return file.getvalue()

    def _flush(self) -> None:
        pieces, self._unprinted = self._unprinted, []
        if not pieces:
            return
        written = self.draw(*pieces)
        if not self._app.is_running:
            self._output.write_raw(written)
            self._output.flush()
            return
        self._output.held = True
        try:
            self._app.renderer.erase(leave_alternate_screen=False)
            self._output.write_raw(written)
            self._app.renderer.render(self._app, self._app.layout)
        finally:
            self._output.held = False
            self._output.flush()


class RunOutput:
    """A run in the window: finished lines are printed, what is being written stands in the live region."""

    def __init__(self, window: Window, transcript: Transcript) -> None:
        self._window = window
        self._transcript = transcript
        self._written: list[str] = []
        self._drawn = (0, 0, 0)
        self._next = 0.0

    def show(self, event: AgentEvent) -> None:
        if pieces := self._transcript.apply(event, time.monotonic()):
            self._written = []
            self._drawn, self._next = (0, 0, 0), 0.0
            self._window.print(*pieces)
        self._window.redraw()

    def close(self) -> None:
        if pieces := self._transcript.finish():
            self._window.print(*pieces)
        self._written = []

    def lines(self, height: int) -> list[str]:
        """The live region: the end of what is being written, and the running calls."""
        view = self._transcript.view
        calls: list[str] = []
        if view.busy:
            most = max(SMALLEST, min(CALL_LINES, height // 2))  # room to be wrapped in a narrower window
            calls = self._window.draw(view.live(time.monotonic(), most)).splitlines()[:most]
        room = max(1, height - len(calls))
        return [*self._writing(room), *calls]

    def _writing(self, room: int) -> list[str]:
        now = time.monotonic()
        wanted = (self._transcript.changed, room, self._window.columns)
        if wanted != self._drawn and now >= self._next:
            writing = self._transcript.writing(room)
            self._written = self._window.draw(writing).splitlines()[-room:] if writing else []
            self._drawn = wanted
            ended = time.monotonic()
            self._next = ended + (ended - now) / SHARE
        return self._written[-room:]
