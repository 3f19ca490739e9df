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
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from msgspec import Struct
from prompt_toolkit.application import Application
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.document import Document
from prompt_toolkit.filters import Condition, FilterOrBool, has_completions, is_searching
from prompt_toolkit.formatted_text import ANSI, AnyFormattedText
from prompt_toolkit.input.vt100 import Vt100Input
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.keys import Keys
from prompt_toolkit.search import stop_search
from prompt_toolkit.utils import get_cwidth
from rich.console import Console, RenderableType
from rich.text import Text

from app.core.events import AgentEvent
from routes.terminal.answers import Hooks, Interrupted, Over
from routes.terminal.choosing import drawn, offered
from routes.terminal.history import LONGEST, StoredHistory, history_file
from routes.terminal.keyboard import ESCAPE, ESCAPE_S, Keyboard, Pastes, unread
from routes.terminal.rendering.transcript import THINKING, Transcript
from routes.terminal.screen import print_piece
from routes.terminal.view import View
from routes.terminal.window_layout import Drawing, HeldOutput, WordCompleter, layout
from routes.texts import text

T = TypeVar("T")
PROMPT, STEER = "> ", "» "
REDRAW_S = 0.05  # least time between two drawings
TICK_S = 0.25  # while a run goes on, its time passes
SHARE = 0.2  # of the time, at most, that may go into drawing what is being written
TWICE_S = 0.8  # between two Esc that are one wish
PAUSE_S = 0.5  # without a key, before one answers a question that came while something was being written
SMALLEST = 3  # lines of the live region, however low the window
CALL_LINES = 14  # of the live region, for calls


class _Reading(Struct):
    """A line that is waited for."""

    line: asyncio.Future[str]
    prompt: str
    menu: str = ""
    is_message: bool = False
    choices: Sequence[str] = ()
    filters: bool = False  # what is typed chooses among many, and is no answer
    at: int = 0  # of the choice that Enter takes
    armed_at: float = 0.0  # before that, keys were meant for something else
    settled_at: float = 0.0  # before that, a letter may be the first of a message
    keys: int = 0  # that had been pressed when the question came


class Window:
    """Reads what is typed: for `message` and `read` while they wait, else for `on_line`."""

    edits = True

    def __init__(self, environ: Mapping[str, str]) -> None:
        self.hooks = Hooks()
        self._hidden = False
        self._reading: _Reading | None = None
        self._interrupted_again = False
        self._escaped_at = -TWICE_S
        self._pastes = Pastes()
        self._unprinted: list[RenderableType] = []
        self._run: RunOutput | None = None
        self._pen = Console(
            file=io.StringIO(), force_terminal=True, highlight=False, markup=False, emoji=False, width=80
        )
        output = HeldOutput.from_pty(sys.stdout, os.environ.get("TERM"))
        assert isinstance(output, HeldOutput)  # as it is declared, it would be a Vt100_Output
        self._output = output
        self._output.enable_cpr = False  # a terminal that does not tell where its cursor is would be scolded
        self._input = Vt100Input(sys.stdin)
        self.buffer = Buffer(
            history=StoredHistory(history_file(environ)),
            completer=WordCompleter(lambda typed: self.hooks.completions(typed)),
            complete_while_typing=Condition(lambda: self.buffer.text.startswith("/") or "@" in self.buffer.text),
        )
        self._app: Application[None] = Application(
            layout(self.buffer, self._live, self._menu, self._prompt, self._below, is_hidden=self._is_hidden),
            key_bindings=self._keys(),
            input=self._input,
            output=self._output,
            erase_when_done=True,
            min_redraw_interval=REDRAW_S,
        )
        self._app.ttimeoutlen = ESCAPE_S
        self._app.key_processor.before_key_press += self._count_key
        self._pressed = 0  # keys
        self._app.renderer = Drawing(self._app.renderer.style, output, environ)

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

    async def message(self, draft: str = "") -> str:
        """The next message or command. Raises Interrupted, Over."""
        if draft:
            self.buffer.set_document(Document(draft, len(draft)), bypass_readonly=True)
        return await self._wait(_Reading(asyncio.get_running_loop().create_future(), PROMPT, is_message=True))

    def drop_typed(self) -> None:
        termios.tcflush(sys.stdin, termios.TCIFLUSH)

    async def read(self, prompt: str, menu: str = "", draft: str = "", choices: Sequence[str] = ()) -> str:
        return await self._read(prompt, menu, draft, choices)

    async def pick(self, prompt: str, rows: Sequence[str]) -> int | None:
        return int(await self._read(prompt, choices=rows, filters=True))

    async def _read(
        self, prompt: str, menu: str = "", draft: str = "", choices: Sequence[str] = (), *, filters: bool = False
    ) -> str:
        """An answer. What stood at the prompt before stands there again afterwards."""
        before, line = self.buffer.document, asyncio.get_running_loop().create_future()
        soon = time.monotonic() + PAUSE_S
        self.buffer.set_document(Document(draft, len(draft)), bypass_readonly=True)
        try:
            reading = _Reading(
                line,
                prompt,
                menu,
                choices=choices,
                filters=filters,
                armed_at=soon if before.text else 0.0,
                settled_at=soon,
                keys=self._pressed,
            )
            return await self._wait(reading)
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
        self._interrupted_again, self._run = False, RunOutput(self, Transcript(view, folds=True))
        return self._run

    def hide(self, *, on: bool) -> None:
        """Do not show what is typed."""
        self._hidden = on
        self._app.invalidate()

    @property
    def is_typing(self) -> bool:
        return bool(self.buffer.text)

    @property
    def columns(self) -> int:
        return self._output.get_size().columns

    def redraw(self) -> None:
        self._app.invalidate()

    # Keys

    def _keys(self) -> KeyBindings:
        """Every key of ours: a row has the keys, when they count, and what they do."""
        buffer = self.buffer
        chooses = Condition(lambda: bool(self._reading and self._reading.choices))
        letters = chooses & Condition(lambda: bool(self._reading and not self._reading.filters))
        writes, is_empty = ~is_searching & ~chooses, Condition(lambda: not buffer.text)
        rows: Sequence[tuple[tuple[Keys | str, ...], FilterOrBool, Callable[[KeyPressEvent], object]]] = (
            (("enter",), writes, lambda _: self._enter()),
            (("escape", "enter"), writes, lambda _: buffer.insert_text("\n")),
            (("c-j",), writes, lambda _: buffer.insert_text("\n")),
            ((Keys.BracketedPaste,), writes, lambda event: buffer.insert_text(self._pastes.shown(event.data))),
            (("s-tab",), writes & ~has_completions, lambda _: self.hooks.next_mode()),
            (("up",), chooses, lambda _: self._move(-1)),
            (("down",), chooses, lambda _: self._move(1)),
            (("enter",), chooses, lambda _: self._choose(None)),
            ((Keys.BracketedPaste,), letters, lambda _: None),
            ((Keys.Any,), letters, lambda event: self._choose(event.data)),
            ((ESCAPE,), True, lambda _: self._escape()),
            (("escape", ESCAPE), True, lambda _: self._escape(times=2)),
            (("c-c",), ~is_searching, lambda _: self._interrupt()),
            (("c-d",), is_empty & ~is_searching, lambda _: self._end()),
            (("c-t",), True, lambda _: self.hooks.switch()),
            (("c-o",), True, lambda _: self._unfold()),
            (("c-\\",), True, lambda _: self.hooks.stop_call()),
            (("c-z",), True, lambda event: event.app.suspend_to_background()),
        )
        bound = KeyBindings()
        for keys, when, act in rows:
            bound.add(*keys, filter=when)(act)
        return bound

    def _enter(self) -> None:
        """Send; or begin a new line behind a backslash."""
        if self.buffer.document.text_before_cursor.endswith("\\"):
            self.buffer.delete_before_cursor()
            self.buffer.insert_text("\n")
        else:
            self._take_typed()

    def _move(self, rows: int) -> None:
        if reading := self._reading:
            reading.at = (self._at(reading) + rows) % max(1, len(self._offered(reading)))

    def _offered(self, reading: _Reading) -> list[int]:
        return offered(reading.choices, self.buffer.text if reading.filters else "")

    def _at(self, reading: _Reading) -> int:
        """The place of the choice among those that are offered: there are fewer of them with each letter."""
        return max(0, min(reading.at, len(self._offered(reading)) - 1))

    def _choose(self, letter: str | None) -> None:
        """Answer with the choice of this letter, or with the one that the arrows chose."""
        reading, now = self._reading, time.monotonic()
        if reading is None or reading.line.done():
            return
        if reading.filters:
            if places := self._offered(reading):
                reading.line.set_result(str(places[self._at(reading)]))
            return
        letters = [choice.split()[0] for choice in reading.choices]
        if now < reading.armed_at:  # the person was writing something else
            reading.armed_at = now + PAUSE_S
        elif (chosen := letter or letters[reading.at]) not in ["y", *letters]:  # `y` in every language
            return
        elif letter is None or now >= reading.settled_at:
            reading.line.set_result(chosen)
        elif self._pressed == reading.keys + 1:  # it may begin a message: if more keys follow, it was no answer
            asyncio.get_running_loop().call_later(PAUSE_S, self._settle, reading, chosen, self._pressed)
        else:
            reading.settled_at = now + PAUSE_S

    def _settle(self, reading: _Reading, chosen: str, pressed: int) -> None:
        if reading is self._reading and not reading.line.done() and self._pressed == pressed:
            reading.line.set_result(chosen)

    def _count_key(self, _processor: object) -> None:
        self._pressed += 1

    def _escape(self, times: int = 1) -> None:
        """Close what is open above the prompt, go back from a question's text, or stop the run."""
        reading = self._reading
        if self._app.layout.is_searching:
            stop_search()
        elif self.buffer.complete_state:
            self.buffer.cancel_completion()
        elif reading is None:
            self.hooks.stop()
        elif reading.choices:
            self._interrupt()
        elif not reading.is_message and not reading.line.done():
            reading.line.set_result("")
        elif reading.is_message and not self.buffer.text and not reading.line.done():
            before, self._escaped_at = self._escaped_at, time.monotonic()
            if times > 1 or self._escaped_at - before < TWICE_S:
                reading.line.set_result("/rewind")

    def _take_typed(self) -> None:
        typed = self.buffer.text
        whole = self._pastes.whole(typed)
        reading = self._reading
        if (reading is None or reading.is_message) and not self._is_hidden() and len(whole) <= LONGEST:
            self.buffer.history.append_string(whole)
        self.buffer.reset()
        self._pastes.forget()
        if reading is None or reading.line.done():  # several lines may come at once
            self.hooks.line(whole)
        else:
            reading.line.set_result(whole)

    def _interrupt(self) -> None:
        """Ctrl-C: clear what is typed at the prompt; else it is the reader's, or the run's."""
        reading = self._reading
        if reading is None:
            self.hooks.interrupt()
        elif reading.is_message and self.buffer.text:
            self.buffer.reset()
            self._pastes.forget()
        elif not reading.line.done():
            reading.line.set_exception(Interrupted())
        else:  # two keys in one read: the second is for the next prompt
            self._interrupted_again = True

    def _unfold(self) -> None:
        """Ctrl-O: show the last thought that was folded; again, the one before."""
        thought = self._run.folded.pop() if self._run and self._run.folded else text("terminal.thought.none")
        self.print(Text(f"{thought}\n", THINKING))

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
        return self._reading.prompt if self._reading else self.hooks.sign() or STEER

    def _is_hidden(self) -> bool:
        return self._hidden or (self._reading is None and self.hooks.hides(self.buffer.text))

    def _menu(self) -> str:
        reading = self._reading
        if reading is None or not reading.choices:
            return reading.menu if reading else ""
        if reading.filters:
            return drawn(reading.choices, self._offered(reading), self._at(reading), self.columns)
        return "\n".join(f"{'❯' if at == reading.at else ' '} {row.strip()}" for at, row in enumerate(reading.choices))

    def _below(self) -> str:
        """The status line; in a narrow window the folder gives way, then the cost, the context and the model."""
        facts, least = self.hooks.status(), [0, 2, 3, 1]
        while get_cwidth(line := f"  {' · '.join(filter(None, facts))}") > self.columns and least:
            facts[least.pop()] = ""
        return line if any(facts) else ""

    def _live(self) -> AnyFormattedText:
        asked = self._reading is not None
        if self.hooks.working is None or asked:
            return ""
        rows = self._output.get_size().rows - self.buffer.document.line_count - 4
        lines = self._run.lines(max(SMALLEST, rows)) if self._run else []
        return ANSI("\n".join([*lines, f"\x1b[2m{self.hooks.working()}\x1b[0m"]))

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(TICK_S)
            if self.hooks.working or (self._reading and self._reading.filters):  # previews come later
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
        with self._output.held():
            self._app.renderer.erase(leave_alternate_screen=False)
            self._output.write_raw(written)
            self._app.renderer.render(self._app, self._app.layout)


class RunOutput:
    """A run in the window: finished lines are printed, what is being written stands in the live region."""

    def __init__(self, window: Window, transcript: Transcript) -> None:
        self._window = window
        self._transcript = transcript
        self.folded = transcript.folded
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
