"""The lower part of the terminal client's window: its rows, and the completion of what is typed."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager
from typing import Any

from prompt_toolkit.application import Application
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.filters import Condition
from prompt_toolkit.formatted_text import AnyFormattedText
from prompt_toolkit.layout import (
    BufferControl,
    ConditionalContainer,
    Container,
    Dimension,
    FormattedTextControl,
    HSplit,
    Layout,
    VerticalAlign,
    Window,
)
from prompt_toolkit.layout.menus import CompletionsMenu
from prompt_toolkit.layout.processors import ConditionalProcessor, PasswordProcessor
from prompt_toolkit.output.vt100 import Vt100_Output
from prompt_toolkit.renderer import Renderer
from prompt_toolkit.styles import BaseStyle
from prompt_toolkit.utils import get_cwidth
from prompt_toolkit.widgets import SearchToolbar

INPUT_LINES = 12
OFFERED = 6  # completions


class WordCompleter(Completer):
    """Completes the last word of what stands before the cursor, and says what each completion is for."""

    def __init__(self, words: Callable[[str], list[tuple[str, str]]]) -> None:
        self._words = words

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        typed = document.text_before_cursor
        last = typed[max(typed.rfind(" "), typed.rfind("\n")) + 1 :]
        return [Completion(word, -len(last), display_meta=about) for word, about in self._words(typed)]


class HeldOutput(Vt100_Output):
    """Writes when it is let go, so that several drawings are one."""

    _held = False

    @contextmanager
    def held(self) -> Generator[None]:
        before, self._held = self._held, True
        try:
            yield
        finally:
            self._held = before
            self.flush()

    def erase_down(self) -> None:
        self.write_raw("\x1b[K\x1b[C\x1b[J\x1b[D")  # `J` at the first column: tmux puts the window into the scrollback

    def flush(self) -> None:
        if not self._held:
            super().flush()


class Drawing(Renderer):
    """Erases what it drew also where the window has become narrower since, and the terminal has wrapped it."""

    def __init__(self, style: BaseStyle, output: HeldOutput, environ: Mapping[str, str]) -> None:
        super().__init__(style, output)
        self._held = output.held
        cuts = environ.get("TERM", "").startswith(("linux", "rxvt", "screen", "vt")) and "TMUX" not in environ
        self._wraps = not cuts and "XTERM_VERSION" not in environ  # as nearly all do
        # tmux wraps a row as long as it ever was, until all of it is erased: there each drawing is a whole one.
        self._whole = "TMUX" in environ

    def erase(self, leave_alternate_screen: bool = True) -> None:
        self.output.cursor_up(self._added())
        super().erase(leave_alternate_screen)

    def render(self, app: Application[Any], layout: Layout, is_done: bool = False) -> None:
        with self._held():
            if self._added() or (self._whole and self._last_screen):  # the first: the signal has not arrived yet
                self.erase(leave_alternate_screen=False)
            super().render(app, layout, is_done)

    def _added(self) -> int:
        """The rows above the cursor that wrapping has added."""
        columns, screen, at = self.output.get_size().columns, self._last_screen, self._cursor_pos
        if not (self._wraps and screen and self._last_size and columns < self._last_size.columns):
            return 0
        rows = [screen.data_buffer[y].items() for y in range(at.y)]
        ends = (max((x for x, cell in row if cell.char != " "), default=0) for row in rows)
        return sum(end // columns for end in ends) + at.x // columns


def layout(
    buffer: Buffer,
    live: Callable[[], AnyFormattedText],
    menu: Callable[[], str],
    prompt: Callable[[], str],
    below: Callable[[], str],
    *,
    is_hidden: Callable[[], bool],
) -> Layout:
    """From top to bottom: the live region, the choices of a question, the prompt, what completes it, and the status."""
    search = SearchToolbar()
    control = BufferControl(
        buffer,
        input_processors=[ConditionalProcessor(PasswordProcessor(), Condition(is_hidden))],
        search_buffer_control=search.control,
        preview_search=True,
    )

    def prefix(line: int, wrapped: int) -> AnyFormattedText:
        return [("bold", prompt())] if line == wrapped == 0 else " " * min(2, get_cwidth(prompt()))

    rows: list[Container] = [
        _text(live),
        _text(menu, wraps=True),
        Window(
            control,
            height=Dimension(min=1, max=INPUT_LINES),
            wrap_lines=True,
            dont_extend_height=True,
            get_line_prefix=prefix,
        ),
        search.__pt_container__(),
        CompletionsMenu(max_height=OFFERED),
        _text(below, "fg:ansibrightblack"),
    ]
    return Layout(HSplit(rows, align=VerticalAlign.TOP), focused_element=control)


def _text(content: Callable[[], AnyFormattedText], style: str = "", *, wraps: bool = False) -> ConditionalContainer:
    window = Window(FormattedTextControl(content), dont_extend_height=True, wrap_lines=wraps, style=style)
    return ConditionalContainer(window, Condition(lambda: bool(content())))
