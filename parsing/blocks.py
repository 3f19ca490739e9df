"""What is being read: the open call, what may follow it, and what is held until it is certain."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import regex

from parsing.dialects import Dialect
from parsing.events import Call, ParseEvent, Text, Thought
from parsing.lexis import CLOSER, WAIT, compiled, group_in, look
from parsing.sink import RAW_LIMIT, TOO_LONG, Reader, Sink

OPENING = ("name", "offered", "void", "bracket", "attributes")  # the groups of an opener that its body may ask for
CALL_LIMIT = 16  # a call may be so many times as long as what is undecided

Voice = type[Text] | type[Thought]


@dataclass
class Draft:
    """Events that are not certain yet, and the text that is said instead if they turn out wrong.

    `row` is set for a form without a marker, which only a whole message can be; else it is a call inside reasoning.
    """

    voice: Voice
    index: int
    shown: bool
    row: Dialect | None = None
    raw: list[str] = field(default_factory=list)
    size: int = 0
    closed: bool = False  # the form has ended: only what shows nothing may follow


class Blocks:
    """Calls under way, and drafts. `_out` holds what is certain; the sink what the draft says, if there is one."""

    def __init__(self, tools: Mapping[str, Mapping[str, Any]], limit: int) -> None:
        self._sink = Sink(tools)
        self._limit = limit
        self._calls = True  # else nothing that is written can be one
        self._out: list[ParseEvent] = []
        self._voice: Voice = Text
        self._closer: regex.Pattern[str] | None = None  # what ends the reasoning that is open
        self._reader: Reader | None = None
        self._row: Dialect | None = None
        self._after: regex.Pattern[str] | None = None
        self._size = 0
        self._draft: Draft | None = None
        self._over = False
        self._shown = False
        self._bol = True
        self._fence = ""
        self.raw: dict[int, str] = {}  # index -> the block that the call stands in, as it was written: its beginning
        self._block: list[str] = []  # the same of the block that is read
        self._block_room = 0
        self._block_first = 0  # index of its first call

    # --- a call ---

    def _offers(self, match: regex.Match[str]) -> bool:
        """Whether the name that an opener asks for is a tool's, if it asks for one."""
        offered = group_in(match, "offered")
        return offered is None or self._sink.offers(offered)

    def _begins(self, row: Dialect, match: regex.Match[str], buf: str, pos: int) -> bool:
        """Begin a call of this row, if it may be one here."""
        if not self._calls or not self._offers(match):
            return False
        if self._draft is not None and self._draft.row not in (None, row):
            self._release(self._draft)
        if self._voice is Thought and self._draft is None:
            self._sketch(Draft(Thought, self._sink.index, self._shown))
            self._voice = Text
            self._hold(buf[pos : match.end()])
        self._sink.dialect = row.name
        self._sink.closer = _closer(row.shuts)
        self._open_block(buf[pos : match.end()])
        self._start(row, row.body(self._sink, {group: group_in(match, group) for group in OPENING}))
        return True

    def _start(self, row: Dialect, reader: Reader) -> None:
        self._row = row
        self._size = 0
        self._reader = None if reader.done else reader
        self._after = _after(row.shuts) if reader.done else None
        if reader.done:
            self._close_block()

    def _open_block(self, opening: str) -> None:
        """From here on its text is kept, whatever it turns out to be."""
        self._block_first = self._sink.index
        self._block.clear()
        self._block_room = RAW_LIMIT
        self._keep_block(opening)

    def _keep_block(self, text: str) -> None:
        self._block.append(text[: self._block_room])
        self._block_room -= min(len(text), self._block_room)

    def _close_block(self) -> None:
        raw = "".join(self._block)
        self.raw |= dict.fromkeys(range(self._block_first, self._sink.index), raw)

    def _read(self, reader: Reader, buf: str, pos: int, last: bool) -> int:
        """Let the reader take what it can, and no more than it may."""
        room = self._limit - self._draft.size if self._draft is not None else CALL_LIMIT * self._limit - self._size
        full = len(buf) - pos > room
        step = reader.read(buf[: pos + room], pos, last=False) if full else reader.read(buf, pos, last)
        self._size += step - pos
        if self._block_room:
            self._keep_block(buf[pos:step])
        if self._draft is not None and self._draft.row and (reader.refused or self._sink.spoilt):
            self._draft.raw.append(buf[pos:step])
            self._release(self._draft)
        elif reader.done:
            self._ended()
        elif full:
            self._refuse(buf[pos:step])
        elif step == pos:
            return WAIT
        return step

    def _ended(self) -> None:
        """The call has ended: what follows may still belong to it."""
        self._close_block()
        self._reader = None
        self._after = _after(self._row.shuts if self._row else "")
        self._bol = True

    def _refuse(self, piece: str) -> None:
        """What is read is longer than anything may be: a draft is said, a call refused and its rest not read."""
        if self._draft is not None:
            self._draft.raw.append(piece)
            self._release(self._draft)
            return
        self._reader = None
        self._sink.bad("", TOO_LONG)
        self._close_block()
        self._over = True

    def _follow(self, after: regex.Pattern[str], buf: str, pos: int, last: bool) -> int:
        """After a call: closers that are dropped, or the block's next call; else the block has ended."""
        waits = False
        row = self._row
        if row is not None and row.more:
            end, match = look(compiled(row.more), buf, pos, last)
            if match and self._begins(row, match, buf, pos):
                return end
            waits = end == WAIT
        end, match = look(after, buf, pos, last)
        if match:
            if group_in(match, "shut") is not None:
                self._after = _after("")
            return end
        if waits or end == WAIT:
            return WAIT
        if last and not buf[pos:].isspace() and after.match(buf, pos, partial=True):
            return len(buf)  # the message ends inside a closer
        self._after = None
        if self._draft is not None and self._draft.row:
            self._draft.closed = True
        return pos

    # --- a draft ---

    def _sketch(self, draft: Draft) -> None:
        self._out += self._sink.taken()
        self._sink.whole = draft.row is not None
        self._sink.spoilt = False
        self._draft = draft

    def _hold(self, text: str) -> None:
        draft = self._draft
        if draft is None or not text:
            return
        draft.raw.append(text)
        draft.size += len(text)
        if draft.size > self._limit:
            self._release(draft)

    def _release(self, draft: Draft) -> None:
        """It was text (or thought) after all: everything held is said, nothing of it is a call."""
        self._forget(draft)
        raw = "".join(draft.raw)
        if raw:
            self._out.append(draft.voice(raw))
            self._shown = draft.shown or (draft.voice is Text and bool(raw.strip()))
            self._bol = raw.endswith("\n")
        if draft.row is not None and raw.startswith("```") and not draft.closed:
            self._fence = "```"
        if draft.voice is Thought and self._closer is not None:
            self._voice = Thought

    def _forget(self, draft: Draft) -> None:
        self._draft = self._reader = self._after = None
        self._sink.events.clear()
        for index in range(draft.index, self._sink.index):  # not all there are: drafts are as many as a text likes
            self.raw.pop(index, None)
        self._sink.index = draft.index
        self._sink.is_open = self._sink.whole = self._sink.spoilt = False

    def _commit(self) -> None:
        """The message is over and the draft is right."""
        self._draft = None
        self._out += self._sink.taken()

    def _is_whole(self, draft: Draft, ended: bool) -> bool:
        """Whether a form without a marker has become calls, and nothing but calls."""
        return ended and not self._sink.spoilt and any(isinstance(event, Call) for event in self._sink.events)

    def _taken(self) -> list[ParseEvent]:
        """What has become certain."""
        if self._draft is not None:
            events, self._out = self._out, []
            return events
        if not self._out:
            return self._sink.taken()
        events, self._out = self._out + self._sink.taken(), []
        return events


@lru_cache(maxsize=256)
def _closer(shuts: str) -> regex.Pattern[str]:
    return compiled(rf"(?:{shuts})|(?:{CLOSER.pattern})") if shuts else CLOSER


@lru_cache(maxsize=256)
def _after(shuts: str) -> regex.Pattern[str]:
    """What is dropped after a call: closers, and brackets too many."""
    common = rf"(?:{CLOSER.pattern})|\}}"
    return compiled(rf"(?P<shut>{shuts})|{common}" if shuts else common)
