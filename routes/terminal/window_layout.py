"""The lower part of the terminal client's window: its rows, and the completion of what is typed."""

from __future__ import annotations

from collections.abc import Callable, Iterable

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
from prompt_toolkit.utils import get_cwidth
from prompt_toolkit.widgets import SearchToolbar

INPUT_LINES = 12
OFFERED = 6  # completions


class WordCompleter(Completer):
    """Completes the last word of what stands before the cursor."""

    def __init__(self, words: Callable[[str], list[str]]) -> None:
        self._words = words

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        typed = document.text_before_cursor
        last = typed[max(typed.rfind(" "), typed.rfind("\n")) + 1 :]
        return [Completion(word, -len(last)) for word in self._words(typed)]


def layout(
    buffer: Buffer,
    live: Callable[[], AnyFormattedText],
    menu: Callable[[], str],
    prompt: Callable[[], str],
    is_hidden: Callable[[], bool],
) -> Layout:
    """From top to bottom: the live region, the choices of a question, the prompt, and what completes it."""
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
        _text(menu),
        Window(
            control,
            height=Dimension(min=1, max=INPUT_LINES),
            wrap_lines=True,
            dont_extend_height=True,
            get_line_prefix=prefix,
        ),
        search.__pt_container__(),
        CompletionsMenu(max_height=OFFERED),
    ]
    return Layout(HSplit(rows, align=VerticalAlign.TOP), focused_element=control)


def _text(content: Callable[[], AnyFormattedText]) -> ConditionalContainer:
    window = Window(FormattedTextControl(content), dont_extend_height=True, wrap_lines=False)
    return ConditionalContainer(window, Condition(lambda: bool(content())))
