"""Long code blocks of an answer as documents of their own: each character is sent once more, and no more often."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from secrets import token_hex

from msgspec import Struct, field

from app.core.deltas import MAX_JOINED
from app.core.document_events import DocumentFinished, DocumentStarted
from app.core.events import (
    TERMINAL,
    AgentEvent,
    Delta,
    DocumentUpdated,
    Encoded,
    RoundStarted,
    TextDelta,
    TextReclassified,
    ToolFinished,
    ToolRejected,
    Usage,
)
from app.storage.changes import Change
from app.storage.documents import MOST_CHARACTERS, PLAIN_NAMES, BlockKept, BlockText
from tools.base.escape_invisible import visible
from tools.base.patterns import lazy_pattern

LONG = 30  # lines; a block of more becomes a document
MAX_FENCE_LINE = 1000  # characters; a longer line is no fence
MAX_HELD = 1_000_000  # characters of the first lines; a block that needs more is data, not a document
MOST_TITLE = 60  # characters of a block's first line
CLOSER_INDENT = 3  # columns that a closing fence may be further in than its opening one
ENDS = TERMINAL | {RoundStarted.type, TextReclassified.type, Usage.type}  # of all blocks

_LINE = lazy_pattern(r"[^\n]*\n|[^\n]+")
_ITEM = r"[ \t]*(?:(?:[-*+]|\d{1,9}[.)])[ \t]+)?"  # a block may stand in a list
_OPENER = lazy_pattern(rf"({_ITEM})(`{{3,}}(?=[^`\n]*$)|~{{3,}})[ \t]*([^\s`{{]*)")
_KIND = lazy_pattern(r"[\w+#.-]{1,40}")
_BEGUN_OPENER = lazy_pattern(
    r"[ \t]*(?:(?:[-*+]|\d{1,9}(?:[.)]|\Z))(?:[ \t]+|\Z))?(?:`{0,2}|~{0,2}|`{3,}[^`\n]*|~{3,}[^\n]*)\Z"
)


def new_document_id() -> str:
    return f"doc_{token_hex(5)}"


class Block(Struct):
    """A fenced block whose end has not come. `outer` is what stands in front of its fence."""

    outer: str
    fence: str
    language: str | None
    lines: int = 0
    held: list[str] = field(default_factory=list)  # while it is too short for a document
    size: int = 0
    document: str | None = None
    text: list[str] = field(default_factory=list)  # of the document, not sent yet
    kind: str = "plain"
    kept: list[str] = field(default_factory=list)  # of the document, as it was sent

    def may_end(self, line: str) -> bool:
        """Return True if this beginning of a line may become the closing fence."""
        return len(line) <= MAX_FENCE_LINE and set(line.strip(" \t\r\n")) <= {self.fence[0]}

    def ends(self, line: str) -> bool:
        """Return True if this whole line is the closing fence."""
        if not self.may_end(line):
            return False
        near = columns(line[: indent_of(line)]) <= columns(self.outer) + CLOSER_INDENT
        return near and len(line.strip(" \t\r\n")) >= len(self.fence)


def indent_of(line: str) -> int:
    return len(line) - len(line.lstrip(" \t"))


def columns(indent: str) -> int:
    return len(indent.expandtabs(4))


class Documents:
    """Events go in and come out, those of documents after the text that they repeat. Slicing changes no document.

    To be asked once secrets are hidden: what stands in a document has been in the text.
    """

    def __init__(self, new_id: Callable[[], str] = new_document_id) -> None:
        self._new_id = new_id
        self._block: Block | None = None
        self._line: str | None = ""  # the beginning of a line that may be a fence; None once it is known to be none
        self._out: list[DocumentUpdated] = []
        self._kept: list[tuple[str, str, str, str]] = []  # id, title, kind and text of ended ones

    def with_documents(self, events: Iterable[Delta | Encoded]) -> Iterator[Delta | Encoded | DocumentUpdated]:
        for event in events:
            if isinstance(event, TextDelta):
                yield event
                yield from self._feed(event.text)
                continue
            if event.type in ENDS:
                yield from self._end()
            yield event

    def take_changes(self, run: str) -> list[Change]:
        """Return the rows of the documents of a run that have ended since the last time."""
        kept, self._kept, at = self._kept, [], time.time()
        return [
            change
            for id, title, kind, text in kept
            for change in (BlockKept(id, title, kind, run, at), BlockText(id, run, at, text))
        ]

    def _feed(self, text: str) -> list[DocumentUpdated]:
        for piece in _LINE.findall(text):
            self._read(piece)
        return self._taken()

    def _end(self) -> list[DocumentUpdated]:
        """The reply is over, was cut off, or was thought: what came of a document is all of it."""
        if self._block:
            if self._line and not self._block.ends(self._line):
                self._begin_line(self._block, self._line)
            self._close(self._block)
        self._line = ""
        return self._taken()

    def _taken(self) -> list[DocumentUpdated]:
        if self._block:
            self._tell(self._block)
        out, self._out = self._out, []
        return out

    def _read(self, piece: str) -> None:
        """One line, or a part of one."""
        if self._line is not None:
            self._line = self._decided(self._line + piece)
        elif self._block:
            self._write(self._block, piece)
        if piece.endswith("\n"):
            self._line = ""

    def _decided(self, line: str) -> str | None:
        """The line again while it may still be a fence."""
        whole = line.endswith("\n")
        if self._block is None:
            if whole and len(line) <= MAX_FENCE_LINE and (opener := _OPENER.match(line)):
                kind = opener[3].casefold() if _KIND.fullmatch(opener[3]) else "plain"
                kind = PLAIN_NAMES.get(kind, kind)
                self._block = Block(opener[1], opener[2], opener[3] or None, kind=kind)
            return line if not whole and len(line) <= MAX_FENCE_LINE and _BEGUN_OPENER.match(line) else None
        if whole and self._block.ends(line):
            self._close(self._block)
            return None
        if not whole and self._block.may_end(line):
            return line
        self._begin_line(self._block, line)
        return None

    def _begin_line(self, block: Block, line: str) -> None:
        block.lines += 1
        if block.lines == LONG + 1 and block.size <= MAX_HELD:
            block.document = self._new_id()
            block.text, block.held = block.held, []
        indent = min(indent_of(line), len(block.outer))  # that the fence has, too
        self._write(block, line[indent:])

    def _write(self, block: Block, text: str) -> None:
        if block.document:
            block.text.append(text)
            return
        block.size += len(text)
        if block.size <= MAX_HELD and block.lines <= LONG:
            block.held.append(text)
        else:
            block.held.clear()

    def _close(self, block: Block) -> None:
        self._tell(block, done=True)
        self._block = None

    def _tell(self, block: Block, *, done: bool = False) -> None:
        text = "".join(block.text)
        block.text.clear()
        if block.document is None or not (text or done):
            return
        block.kept.append(text)
        title = self._keep(block, block.document) if done else None
        pieces = [text[at : at + MAX_JOINED] for at in range(0, len(text), MAX_JOINED)] or [""]
        for number, piece in enumerate(pieces, start=1):
            last = done and number == len(pieces)
            ends = (True, title) if last else (None, None)
            self._out.append(DocumentUpdated(block.document, piece, block.language, ends[0], ends[1]))
            block.language = None

    def _keep(self, block: Block, document: str) -> str | None:
        """Keep an ended document for the store, and return its title: its first line with words."""
        whole = "".join(block.kept).replace("\0", "\ufffd")
        if len(whole) > MOST_CHARACTERS:
            return None
        line = " ".join(visible(next(filter(str.strip, whole.splitlines()), block.kind)[: 10 * MOST_TITLE]).split())
        title = line if len(line) <= MOST_TITLE else f"{line[: MOST_TITLE - 1].rstrip()}…"
        self._kept.append((document, title or block.kind, block.kind, whole))
        return title or block.kind


class OpenDrafts:
    """Watches the events of one run. While none is `open`, only a DocumentStarted needs `completed`."""

    def __init__(self) -> None:
        self.open: dict[str, str] = {}  # call -> document

    def completed(self, event: AgentEvent) -> Iterator[AgentEvent]:
        """Yield the event, and before it the end of each document that it leaves without one."""
        match event:
            case DocumentStarted(document, call):
                self.open[call] = document
            case DocumentFinished(call=call):
                self.open.pop(call, None)
            case ToolRejected(call=str(call)) | ToolFinished(call=call) if call in self.open:
                yield DocumentFinished(self.open.pop(call), call, ok=False)
            case _ if event.type in TERMINAL:
                for call, document in self.open.items():
                    yield DocumentFinished(document, call, ok=False)
                self.open.clear()
        yield event
