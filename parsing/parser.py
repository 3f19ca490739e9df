"""The one scanner: text in, events out, whatever the slicing. It knows no dialect; the tables do.

`parsing.state` explains its modes; `Prose` and `Blocks` read in them, and `Output` has the events that they find.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Any

from parsing.blocks import Blocks, Pass
from parsing.drafts import Output
from parsing.events import BadCall, Call, Parsed, ParseEvent, Reclassified, Text, Thought
from parsing.framing import ANY_CLOSER, PROMPT_ENDS, reasoning_open_in
from parsing.matching import NEED_MORE
from parsing.openers import OPENERS, Openers
from parsing.prose import Prose
from parsing.sink import Excerpts, Sink
from parsing.state import CALL, FENCE, OVER, TEXT, Channel, State

LIMIT = 1 << 20
_KNOWN_PIECES = 8192
_KNOWN_LENGTH = 16
_PIECE = 1 << 15  # characters that are scanned at once
_PATIENCE = 64  # characters of a tag that wait for its `>`
_TOKENS = ("<|", "<｜", "</")


class Parser:
    """Reads one reply. `tools` maps each offered tool to the JSON Schema of its parameters.

    `fences`: a fence whose tag is a tool is a call (the prompt taught it). `starts_in_thought` and `prompt_suffix`
    (the end of the prompt) are hints. `limit`: the characters that an undecided candidate may hold; a call may be
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
        excerpts = Excerpts()
        self.raw = excerpts.by_index
        self._sink = Sink(tools)
        self._state = State()
        self._output = Output(self._sink, self._state, excerpts, limit)
        self._blocks = Blocks(self._sink, self._state, self._output, excerpts, limit, enabled=calls)
        self._prose = Prose(self._sink, self._state, self._output, self._blocks, openers, fences=fences and calls)
        prose, blocks = self._prose, self._blocks
        # by mode
        self._read = (prose.text, prose.span, prose.fence, blocks.read, blocks.follow, blocks.drop)
        self._held = ""  # text that must be seen together with what comes next
        self._closed = False
        # How the next piece is looked at: as prose that may be known, or for the one character that can matter.
        self._gates = frozenset(openers.gates)
        self._is_prose, self._pieces = _known(openers.gates)
        self._known: dict[str, Text | Thought] | None = None
        self._stop = ""  # it is in every piece
        self._pass: Pass = self._pass_text
        opened = reasoning_open_in(prompt_suffix)
        if starts_in_thought or opened:
            self._state.open_channel(opened.shuts if opened else ANY_CLOSER, verbatim=bool(opened and opened.answer))
            self._state.hinted = True
        elif prompt_suffix and (match := re.search(PROMPT_ENDS, prompt_suffix)):
            self._held = match.group()
            self._output.hidden = len(self._held)

    def feed(self, text: str) -> list[ParseEvent]:
        """Return the events of the next piece of the reply. Never raises."""
        known = self._known
        if known is not None:
            event = known.get(text)
            if event is not None:
                self._state.characters += len(text)
                return [event]
            if self._is_prose(text):
                return self._learn(text, known)
        elif text and self._stop not in text and text[-1] != "\\":
            events = self._pass(text)
            if events is not None:
                return events
        if self._held:
            if self._waits(text):
                self._held += text
                return []
        elif self._state.mode is CALL and self._output.draft is None:
            step = self._blocks.read_piece(text)
            if step == len(text) and self._state.mode is CALL:  # the usual piece inside a call
                self._stop, self._pass = self._blocks.shortcut()
                return self._sink.taken()
            text = text[step:]
        self._scan_all(text, last=False)
        self._settle()
        return self._output.taken()

    def close(self) -> list[ParseEvent]:
        """Return the events that only the end of the reply decides."""
        if self._closed:
            return []
        self._closed = True
        self._scan_all("", last=True)
        self._end()
        return self._output.taken()

    # --- pieces in which nothing can matter ---

    def _learn(self, text: str, known: dict[str, Text | Thought]) -> list[ParseEvent]:
        if not text:
            return []
        event = self._state.channel(text)
        self._state.characters += len(text)
        if len(text) <= _KNOWN_LENGTH and len(known) < _KNOWN_PIECES:
            known[text] = event
        return [event]

    def _pass_text(self, text: str) -> list[ParseEvent]:
        self._state.characters += len(text)
        return [self._state.channel(text)]

    def _settle(self) -> None:
        """Choose how the next piece is looked at."""
        self._known = None
        self._stop = ""
        state = self._state
        if self._held:
            return
        if state.mode is CALL:
            if shortcut := self._blocks.safe_shortcut():
                self._stop, self._pass = shortcut
        elif self._output.draft is not None or state.line_start:
            return
        elif state.mode is FENCE:
            self._stop = "\n" if state.closer is None else ""
            self._pass = self._pass_text
        elif state.mode is TEXT and (state.shown or state.channel is Thought) and state.closer_gates <= self._gates:
            self._known = self._pieces[state.channel]

    # --- the scan ---

    def _waits(self, text: str) -> bool:
        """Return whether a tag has begun: another match is worth its price only when that tag may have ended."""
        begun = self._held[:2]
        if len(self._held) + len(text) >= _PATIENCE or ">" in text:
            return False
        return begun in _TOKENS or (self._state.mode is CALL and "<" in begun)

    def _scan_all(self, text: str, *, last: bool) -> None:
        """Scan in pieces of a bounded size, so that what is looked at together is bounded too."""
        at = 0
        while True:
            end = at + _PIECE
            held, self._held = self._held, ""
            self._scan(held + text[at:end], last and end >= len(text))
            at = end
            if again := self._output.take_again():
                text, at, self._held = again + self._held + text[at:], 0, ""
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
        if draft is not None and draft.row is not None and not output.is_whole(ended):
            draft.raw.append(held)
            output.release(draft)
        else:
            output.commit()
            if held and ended and self._state.mode is not OVER:
                output.emit(held)
        self._state.enter(OVER)
        self._known = None
        self._stop = ""


Pieces = dict[Channel, dict[str, Text | Thought]]


@lru_cache(maxsize=8)
def _known(gates: str) -> tuple[Callable[[str], bool], Pieces]:
    """A test for a piece without gates, and the pieces that are known to have none, with their events.

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
