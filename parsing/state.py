"""The scanner's state: the mode it is in, and which modes may follow it.

A reply is read once, from left to right, in whatever pieces it comes. At each position the scanner is in one mode, and
the mode alone decides which function takes the next characters:

    TEXT    text to show, or reasoning: a call, a mark, a fence, inline code may begin here
    SPAN    inline code: nothing begins before the back-ticks that close it, or the end of the line
    FENCE   a fenced block that is text: nothing begins before a fence that is at least as long
    CALL    a call has begun: its reader takes the text until the call has ended
    AFTER   a call has ended: closers are dropped, and a further call of the same block may begin
    OVER    the message has ended, or the model goes on with an invented result: the rest is dropped, unless reasoning
            ends in it, which makes the call before the result a draft

        FENCE <---> TEXT <---> SPAN
                    ^  ^
                    |  +-----> CALL
                    |           ^
                    |           v
                    +--------> AFTER            (OVER from everywhere, and back to TEXT)

FOLLOWS is this picture as a table, and `State.enter` holds to it. CALL goes back to TEXT when its opener turns out to
begin no call: the text that was taken is then shown. AFTER goes to AFTER when an opener is a whole call.

Two things cross the modes:

- The channel. Text goes to the answer (`Text`) or, after a mark of reasoning, to the reasoning (`Thought`) until
  `closer` matches; a `closer` in SPAN does not count. In an answer marked as such (`verbatim`) nothing else begins.
- The draft (`parsing.drafts`). A form without a mark of its own is a call only if the whole message is nothing else,
  and a call inside reasoning only if the reasoning never ends. Until that is certain, events are held, with the text
  that is shown in their place when they turn out wrong. The closer of the reasoning ends such a call wherever it
  stands, but in a string of JSON that is whole when it is read on: else the text behind the closer is read again.

A function that reads gets the buffer and a position, and returns the position that it has reached: NEED_MORE when it
must see more text first, or NO_MATCH when it only looks for a beginning and there is none. Text that waits is held and
read again together with the next piece, so no decision depends on where a piece ends. How much may wait is bounded
(`parsing.matching.HOLD`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import IntEnum
from functools import lru_cache

import regex

from parsing.events import Text, Thought
from parsing.matching import NO_MATCH, compiled, first_characters, match_at

Channel = type[Text] | type[Thought]


class Mode(IntEnum):
    """The way in which the next characters are read."""

    TEXT = 0
    SPAN = 1
    FENCE = 2
    CALL = 3
    AFTER = 4
    OVER = 5


TEXT, SPAN, FENCE, CALL, AFTER, OVER = Mode
FOLLOWS: dict[Mode, frozenset[Mode]] = {
    TEXT: frozenset({TEXT, SPAN, FENCE, CALL, AFTER, OVER}),
    SPAN: frozenset({TEXT, OVER}),
    FENCE: frozenset({TEXT, OVER}),
    CALL: frozenset({TEXT, AFTER, OVER}),
    AFTER: frozenset({TEXT, CALL, AFTER, OVER}),
    OVER: frozenset({TEXT, OVER}),
}


@dataclass(slots=True)
class State:
    """The scanner's position in the message."""

    mode: Mode = TEXT
    channel: Channel = Text
    closer: regex.Pattern[str] | None = None  # ends the reasoning, or the verbatim answer, that is open
    closer_gates: frozenset[str] = frozenset()  # the characters that it begins with
    last_closer: regex.Pattern[str] | None = None  # what ends it as well, all up to the end of the message
    verbatim: bool = False  # an answer in which markup is text
    shown: bool = False  # something visible has been shown
    characters: int = 0  # that have been shown, as long as nothing is `declared`
    declared: bool = False  # a mark, or a hint, has separated the answer from the reasoning
    empty: bool = False  # a channel has been opened, and nothing visible has come in it yet
    hinted: bool = False  # a hint alone opened the channel, and nothing visible has come yet
    line_start: bool = True
    indent: int = 0  # spaces in front, at the beginning of a line
    ticks: int = 0  # how many back-ticks opened the inline code
    fence: str = ""  # the run that opened the fence

    def enter(self, mode: Mode) -> None:
        """Go to the next mode."""
        assert mode in FOLLOWS[self.mode], f"{mode.name} cannot follow {self.mode.name}"
        self.mode = mode

    def begin_line(self) -> None:
        self.line_start = True
        self.indent = 0

    def open_span(self, ticks: int) -> None:
        self.enter(SPAN)
        self.ticks = ticks

    def open_fence(self, run: str) -> None:
        self.enter(FENCE)
        self.fence = run

    def open_channel(self, closer: str, *, verbatim: bool = False, last: str = "") -> None:
        """Begin reasoning, or a verbatim answer, that ends with `closer`."""
        self.declared = True
        self.hinted = False
        self.empty = True
        self.channel = Text if verbatim else Thought
        self.verbatim = verbatim
        self.closer = compiled(closer)
        self.closer_gates = first_characters(closer)
        self.last_closer = compiled(last) if last else None

    def find_closer(self, buf: str, pos: int, last: bool) -> tuple[int, int]:
        """The start of the first closer and its end, NEED_MORE if more text may make it one. Else the buffer's end."""
        if self.closer is not None:
            for gate in _gate(self.closer_gates).finditer(buf, pos):
                end, _ = match_at(self.closer, buf, gate.start(), last)
                if end != NO_MATCH:
                    return gate.start(), end
        return len(buf), NO_MATCH

    def close_channel(self) -> None:
        """Go back to the answer: a line begins, in no code."""
        self.declared = True
        self.hinted = False
        self.empty = False
        self.enter(TEXT)
        self.channel = Text
        self.verbatim = False
        self.closer = None
        self.closer_gates = frozenset()
        self.last_closer = None
        self.begin_line()


@lru_cache(maxsize=64)
def _gate(characters: frozenset[str]) -> re.Pattern[str]:
    return re.compile(f"[{re.escape(''.join(sorted(characters)))}]")
