"""The fast path: pieces of a reply in which nothing can matter pass without a scan.

A model's answer comes in pieces of a few characters, and in nearly all of them nothing begins and nothing ends. After
each scan the state (`parsing.state`) says what could matter next. As a rule that is one character, the `stop`: a piece
without it needs no scan, only one of these ways:

    PROSE     of text: passes if it has no character with which anything begins (a gate)
    LINE      of a line of code that is text: passes if it has no `<`, which may begin the end of the message
    DELTA     of a value of a call that is shown: passes
    HELD      of a value that is not shown: passes without an event
    ESCAPED   of a value, behind a backslash: passes together with it
    WAIT      of a tag that has begun: waits for its end, as a match of each part of it would be no use
    MARK      of a call of which nothing is shown yet: waits for the next bracket or line

          scan ---> settle ---> PROSE, LINE, DELTA, HELD, WAIT or MARK
            ^                     |            DELTA, HELD <---> ESCAPED
            |                     v
            +---- a piece with the stop, or longer than the room; or a way that answers None

Without a way the `stop` is the empty text, which is in every piece: all of them are scanned. The way changes in a scan
only, but for ESCAPED: what passes changes no mode. It is counted, and what belongs to a call kept, until the next
scan, which begins with accounting for it. The room, of so many characters at first as the lease, bounds how much that
is.

Tokens come again and again: short pieces that have passed are `known` with their events, for all replies where the
state they were looked at in is the same. For them `feed` is a look-up.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from functools import lru_cache

from parsing.blocks import LEASE, MARKS, PATIENCE, Blocks
from parsing.drafts import Output
from parsing.events import CallDelta, ParseEvent, Text, Thought
from parsing.openers import AHEAD, Openers
from parsing.sink import Sink
from parsing.state import AFTER, CALL, FENCE, TEXT, Channel, State

_KNOWN_PIECES = 2048
_KNOWN_LENGTH = 16
_TOKENS = ("<|", "<｜", "</")
_QUOTES = ('"', "'")
Way = Callable[["FastPath", str], list[ParseEvent] | None]
Known = dict[str, ParseEvent]
_NOTHING: Known = {}


class FastPath(ABC):
    """The part of the parser that a piece meets first."""

    def __init__(self, sink: Sink, state: State, output: Output, blocks: Blocks, openers: Openers) -> None:
        self._sink = sink
        self._state = state
        self._output = output
        self._blocks = blocks
        self._held = ""  # text that must be seen together with what comes next
        self._gates, self._is_prose, self._pieces = _known_prose(openers.gates)
        self._known: Known = _NOTHING
        self._room = self._lease = 0  # characters that may still pass before the next scan, of so many at first
        self._passed: list[str] | None = None  # what has passed since the last scan, if it belongs to a call
        self._stop = ""
        self._way: Way = FastPath._pass_line
        self._paused: tuple[Known, Way] = self._known, self._way  # while a backslash waits for what it escapes

    def feed(self, text: str) -> list[ParseEvent]:
        """Return the events of the next piece of the reply. Never raises."""
        event = self._known.get(text)
        if event is not None and (room := self._room - len(text)) >= 0:
            self._room = room
            if self._passed is not None:
                self._passed.append(text)
            return [event]
        if text and self._stop not in text:
            events = self._way(self, text)
            if events is not None:
                return events
        return self._read_on(text)

    @abstractmethod
    def _read_on(self, text: str) -> list[ParseEvent]:
        """Scan a piece in which something may matter: account for what has passed before, and settle after."""

    def _scan_every_piece(self) -> None:
        self._known, self._stop = _NOTHING, ""

    # --- the ways ---

    def _show(self, text: str, event: ParseEvent) -> list[ParseEvent]:
        """Let a piece pass, and know it the next time."""
        if len(text) <= _KNOWN_LENGTH and len(self._known) < _KNOWN_PIECES:
            self._known[text] = event
        self._let_pass(text)
        return [event]

    def _let_pass(self, text: str) -> None:
        self._room -= len(text)
        if self._passed is not None:
            self._passed.append(text)

    def _pass_prose(self, text: str) -> list[ParseEvent] | None:
        if self._room <= 0 or not self._is_prose(text):
            return None
        return self._show(text, self._state.channel(text))

    def _pass_line(self, text: str) -> list[ParseEvent] | None:
        if self._room <= 0 or "<" in text:
            return None
        self._let_pass(text)
        return [self._state.channel(text)]

    def _pass_delta(self, text: str) -> list[ParseEvent] | None:
        if len(text) > self._room:
            return None
        if self._ends_in_escape(text):
            return self._wait_for_escaped(text)
        return self._show(text, CallDelta(self._sink.index, text))

    def _pass_held(self, text: str) -> list[ParseEvent] | None:
        if len(text) > self._room:
            return None
        if self._ends_in_escape(text):
            return self._wait_for_escaped(text)
        self._let_pass(text)
        return []

    def _ends_in_escape(self, text: str) -> bool:
        return text[-1] == "\\" and self._stop in _QUOTES and (len(text) - len(text.rstrip("\\"))) % 2 == 1

    def _wait_for_escaped(self, text: str) -> list[ParseEvent]:
        """Hold a piece until what its last backslash escapes is there."""
        self._held, self._paused = text, (self._known, self._way)
        self._known, self._way = _NOTHING, FastPath._pass_escaped
        return []

    def _pass_escaped(self, text: str) -> list[ParseEvent] | None:
        text, self._held = self._held + text, ""
        self._known, self._way = self._paused
        return self.feed(text)

    def _wait(self, text: str) -> list[ParseEvent] | None:
        if len(self._held) + len(text) >= PATIENCE:
            return None
        self._held += text
        return []

    def _wait_for_mark(self, text: str) -> list[ParseEvent] | None:
        return self._wait(text) if MARKS.isdisjoint(text) else None

    # --- around a scan ---

    def _account(self) -> None:
        """Account for the pieces that have passed."""
        if self._passed:
            text = "".join(self._passed)
            self._passed.clear()
            self._blocks.take(text)
            self._output.hold(text)
        elif self._passed is None:
            self._state.characters += self._lease - self._room
        self._lease = self._room

    def _settle(self) -> None:
        """Choose the way of the next piece."""
        state = self._state
        if state.mode is CALL and not self._held:
            self._settle_in_call()
            return
        self._known, self._stop, self._passed = _NOTHING, "", None
        self._room = self._lease = LEASE
        if self._held:
            if self._is_in_tag(self._held):
                self._stop, self._way = ">", FastPath._wait
            elif state.mode is CALL and self._blocks.is_fresh:
                self._stop, self._way = "\n", FastPath._wait_for_mark
        elif self._output.draft is not None or state.line_start or state.empty:
            return
        elif state.mode is FENCE and state.closer is None:
            self._known, self._stop, self._way = self._pieces[state.channel], "\n", FastPath._pass_line
        elif state.mode is TEXT and (state.shown or state.channel is Thought) and state.closer_gates <= self._gates:
            self._known, self._stop, self._way = self._pieces[state.channel], "\n", FastPath._pass_prose

    def _settle_in_call(self) -> None:
        self._known = _NOTHING
        self._stop, room, shown = self._blocks.shortcut()
        self._room = self._lease = max(0, room)
        self._passed = self._passed or []
        if self._stop:
            self._way = FastPath._pass_delta if shown else FastPath._pass_held
            if shown:
                self._known = _known_deltas(self._sink.index, self._stop)
        elif not shown and self._output.draft is None:
            self._stop, self._way = "\n", FastPath._wait_for_mark

    def _is_in_tag(self, held: str) -> bool:
        """Return whether what waits is a tag that has not ended."""
        if held[:2] in _TOKENS:
            return True
        if self._state.mode in (CALL, AFTER):
            return "<" in held[:2]
        return held[0] == "<" and len(held) >= AHEAD and held.rfind("<") > held.rfind(">")


@lru_cache(maxsize=8)
def _known_prose(gates: str) -> tuple[frozenset[str], Callable[[str], bool], Mapping[Channel, Known]]:
    """The gates, a test for a piece without them, and the pieces that are known to have none, with their events."""
    characters = frozenset(gates)
    return characters, characters.isdisjoint, {Text: {}, Thought: {}}


@lru_cache(maxsize=16)
def _known_deltas(index: int, stop: str) -> Known:
    """The pieces that are known to be a part of a value that ends with `stop`, with their events."""
    return {}
