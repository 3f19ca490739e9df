"""The view of a run in a terminal: events in, styled text and a live region out. Pure: no I/O, no clock.

Everything that a model or a tool wrote passes `printable`: an escape sequence can move the cursor, set the clipboard
or answer a question in the user's name.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from itertools import islice
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
    LabelsAdded,
    MessageAdded,
    Notice,
    PlanUpdated,
    ReasoningDelta,
    RoundStarted,
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
from routes.terminal.approval_text import answer, preview_lines, question
from routes.terminal.rendering.figures import cost, duration, size, speed
from routes.texts import ENGLISH, table, text
from routes.texts.exact import one_line
from tools.base.patterns import lazy_pattern

THOUGHT = "┆ "  # before each line of a thought, where no style says what it is
MARGIN = "  │ "  # of what a command prints
HEAD_LINES, TAIL_LINES, LINE_LENGTH = 6, 12, 400
MOST_OWNER_FILES = 8
WEB_SEARCH = "web_search"
CHANGING = frozenset({"write_file", "edit_file"})
READERS: dict[str, Decoder[AgentEvent]] = {kind.type: Decoder(kind) for kind in get_args(AgentEvent)}

# CSI and OSC-like sequences whole, so that no `[31m` stays behind; what is left of others falls to CONTROLS.
SEQUENCES = lazy_pattern(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]|\x1b[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b[()][0-9A-Za-z]"
)
SEARCH_RESULT = lazy_pattern(r"^\d+\. [^\n]+\nhttps?://", re.MULTILINE)
COLOURS = lazy_pattern(r"(\x1b\[[0-9;:]*m)")
STOPPED = lazy_pattern(
    r"\AThis call was stopped before it finished; what it had done by then is unknown\.(?: It had printed:)?"
)
# The server's own lines in the text of a process's result.
FRAMING = lazy_pattern(r"^(?:\[\.{3,} .*characters left out \.\.\.\]|\[(?:exit code \d|stopped (?:after|by) ).*\])$")
LONE_SURROGATE = lazy_pattern(r"[\ud800-\udfff]")
CONTROLS = lazy_pattern(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def printable(written: str) -> str:
    """The text without escape sequences; other controls, direction overrides and lone surrogates become visible."""
    return CONTROLS.sub(_picture, SEQUENCES.sub("", written.replace("\r\n", "\n")))


def _picture(control: re.Match[str]) -> str:
    code = ord(control[0])
    return chr(0x2400 + code) if code < 0x20 else "\ufffd"


def coloured(line: str) -> Text:
    """A line of a program's output in its own colours, and with nothing else of its escape sequences."""
    pieces = COLOURS.split(line)  # at odd positions the colours
    return Text.from_ansi("".join(piece if at % 2 else printable(piece) for at, piece in enumerate(pieces)))


def for_people(written: str, advice: str | None) -> str:
    """The text of a result or a refusal without its end that advises the model."""
    if advice and written.endswith(advice):
        written = written.removesuffix(advice) + ("." if advice.startswith((":", ";")) else "")
    return STOPPED.sub(text("card.stopped"), written, count=1)


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
    status: str
    tail: tuple[Text, ...] = ()


class View:
    """The state of one conversation's screen. Printing what `apply` returns, in order, is the whole transcript.

    `width` is the window's, None where there is no window.
    """

    def __init__(self, *, summary: bool, width: Callable[[], int | None] = lambda: None) -> None:
        self.at_line_start = self.marks_thoughts = True
        self.ended: RunFinished | RunFailed | None = None
        self._summary = summary
        self._thinking = False
        self._behind_block = False
        self._blocks: dict[str, str] = {}  # of calls that have not started: the calls, as blocks of code
        self._repeated = 0  # characters of reasoning to come that stand on the screen already, as text
        self._unread = False  # a message was added, and no request to the model has followed
        self._width = width
        self._active: dict[str, Activity] = {}
        self.previews: dict[str, Mapping[str, Any]] = {}  # of calls that are about to be asked about
        self._pending: dict[str, str] = {}  # the names of calls that wait for a person
        self._owner_files: dict[str, str] = {}  # changed files that run on the owner's machine, by which command

    @property
    def busy(self) -> bool:
        """Return whether the live region has something to show, and no prompt stands where it would be."""
        return bool(self._active) and not self._pending

    def apply(self, event: AgentEvent, now: float) -> list[Text]:
        """The text to print for this event, and a changed live region. `now` in seconds, from a monotonic clock."""
        self._unread = isinstance(event, MessageAdded) or (self._unread and not isinstance(event, RoundStarted))
        match event:
            case TextDelta(piece, block):
                self._repeated = 0
                if block is not None:  # its call shows it
                    self._blocks[block] = self._blocks.get(block, "") + piece
                    self._behind_block = True
                    return []
                if self._behind_block:
                    piece, self._behind_block = piece.removeprefix("\n"), False
                return self._flow(piece, "", thinking=False)
            case ReasoningDelta(piece):
                known = min(self._repeated, len(piece))
                self._repeated -= known
                return self._flow(piece[known:], "dim italic", thinking=True) if piece[known:] else []
            case TextReclassified(characters):
                self._repeated = characters
                return self._block(Text(text("terminal.thought"), "dim"))  # what is printed cannot be taken back
            case ToolDelta() | ToolStarted() | ToolProgress() | ToolFinished():
                return self._tool(event, now)
            case ToolHanded() | ToolRejected():
                return self._unrun(event)
            case ApprovalRequired(call, name):
                self._active.pop(call, None)
                self._blocks.pop(call, None)
                self._pending[call] = name
                preview = preview_lines(self.previews.pop(call, {}), self._width())
                return self._block(*question(event, self._width()), *preview)
            case ApprovalResolved(call):
                return self._block(
                    *answer(event, self._pending.pop(call, text("terminal.call.unnamed")), self._width())
                )
            case FileChanged():
                self._owner_files.pop(event.path, None)
                if event.runs_at and event.change != "deleted":
                    self._owner_files[event.path] = event.runs_at
                return self._block(Text(f"  ▪ {one_line(event.path)} ({_file_facts(event)})", "cyan"))
            case ImageReturned(_, media_type, length):
                picture = text("terminal.picture", facts=f"{printable(media_type)}, {size(length)}")
                return self._block(Text(f"  ▪ {picture}", "cyan"))
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
                return [*self._end(event), *self._owner_lines()]
            case _:
                return []

    def live(self, now: float, height: int) -> RenderableType:
        """The region that is redrawn in place: each active call with its time and its last lines of output.

        In a low window the oldest lines give way, so that it fits into `height` lines.
        """
        active = tuple(self._active.values())
        room = max(0, height // max(1, len(active)) - 1)  # a line is the call's own
        parts: list[Text] = []
        for one in active:
            head = f"  {one.name} · {duration(max(0.0, now - one.since))} · {one.status}"
            parts.append(Text(head, "cyan", no_wrap=True, overflow="ellipsis"))
            tail = one.tail[max(0, len(one.tail) - room) :]
            parts += [Text.assemble((MARGIN, "dim"), row, no_wrap=True, overflow="ellipsis") for row in tail]
        return Group(*parts)

    def _tool(self, event: ToolDelta | ToolStarted | ToolProgress | ToolFinished, now: float) -> list[Text]:
        match event:
            case ToolDelta(call, _, name):
                if call in self._active:
                    return []
                self._active[call] = Activity(
                    printable(name or text("terminal.call.unnamed")), now, text("terminal.call.written")
                )
                return self._fresh_line()
            case ToolStarted(call, name, arguments):
                self._blocks.pop(call, None)
                self._active[call] = Activity(printable(name), now, text("terminal.call.starting"))
                head = Text(f"▶ {printable(name)}", "bold cyan")
                return self._block(head, *_indented(_argument_lines(arguments)))
            case ToolProgress(call, elapsed_s, tail, lines, length):
                before = self._active.get(call, Activity(text("terminal.call.unnamed"), now, ""))
                written = f"{text('terminal.lines', count=lines)}, {size(length)}"
                status = written if length else text("terminal.call.silent")
                shown = tuple(coloured(line.rstrip("\r\n").rsplit("\r", 1)[-1]) for line in tail[-TAIL_LINES:])
                self._active[call] = replace(before, since=now - elapsed_s, status=status, tail=shown)
                return []
            case ToolFinished(call, name, ok, result, duration_s, exit_code):
                self._active.pop(call, None)
                code = "" if exit_code is None else f" · {text('terminal.call.exit', code=exit_code)}"
                facts = f"{code}{_found(result) if ok and name == WEB_SEARCH else ''} · {duration(duration_s)}"
                head = Text(f"{'✓' if ok else '✗'} {printable(name)}{facts}", "green" if ok else "red")
                rows = printable(for_people(result, event.advice)).splitlines()
                if event.lines is None:
                    return self._block(head, *_indented(rows, changes=ok and name in CHANGING))
                seen = sum(not FRAMING.match(line) and line != text("card.stopped") for line in rows)
                counts = f" · {text('tail.lines', count=event.lines)} · {text('tail.saw', count=seen)}"
                return self._block(head.append(counts), *_indented(rows, event.lines - seen))

    def _unrun(self, event: ToolHanded | ToolRejected) -> list[Text]:
        """A call that the server does not run."""
        match event:
            case ToolHanded(call, name, arguments):
                self._active.pop(call, None)
                head = Text(f"▷ {text('terminal.call.handed', name=printable(name))}", "bold cyan")
                return self._block(head, *_indented(_argument_lines(arguments)))
            case ToolRejected(reason, call, name):
                self._active.pop(call or "", None)
                call_name = printable(name or text("terminal.call.unnamed"))
                block = printable(self._blocks.pop(call or "", "")).strip().splitlines()
                reason = for_people(reason, event.advice)
                if not reason:  # the line of the person's decision says it
                    return self._block(*_indented(block)) if block else []
                refused = text("terminal.call.refused", name=call_name, reason=printable(reason))
                return self._block(Text(f"✗ {refused}", "yellow"), *_indented(block))

    def _end(self, event: RunFinished | RunFailed) -> list[Text]:
        self.ended = event
        self._active.clear()
        self._pending.clear()
        match event:
            case RunFailed(code, message, retryable):
                again = f" {text('terminal.run.retry')}" if retryable else ""
                failed = text("terminal.run.failed", code=printable(code), message=printable(message))
                return self._block(Text(f"✗ {failed}{again}", "red"))
            case RunFinished(reason="cancelled"):
                unread = f" {text('terminal.run.unread')}" if self._unread else ""
                return self._block(Text(f"■ {text('terminal.run.stopped')}{unread}", "yellow"))
            case RunFinished(reason=reason) if reason != "answered":
                known = f"run.ended.{reason}"
                ended = text(known) if known in table(ENGLISH) else text("run.ended", reason=printable(reason))
                return self._block(Text(f"■ {ended}", "yellow"))
            case RunFinished(rounds=rounds, calls=calls, usage=usage) if self._summary:
                counts = f"{text('terminal.rounds', count=rounds)}, {text('terminal.calls', count=calls)}"
                return self._block(Text(f"  {counts}{cost(usage)}{speed(usage)}", "dim"))
        return self._fresh_line()

    def _owner_lines(self) -> list[Text]:
        """The changed files that run on the owner's machine, once."""
        files, self._owner_files = self._owner_files, {}
        if not files:
            return []
        head = text("terminal.owner.files" if self._summary else "terminal.owner.files.plain")
        shown = [
            text("terminal.owner.file", path=one_line(path), command=one_line(command))
            for path, command in islice(files.items(), MOST_OWNER_FILES)
        ]
        left_out = len(files) - len(shown)
        more = [text("terminal.owner.more", count=left_out)] if left_out else []
        return self._block(Text(head, "yellow"), *(Text(f"  ▪ {line}", "yellow") for line in (*shown, *more)))

    def _flow(self, piece: str, style: str, *, thinking: bool) -> list[Text]:
        """Text as it streams in; thought and answer begin on lines of their own."""
        before = self._fresh_line() if thinking != self._thinking else []
        self._thinking = thinking
        shown = printable(piece)
        if not shown:
            return before
        if thinking and self.marks_thoughts:
            shown = (THOUGHT if self.at_line_start else "") + shown[:-1].replace("\n", f"\n{THOUGHT}") + shown[-1]
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


def _indented(lines: list[str], unseen: int = 0, *, changes: bool = False) -> Iterable[Text]:
    """Indented lines; of many, the first and the last, with the number left out between them.

    `unseen` more were written. Of `changes` of a file it says how many of them are left out.
    """
    between = lines[HEAD_LINES:-TAIL_LINES]
    left_out = unseen + sum(not FRAMING.match(line) for line in between)
    if len(between) > 1:
        changed = sum(line.startswith(("+", "-")) for line in between) if changes else 0
        more = text("terminal.left_out.changes", count=left_out, changed=changed) if changed else ""
        more = more or text("terminal.left_out", count=left_out)
        lines = [*lines[:HEAD_LINES], more, *lines[-TAIL_LINES:]]
    return [Text(f"  {line if len(line) <= LINE_LENGTH else line[:LINE_LENGTH] + ' ...'}", "dim") for line in lines]


def _found(result: str) -> str:
    """The number of results of a search; empty for a text of another form."""
    count = len(SEARCH_RESULT.findall(result))
    return f" · {text('terminal.results', count=count)}" if count else ""


MARKS = {"done": ("☑", "dim"), "active": ("▶", "bold")}


CHANGES = {"created": "terminal.file.created", "modified": "terminal.file.modified", "deleted": "terminal.file.deleted"}


def _file_facts(event: FileChanged) -> str:
    change = text(CHANGES[event.change]) if event.change in CHANGES else printable(event.change)
    facts = change if event.size is None else f"{change}, {size(event.size)}"
    return f"{facts}, {text('terminal.file.no_undo')}" if event.unkept else facts


def _document(event: DocumentChanged | DocumentSuggested) -> Text:
    if isinstance(event, DocumentSuggested):
        change = text("terminal.document.suggestion", number=event.suggestion)
    else:
        change = text("terminal.document.version", number=event.version)
    return Text(f"  ▤ {printable(event.title)}: {change}", "cyan")


def _helper(event: HelperStarted | HelperFinished) -> Text:
    name = printable(event.helper)
    if isinstance(event, HelperStarted):
        shown = text("terminal.helper.started", name=name, model=printable(event.model))
    else:
        shown = text("terminal.helper.finished", name=name, reason=printable(event.reason), rounds=event.rounds)
    return Text(f"  ◦ {shown}", "cyan")


def _notice(event: Notice | LabelsAdded) -> Text:
    if isinstance(event, Notice):
        return Text(f"! {printable(event.message)}", "yellow")
    return Text(f"! {text('terminal.labels', labels=printable(', '.join(event.labels)))}", "magenta")


def _step(step: dict[str, str]) -> Text:
    """A step of the model's plan, ticked off if it is done."""
    mark, style = MARKS.get(step.get("state", ""), ("☐", ""))
    return Text(f"  {mark} {printable(step.get('step', ''))}", style)
