"""The view of a run in a terminal: events in, styled text and a live region out. Pure: no I/O, no clock.

Everything that a model or a tool wrote passes `printable`: an escape sequence can move the cursor, set the clipboard
or answer a question in the user's name.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from typing import Any, get_args

from msgspec import DecodeError, Struct, ValidationError
from msgspec.json import Decoder
from msgspec.structs import replace
from rich.console import Group, RenderableType
from rich.text import Text

from app.core.document_events import DocumentChanged, DocumentFinished, DocumentSuggested
from app.core.events import (
    AgentEvent,
    ApprovalRequired,
    ApprovalResolved,
    FileChanged,
    ImageReturned,
    MessageAdded,
    Notice,
    PlanUpdated,
    ReasoningDelta,
    RunFailed,
    RunFinished,
    TextDelta,
    TextReclassified,
    ToolDelta,
    ToolFinished,
    ToolHanded,
    ToolProgress,
    ToolRejected,
    ToolStarted,
)
from app.core.helper_events import HelperFinished, HelperStarted
from app.core.label_events import LabelsAdded
from routes.terminal.approval_text import answer, question
from routes.texts import text
from tools.base.patterns import lazy_pattern

THOUGHT = text("terminal.thought")  # what is printed cannot be taken back
MARGIN = "  │ "  # of what a command prints
HEAD_LINES, TAIL_LINES, LINE_LENGTH = 6, 12, 400
WEB_SEARCH = "web_search"
READERS: dict[str, Decoder[AgentEvent]] = {kind.type: Decoder(kind) for kind in get_args(AgentEvent)}

# CSI and OSC-like sequences whole, so that no `[31m` stays behind; what is left of others falls to CONTROLS.
SEQUENCES = lazy_pattern(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]|\x1b[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b[()][0-9A-Za-z]"
)
SEARCH_RESULT = lazy_pattern(r"^\d+\. [^\n]+\nhttps?://", re.MULTILINE)
LONE_SURROGATE = lazy_pattern(r"[\ud800-\udfff]")
CONTROLS = lazy_pattern(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def printable(text: str) -> str:
    """The text without escape sequences; other controls, direction overrides and lone surrogates become visible."""
    return CONTROLS.sub(_picture, SEQUENCES.sub("", text.replace("\r\n", "\n")))


def _picture(control: re.Match[str]) -> str:
    code = ord(control[0])
    return chr(0x2400 + code) if code < 0x20 else "\ufffd"


def read_event(kind: str, data: str) -> AgentEvent | None:
    """The event of one SSE message; None for a type that this client does not know. Raises ValueError."""
    reader = READERS.get(kind)
    if reader is None:
        return None
    try:
        return reader.decode(_mended(data) if "\\ud" in data else data)
    except ValidationError as error:
        problem = str(error)
    except (DecodeError, ValueError, RecursionError):
        problem = "its JSON"
    raise ValueError(f"The server sent a {kind} event that cannot be read ({problem}).")


def _mended(data: str) -> str:
    """The JSON with lone surrogates replaced: models write them, and a strict reader refuses them."""
    return LONE_SURROGATE.sub("\ufffd", json.dumps(json.loads(data), ensure_ascii=False))


class Activity(Struct, frozen=True):
    """A call that is being written or run, as the live region shows it."""

    name: str
    since: float
    status: str = "starting"
    tail: tuple[str, ...] = ()


class View:
    """The state of one conversation's screen. Printing what `apply` returns, in order, is the whole transcript.

    `width` is the window's, None where there is no window.
    """

    def __init__(self, *, summary: bool, width: Callable[[], int | None] = lambda: None) -> None:
        self.at_line_start = True
        self.ended: RunFinished | RunFailed | None = None
        self._summary = summary
        self._thinking = False
        self._repeated = 0  # characters of reasoning to come that stand on the screen already, as text
        self._width = width
        self._active: dict[str, Activity] = {}
        self._pending: dict[str, str] = {}  # the names of calls that wait for a person

    @property
    def busy(self) -> bool:
        """Return whether the live region has something to show, and no prompt stands where it would be."""
        return bool(self._active) and not self._pending

    def apply(self, event: AgentEvent, now: float) -> list[Text]:
        """The text to print for this event, and a changed live region. `now` in seconds, from a monotonic clock."""
        match event:
            case TextDelta(text):
                self._repeated = 0
                return self._flow(text, "", thinking=False)
            case ReasoningDelta(text):
                known = min(self._repeated, len(text))
                self._repeated -= known
                return self._flow(text[known:], "dim italic", thinking=True) if text[known:] else []
            case TextReclassified(characters):
                self._repeated = characters
                return self._block(Text(THOUGHT, "dim"))
            case ToolDelta() | ToolStarted() | ToolProgress() | ToolFinished():
                return self._tool(event, now)
            case ToolHanded(call, name, arguments):
                self._active.pop(call, None)
                head = Text(f"▷ {printable(name)} is handed to the client", "bold cyan")
                return self._block(head, *_indented(_argument_lines(arguments)))
            case ToolRejected(reason, call, name):
                self._active.pop(call or "", None)
                return self._block(Text(f"✗ {printable(name or 'call')} refused: {printable(reason)}", "yellow"))
            case ApprovalRequired(call, name):
                self._active.pop(call, None)
                self._pending[call] = name
                return self._block(*question(event, self._width()))
            case ApprovalResolved(call):
                return self._block(*answer(event, self._pending.pop(call, "A call"), self._width()))
            case FileChanged():
                return self._block(Text(f"  ▪ {printable(event.path)} ({_file_facts(event)})", "cyan"))
            case ImageReturned(_, media_type, size):
                return self._block(Text(f"  ▪ picture ({printable(media_type)}, {_bytes(size)})", "cyan"))
            case MessageAdded(message, files):
                sent = [message, *(str(file.get("name") or file.get("media_type")) for file in files or ())]
                return self._block(Text(f"> {printable(', '.join(filter(None, sent)))}", "bold"))
            case PlanUpdated(steps):
                return self._block(*map(_step, steps))
            case DocumentFinished(document, ok=True, title=title):
                return self._block(Text(f"  ▤ {printable(title or '')} ({printable(document)})", "cyan"))
            case DocumentChanged() | DocumentSuggested():
                return self._block(_document(event))
            case Notice() | LabelsAdded():
                return self._block(_notice(event))
            case HelperStarted() | HelperFinished():
                return self._block(_helper(event))
            case RunFinished() | RunFailed():
                return self._end(event)
            case _:
                return []

    def live(self, now: float, height: int, typed: str = "") -> RenderableType:
        """The region that is redrawn in place: each active call with its time and its last lines of output.

        In a low window the oldest lines give way, so that it fits into `height` lines. Below stands what is `typed`.
        """
        # A tuple first: a drawing thread may ask while the reader of the stream changes the calls.
        active = tuple(self._active.values())
        height -= bool(typed)
        room = max(0, height // max(1, len(active)) - 2)  # a line is the call's own, and one remains below them all
        parts: list[Text] = []
        for one in active:
            parts.append(_line(f"  {one.name} · {_seconds(max(0.0, now - one.since))} · {one.status}", "cyan"))
            parts.extend(_line(f"{MARGIN}{output}", "dim") for output in one.tail[max(0, len(one.tail) - room) :])
        if typed:
            parts.append(Text(printable(typed), "bold", no_wrap=True, overflow="ellipsis"))
        return Group(*parts)

    def _tool(self, event: ToolDelta | ToolStarted | ToolProgress | ToolFinished, now: float) -> list[Text]:
        match event:
            case ToolDelta(call, _, name):
                if call in self._active:
                    return []
                self._active[call] = Activity(printable(name or "a call"), now, "the model is writing the call")
                return self._fresh_line()
            case ToolStarted(call, name, arguments):
                self._active[call] = Activity(printable(name), now)
                head = Text(f"▶ {printable(name)}", "bold cyan")
                return self._block(head, *_indented(_argument_lines(arguments)))
            case ToolProgress(call, elapsed_s, tail, lines, size):
                before = self._active.get(call, Activity("a call", now))
                status = f"{_count(lines, 'line')}, {_bytes(size)}" if size else "no output yet"
                shown = tuple(printable(line.rstrip("\r\n").rsplit("\r", 1)[-1]) for line in tail[-TAIL_LINES:])
                self._active[call] = replace(before, since=now - elapsed_s, status=status, tail=shown)
                return []
            case ToolFinished(call, name, ok, text, duration_s, exit_code):
                self._active.pop(call, None)
                code = "" if exit_code is None else f" · exit {exit_code}"
                facts = f"{code}{_found(text) if ok and name == WEB_SEARCH else ''} · {_seconds(duration_s)}"
                text_line = f"{'✓' if ok else '✗'} {printable(name)}{facts}"
                return self._block(Text(text_line, "green" if ok else "red"), *_indented(printable(text).splitlines()))

    def _end(self, event: RunFinished | RunFailed) -> list[Text]:
        self.ended = event
        self._active.clear()
        self._pending.clear()
        match event:
            case RunFailed(code, message, retryable):
                again = " It can be tried again." if retryable else ""
                return self._block(Text(f"✗ The run failed ({printable(code)}): {printable(message)}{again}", "red"))
            case RunFinished(reason=reason) if reason != "answered":
                return self._block(Text(f"■ The run ended early: {printable(reason).replace('_', ' ')}.", "yellow"))
            case RunFinished(rounds=rounds, calls=calls, usage=usage) if self._summary:
                text_line = f"  {_count(rounds, 'round')}, {_count(calls, 'call')}{_cost(usage)}{_speed(usage)}"
                return self._block(Text(text_line, "dim"))
        return self._fresh_line()

    def _flow(self, text: str, style: str, *, thinking: bool) -> list[Text]:
        """Text as it streams in; thought and answer begin on lines of their own."""
        before = self._fresh_line() if thinking != self._thinking else []
        self._thinking = thinking
        shown = printable(text)
        if not shown:
            return before
        self.at_line_start = shown.endswith("\n")
        return [*before, Text(shown, style)]

    def _block(self, *lines: Text) -> list[Text]:
        return [*self._fresh_line(), *(line.append("\n") for line in lines)]

    def _fresh_line(self) -> list[Text]:
        if self.at_line_start:
            return []
        self.at_line_start = True
        return [Text("\n")]


def _argument_lines(arguments: dict[str, Any]) -> list[str]:
    """The arguments for people: a lone text bare, others as `name: value`."""
    if len(arguments) == 1:
        (value,) = arguments.values()
        return printable(str(value)).splitlines()
    return printable("\n".join(f"{name}: {value}" for name, value in arguments.items())).splitlines()


def _indented(lines: list[str]) -> Iterable[Text]:
    """Indented lines; of many, the first and the last, with the number left out between them."""
    left_out = len(lines) - HEAD_LINES - TAIL_LINES
    if left_out > 1:
        lines = [*lines[:HEAD_LINES], f"... {left_out} lines left out ...", *lines[-TAIL_LINES:]]
    return [Text(f"  {line if len(line) <= LINE_LENGTH else line[:LINE_LENGTH] + ' ...'}", "dim") for line in lines]


def _found(text: str) -> str:
    """The number of results of a search; empty for a text of another form."""
    count = len(SEARCH_RESULT.findall(text))
    return f" · {_count(count, 'result')}" if count else ""


MARKS = {"done": ("☑", "dim"), "active": ("▶", "bold")}


def _file_facts(event: FileChanged) -> str:
    facts = event.change if event.size is None else f"{event.change}, {_bytes(event.size)}"
    return f"{facts}, no undo" if event.unkept else facts


def _document(event: DocumentChanged | DocumentSuggested) -> Text:
    change = (
        f": suggestion {event.suggestion}" if isinstance(event, DocumentSuggested) else f", version {event.version}"
    )
    return Text(f"  ▤ {printable(event.title)}{change}", "cyan")


def _helper(event: HelperStarted | HelperFinished) -> Text:
    if isinstance(event, HelperStarted):
        facts = f"begins ({printable(event.model)})"
    else:
        facts = f"{printable(event.reason)}, rounds: {event.rounds}"
    return Text(f"  ◦ helper {printable(event.helper)}: {facts}", "cyan")


def _notice(event: Notice | LabelsAdded) -> Text:
    if isinstance(event, Notice):
        return Text(f"! {printable(event.message)}", "yellow")
    return Text(f"! this conversation carries {printable(', '.join(event.labels))}", "magenta")


def _step(step: dict[str, str]) -> Text:
    """A step of the model's plan, ticked off if it is done."""
    mark, style = MARKS.get(step.get("state", ""), ("☐", ""))
    return Text(f"  {mark} {printable(step.get('step', ''))}", style)


def _line(text: str, style: str) -> Text:
    return Text(text, style, no_wrap=True, overflow="ellipsis")


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _cost(usage: dict[str, Any]) -> str:
    """The cost of a model with a price, in the money of the server's price table."""
    match usage:
        case {"cost": float(cost) | int(cost)}:
            about = "" if usage.get("measured") else "about "
            return f", cost {about}{cost:.6f}".rstrip("0").rstrip(".")
    return ""


def _speed(usage: dict[str, Any]) -> str:
    match usage.get("timing"):
        case {"first_token_s": float(first) | int(first), "tokens_per_s": float(rate) | int(rate)}:
            return f", first token after {_seconds(first)}, {rate:g} tokens/s"
        case {"first_token_s": float(first) | int(first)}:
            return f", first token after {_seconds(first)}"
    return ""


def _seconds(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.1f} s"
    return f"{int(seconds) // 60} min {int(seconds) % 60:02} s"


def _bytes(size: int) -> str:
    return f"{size} B" if size < 1024 else f"{size / 1024:.1f} KB" if size < 1 << 20 else f"{size / (1 << 20):.1f} MB"
