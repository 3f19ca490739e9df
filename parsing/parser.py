"""The one scanner: text in, events out, whatever the slicing. It knows no dialect; the tables do."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Any

from parsing.blocks import Draft
from parsing.events import BadCall, Call, CallDelta, Parsed, ParseEvent, Text, Thought
from parsing.framing import ANY_CLOSER, PROMPT_ENDS, THINKING_PROMPT
from parsing.lexis import WAIT
from parsing.openers import OPENERS, Openers
from parsing.prose import Prose
from parsing.sink import Reader

LIMIT = 1 << 20
_KNOWN_PIECES = 8192
_KNOWN_LENGTH = 16
_PATIENCE = 64  # characters of a tag that wait for its `>`
_TOKENS = ("<|", "<｜", "</")


class Parser(Prose):
    """Reads one reply. `tools` maps each offered tool to the JSON Schema of its parameters.

    `fences`: a fence whose tag is a tool is a call (the prompt taught it). `starts_in_thought` and `prompt_suffix`
    (what the prompt ended with) are hints. `limit`: the characters that an undecided candidate may hold; a call may be
    sixteen times as long. Without `calls` markup is text that is shown; thoughts are still thoughts.
    `raw` has of each call, by its index, the block that it stands in as it was written, up to 4,096 characters of it;
    it is whole when the parser is closed. `openers` are the dialects that are read.
    """

    def __init__(
        self,
        tools: Mapping[str, Mapping[str, Any]],
        *,
        fences: bool = True,
        starts_in_thought: bool = False,
        prompt_suffix: str = "",
        limit: int = LIMIT,
        calls: bool = True,
        openers: Openers = OPENERS,
    ) -> None:
        super().__init__(tools, limit, openers, fences=fences and calls)
        self._is_prose, self._pieces = _known(openers.gates)
        self._calls = calls
        self._held = ""  # text that must be seen together with what comes next
        self._closed = False
        # How the next piece is looked at: as prose that may be known, or for the one
        # character that can matter.
        self._known: dict[str, Text | Thought] | None = None
        self._stop = ""  # it is in every piece
        self._pass: Callable[[str], list[ParseEvent]] = self._say_piece
        self._take: Callable[[str], None] = self._hold
        self._index = 0
        if starts_in_thought or re.search(THINKING_PROMPT, prompt_suffix.rstrip()):
            self._think(ANY_CLOSER)
        elif match := re.search(PROMPT_ENDS, prompt_suffix):
            self._held = match.group()
            self._phantom = len(self._held)

    def feed(self, text: str) -> list[ParseEvent]:
        """The events of the next piece of the reply. Never raises."""
        known = self._known
        if known is not None:
            event = known.get(text)
            if event is not None:
                return [event]
            if self._is_prose(text):
                return self._learn(text, known)
        elif text and self._stop not in text and text[-1] != "\\":
            return self._pass(text)
        return self._scan(text, last=False)

    def close(self) -> list[ParseEvent]:
        """The events that only the end of the reply decides."""
        if self._closed:
            return []
        self._closed = True
        events = self._scan("", last=True)
        self._end()
        return events + self._taken()

    # --- pieces in which nothing can matter ---

    def _learn(self, text: str, known: dict[str, Text | Thought]) -> list[ParseEvent]:
        if not text:
            return []
        event = self._voice(text)
        if len(text) <= _KNOWN_LENGTH and len(known) < _KNOWN_PIECES:
            known[text] = event
        return [event]

    def _say_piece(self, text: str) -> list[ParseEvent]:
        return [self._voice(text)]

    def _stream_piece(self, text: str) -> list[ParseEvent]:
        size = self._size + len(text)
        if size > self._limit:
            return self._scan(text, last=False)
        self._size = size
        if self._block_room:
            self._keep_block(text)
        self._take(text)
        return [CallDelta(self._index, text)]

    def _keep_piece(self, text: str) -> list[ParseEvent]:
        size = self._size + len(text)
        if size > self._limit // 2:
            return self._scan(text, last=False)
        self._size = size
        if self._block_room:
            self._keep_block(text)
        self._take(text)
        self._hold(text)
        return []

    def _settle(self) -> None:
        """Choose how the next piece is looked at."""
        self._known = None
        self._stop = ""
        if self._held or self._over:
            return
        if self._reader is not None:
            self._settle_reader()
        elif self._draft is not None or self._after is not None or self._bol or self._ticks:
            return
        elif self._fence:
            self._stop = "\n" if self._closer is None else ""
            self._pass = self._say_piece
        elif (self._shown or self._voice is Thought) and self._closer_first.issubset(self._gates):
            self._known = self._pieces[self._voice]

    def _settle_reader(self) -> None:
        reader, draft = self._reader, self._draft
        if reader is None or self._size > self._limit // 2:
            return
        self._take = reader.take
        self._index = self._sink.index
        if draft is None:
            self._stop = reader.stop
            self._pass = self._stream_piece if reader.streams else self._keep_piece
        elif draft.row is not None:
            self._stop = reader.stop
            self._pass = self._keep_piece

    # --- the scan ---

    def _scan(self, text: str, *, last: bool) -> list[ParseEvent]:
        if self._reader is not None and not self._held and not last and self._draft is None:
            return self._read_on(self._reader, text)
        buf = self._held + text if self._held else text
        if not last and len(buf) < _PATIENCE and ">" not in text and self._in_tag(self._held):
            self._held = buf
            return []
        self._held = ""
        return self._scan_from(buf, 0, last)

    def _in_tag(self, held: str) -> bool:
        """Whether a look is worth its price only when the tag that has begun may have ended."""
        return held[:2] in _TOKENS or (self._reader is not None and "<" in held[:2])

    def _read_on(self, reader: Reader, text: str) -> list[ParseEvent]:
        """The usual case of a piece inside a call: all of it is the reader's."""
        size = self._size + len(text)
        if size < self._limit:
            step = reader.read(text, 0, last=False)
            if self._block_room:
                self._keep_block(text[:step])
            if step == len(text) and not reader.done:
                self._size = size
                self._stop, self._index, self._take = reader.stop, self._sink.index, reader.take
                self._pass = self._stream_piece if reader.streams else self._keep_piece
                return self._sink.taken()
            self._size += step
            if reader.done:
                self._ended()
            return self._scan_from(text, step, last=False)
        return self._scan_from(text, 0, last=False)

    def _scan_from(self, buf: str, pos: int, last: bool) -> list[ParseEvent]:
        while pos < len(buf):
            draft, phantom = self._draft, self._phantom
            step = self._step(buf, pos, last)
            if step == WAIT:
                break
            if phantom:  # what is hidden is gone as well
                self._phantom = max(0, phantom - (step - pos))
            if draft is not None and draft is self._draft:
                self._hold(buf[pos:step])
            pos = step
        self._held = buf[pos:]
        self._settle()
        return self._taken()

    def _step(self, buf: str, pos: int, last: bool) -> int:
        if self._over:
            return len(buf)
        if self._reader is not None:
            return self._read(self._reader, buf, pos, last)
        if self._after is not None:
            return self._follow(self._after, buf, pos, last)
        return self._text(buf, pos, last)

    def _end(self) -> None:
        """The message is over: what is held is decided."""
        draft, reader = self._draft, self._reader
        held, self._held = self._held, ""
        if reader is not None:
            reader.cut()
            self._close_block()
            self._reader = None
        ended = reader is None or reader.done
        if draft is not None and draft.row is not None and not self._is_whole(draft, ended):
            draft.raw.append(held)
            self._release(draft)
            return
        if draft is not None and draft.row is None and not ended and self._split(draft, held):
            return
        self._commit()
        if held and ended and not self._over:
            self._say(held, 0)

    def _split(self, draft: Draft, held: str) -> bool:
        """A call inside reasoning was cut, and what should end the reasoning was taken for a part of it."""
        raw = "".join(draft.raw) + held
        match = self._closer.search(raw) if self._closer is not None else None
        if match is None:
            return False
        self._forget(draft)
        self._out.append(Thought(raw[: match.start()]))
        self._shown = draft.shown
        self._end_thought(0)
        events = self._scan(raw[match.end() :], last=True)
        self._closer = None  # once is enough: what is cut again is cut
        self._end()
        self._out = events + self._out
        return True


Pieces = dict[type[Text] | type[Thought], dict[str, Text | Thought]]


@lru_cache(maxsize=8)
def _known(gates: str) -> tuple[Callable[[str], bool], Pieces]:
    """Whether a piece has none of the gates, and the pieces that are known to have none, with their events.

    Tokens come again and again: a piece is looked at, and its event made, once for all replies.
    """
    return frozenset(gates).isdisjoint, {Text: {}, Thought: {}}


def parse(
    text: str,
    tools: Mapping[str, Mapping[str, Any]],
    *,
    fences: bool = True,
    starts_in_thought: bool = False,
    prompt_suffix: str = "",
) -> Parsed:
    """The whole of a reply at once."""
    parser = Parser(tools, fences=fences, starts_in_thought=starts_in_thought, prompt_suffix=prompt_suffix)
    return gather([*parser.feed(text), *parser.close()])


def gather(events: Iterable[ParseEvent]) -> Parsed:
    """The sum of a reply's events."""
    content: list[str] = []
    reasoning: list[str] = []
    parsed = Parsed()
    for event in events:
        match event:
            case Text(text):
                content.append(text)
            case Thought(text):
                reasoning.append(text)
            case Call():
                parsed.calls.append(event)
            case BadCall():
                parsed.rejected.append(event)
    parsed.content = "".join(content)
    parsed.reasoning = "".join(reasoning)
    return parsed
