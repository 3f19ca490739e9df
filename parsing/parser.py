"""The one scanner: text in, events out, whatever the slicing. It knows no dialect; the tables do.

`parsing.state` explains its modes; `Prose` and `Blocks` read in them, and `Output` has the events that they find.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import groupby
from typing import Any

from parsing.blocks import LEASE, MARKS, PATIENCE, Blocks
from parsing.drafts import Draft, Output
from parsing.events import BadCall, Call, CallDelta, Parsed, ParseEvent, Reclassified, Text, Thought
from parsing.framing import ANY_CLOSER, PROMPT_ENDS, reasoning_open_in
from parsing.matching import NEED_MORE
from parsing.openers import AHEAD, OPENERS, Openers
from parsing.prose import Prose
from parsing.sink import RAW_LIMIT, Excerpts, Sink
from parsing.state import AFTER, CALL, FENCE, OVER, TEXT, Channel, State

LIMIT = 1 << 20
_CLOSER_BEGINS = 3  # so many characters of a closer are no chance
_CLOSER_MOST = 64  # characters: no closer of reasoning is longer
_KNOWN_PIECES = 2048
_KNOWN_LENGTH = 16
_PIECE = 1 << 15  # characters that are scanned at once
_TOKENS = ("<|", "<｜", "</")
_QUOTES = ('"', "'")
Pass = Callable[["Parser", str], list[ParseEvent] | None]
Known = dict[str, ParseEvent]
_NOTHING: Known = {}


class Parser:
    """Reads one reply. `tools` maps each offered tool to the JSON Schema of its parameters.

    `fences`: a fence whose tag is a tool is a call (the prompt taught it). `starts_in_thought` and `prompt_suffix`
    (the end of the prompt) are hints, and so is `stop_cut`: the engine's stop string was the closer of the last call.
    `limit`: the characters that an undecided candidate may hold; a call may be sixteen times as long. Without `calls`
    markup is text that is shown; thoughts are still thoughts.
    `raw` has of each call, by its index, the block that it stands in as it was written, up to `excerpt` characters of
    it, and `closers` the marks behind that; they are whole when the parser is closed. `openers` are the dialects that
    are read.
    """

    def __init__(
        self,
        tools: Mapping[str, Mapping[str, Any]],
        *,
        fences: bool = True,
        starts_in_thought: bool = False,
        stop_cut: bool = False,
        prompt_suffix: str = "",
        limit: int = LIMIT,
        calls: bool = True,
        excerpt: int = RAW_LIMIT,
        openers: Openers = OPENERS,
    ) -> None:
        excerpts = Excerpts(excerpt)
        self.raw, self.closers = excerpts.by_index, excerpts.closers
        self.tried = 0
        self._sink = Sink(tools)
        self._sink.stop_cut = stop_cut
        self._state = State()
        self._output = Output(self._sink, self._state, excerpts, limit)
        self._blocks = Blocks(self._sink, self._state, self._output, excerpts, limit, enabled=calls)
        self._prose = Prose(self._sink, self._state, self._output, self._blocks, openers, fences=fences and calls)
        prose, blocks = self._prose, self._blocks
        # by mode
        self._read = (prose.text, prose.span, prose.fence, blocks.read, blocks.follow, blocks.drop)
        self._held = ""  # text that must be seen together with what comes next
        self._closed = False
        # How the next piece is looked at.
        self._gates, self._is_prose, self._pieces = _known(openers.gates)
        self._known: Known = _NOTHING  # pieces in which nothing can matter, and their events
        self._room = self._lease = 0  # characters that may still pass before the next scan, of so many at first
        self._passed: list[str] | None = None  # what has passed since the last scan, if it belongs to a call
        self._stop = ""  # the one character that can matter; the empty text is in every piece
        self._pass: Pass = Parser._pass_line  # for a piece without it
        self._paused: tuple[Known, Pass] = self._known, self._pass  # while a backslash waits for what it escapes
        opened = reasoning_open_in(prompt_suffix)
        if starts_in_thought or opened:
            if opened is None:
                self._state.open_channel(ANY_CLOSER)
            else:
                self._state.open_channel(opened.shuts, verbatim=opened.answer, last=opened.last)
            self._state.hinted = True
        elif prompt_suffix and (match := re.search(PROMPT_ENDS, prompt_suffix)):
            self._held = match.group()
            self._output.hidden = len(self._held)

    def feed(self, text: str) -> list[ParseEvent]:
        """Return the events of the next piece of the reply. Never raises."""
        event = self._known.get(text)
        if event is not None and (room := self._room - len(text)) >= 0:
            self._room = room
            if self._passed is not None:
                self._passed.append(text)
            return [event]
        if text and self._stop not in text:
            events = self._pass(self, text)
            if events is not None:
                return events
        return self._read_on(text)

    def close(self, *, cut: bool = False) -> list[ParseEvent]:
        """Return the events that only the end of the reply decides.

        `cut`: the reply broke off, so that a call without a closer of its own may not be whole.
        """
        if self._closed:
            return []
        self._closed = True
        self._sink.is_cut = cut
        self._count()
        self._scan_all("", last=False)  # a tag that waited for its end
        self._scan_all("", last=True)
        self._end()
        self.tried = self._prose.tried
        return _joined(self._output.taken())

    # --- pieces in which nothing can matter ---

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
        """Pass a part of a line of code, in which marks of calls are text."""
        if self._room <= 0 or "<" in text:  # a stop token may end the message
            return None
        self._let_pass(text)
        return [self._state.channel(text)]

    def _pass_delta(self, text: str) -> list[ParseEvent] | None:
        """Pass a part of a value."""
        if len(text) > self._room:
            return None
        if self._ends_in_escape(text):
            return self._wait_for_escaped(text)
        return self._show(text, CallDelta(self._sink.index, text))

    def _pass_held(self, text: str) -> list[ParseEvent] | None:
        """Pass a part of a value that is not shown."""
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
        self._held, self._paused = text, (self._known, self._pass)
        self._known, self._pass = _NOTHING, Parser._pass_escaped
        return []

    def _pass_escaped(self, text: str) -> list[ParseEvent] | None:
        """Pass what a backslash escapes, together with it."""
        text, self._held = self._held + text, ""
        self._known, self._pass = self._paused
        return self.feed(text)

    def _wait(self, text: str) -> list[ParseEvent] | None:
        """Hold a part of a tag: another match is worth its price only when the tag may have ended."""
        if len(self._held) + len(text) >= PATIENCE:
            return None
        self._held += text
        return []

    def _wait_for_mark(self, text: str) -> list[ParseEvent] | None:
        """Hold words of a call of which nothing is shown yet, up to the next bracket or line."""
        return self._wait(text) if MARKS.isdisjoint(text) else None

    def _count(self) -> None:
        """Account for the pieces that have passed."""
        if self._passed:
            text = "".join(self._passed)
            self._passed.clear()
            self._blocks.take(text)
            self._output.hold(text)
        elif self._passed is None:
            self._state.characters += self._lease - self._room
        self._lease = self._room

    # --- how the next piece is looked at ---

    def _settle(self) -> None:
        """Choose how the next piece is looked at."""
        state = self._state
        if state.mode is CALL and not self._held:
            self._settle_in_call()
            return
        self._known, self._stop, self._passed = _NOTHING, "", None
        self._room = self._lease = LEASE
        if self._held:
            if self._is_in_tag(self._held):
                self._stop, self._pass = ">", Parser._wait
            elif state.mode is CALL and self._blocks.is_fresh:
                self._stop, self._pass = "\n", Parser._wait_for_mark
        elif self._output.draft is not None or state.line_start or state.empty:
            return
        elif state.mode is FENCE and state.closer is None:
            self._known, self._stop, self._pass = self._pieces[state.channel], "\n", Parser._pass_line
        elif state.mode is TEXT and (state.shown or state.channel is Thought) and state.closer_gates <= self._gates:
            self._known, self._stop, self._pass = self._pieces[state.channel], "\n", Parser._pass_prose

    def _settle_in_call(self) -> None:
        self._known = _NOTHING
        self._stop, room, shown = self._blocks.shortcut()
        self._room = self._lease = max(0, room)
        self._passed = self._passed or []
        if self._stop:
            self._pass = Parser._pass_delta if shown else Parser._pass_held
            if shown:
                self._known = _deltas(self._sink.index, self._stop)
        elif not shown and self._output.draft is None:
            self._stop, self._pass = "\n", Parser._wait_for_mark

    def _is_in_tag(self, held: str) -> bool:
        """Return whether what waits is a tag that has not ended."""
        if held[:2] in _TOKENS:
            return True
        if self._state.mode in (CALL, AFTER):
            return "<" in held[:2]
        return held[0] == "<" and len(held) >= AHEAD and held.rfind("<") > held.rfind(">")

    # --- the scan ---

    def _read_on(self, text: str) -> list[ParseEvent]:
        """Read a piece in which something may matter."""
        self._count()
        if not self._held and self._state.mode is CALL and self._output.draft is None:
            step = self._blocks.read_piece(text)
            if step == len(text) and self._state.mode is CALL:  # the usual piece inside a call
                self._settle_in_call()
                return self._sink.taken()
            text = text[step:]
        self._scan_all(text, last=False)
        self._settle()
        self.tried = self._prose.tried
        events = self._output.taken()
        return events if len(events) < 2 else _joined(events)

    def _scan_all(self, text: str, *, last: bool) -> None:
        """Scan in pieces of a bounded size, so that what is looked at together is bounded too."""
        at = 0
        while True:
            end = at + _PIECE
            held, self._held = self._held, ""
            self._scan(held + text[at:end], last and end >= len(text))
            at = end
            if self._output.again:
                text, at, self._held = self._output.take_again() + self._held + text[at:], 0, ""
            elif at >= len(text):
                return

    def _scan(self, buf: str, last: bool) -> None:
        state, output, read = self._state, self._output, self._read
        pos = 0
        while pos < len(buf) and not output.again:
            draft, hidden = output.draft, output.hidden
            step = read[state.mode](buf, pos, last)
            if step == NEED_MORE:
                break
            if hidden:  # dropped text counts as well
                output.hidden = max(0, hidden - (step - pos))
            if draft is not None and draft is output.draft:
                output.hold(buf[pos:step])
            pos = step
        self._held = buf[pos:]

    def _end(self) -> None:
        """Decide what is held: the message is over."""
        output = self._output
        while (draft := output.draft) is not None and draft.doubt is not None:  # it never became whole
            draft.raw.append(self._held)
            self._held = ""
            output.release(draft)
            self._scan_all(output.take_again(), last=True)
        held, self._held = self._held, ""
        ended = self._blocks.cut()
        if draft is not None and (self._goes_on(draft, held) if draft.row is None else not output.is_whole(ended)):
            draft.raw.append(held)
            output.release(draft)
        else:
            output.commit()
            if held and ended and self._state.mode is not OVER:
                output.emit(held)
        self._state.enter(OVER)
        self._known, self._stop = _NOTHING, ""

    def _goes_on(self, draft: Draft, held: str) -> bool:
        """Return whether the reasoning that is open was cut, perhaps within its closer: a call in it is a draft."""
        closer = self._state.closer
        if closer is None or self._sink.is_cut:
            return self._sink.is_cut
        end = ("".join(draft.raw) + held)[-_CLOSER_MOST:]
        begins = range(len(end) - _CLOSER_BEGINS + 1)
        return any(closer.fullmatch(end, begin, partial=True) for begin in begins)


@lru_cache(maxsize=8)
def _known(gates: str) -> tuple[frozenset[str], Callable[[str], bool], Mapping[Channel, Known]]:
    """The gates, a test for a piece without them, and the pieces that are known to have none, with their events.

    Tokens come again and again: a piece is looked at, and its event made, once for all replies.
    """
    characters = frozenset(gates)
    return characters, characters.isdisjoint, {Text: {}, Thought: {}}


@lru_cache(maxsize=16)
def _deltas(index: int, stop: str) -> Known:
    """The pieces that are known to be a part of a value that ends with `stop`, with their events."""
    return {}


def parse(
    text: str,
    tools: Mapping[str, Mapping[str, Any]],
    *,
    fences: bool = True,
    starts_in_thought: bool = False,
    stop_cut: bool = False,
    prompt_suffix: str = "",
) -> Parsed:
    """The whole of a reply at once."""
    parser = Parser(
        tools, fences=fences, starts_in_thought=starts_in_thought, stop_cut=stop_cut, prompt_suffix=prompt_suffix
    )
    return gather([*parser.feed(text), *parser.close()])


def _joined(events: Sequence[ParseEvent]) -> list[ParseEvent]:
    """Join neighbouring text: each event costs its consumers far more than its text does."""
    found: list[ParseEvent] = []
    for channel, run in groupby(events, type):
        same = list(run)
        texts = [event.text for event in same if isinstance(event, Text | Thought)]
        found += [channel("".join(texts))] if texts and (channel is Text or channel is Thought) else same
    return found


def gather(events: Iterable[ParseEvent]) -> Parsed:
    """The sum of a reply's events."""
    content: list[str] = []
    reasoning: list[str] = []
    made: list[Call | BadCall] = []
    for event in events:
        match event:
            case Text(text):
                content.append(text)
            case Thought(text):
                reasoning.append(text)
            case Reclassified(characters, calls):
                shown = "".join(content)
                end = len(shown) - characters
                content = [shown[:end]]
                reasoning.append(shown[end:])
                del made[len(made) - calls :]
            case Call() | BadCall():
                made.append(event)
    return Parsed(
        content="".join(content),
        reasoning="".join(reasoning),
        calls=[each for each in made if isinstance(each, Call)],
        rejected=[each for each in made if isinstance(each, BadCall)],
    )
