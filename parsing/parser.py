"""The one scanner: text in, events out, whatever the slicing. It knows no dialect; the tables do.

`parsing.state` explains its modes; `Prose` and `Blocks` read in them, and `Output` has the events that they find. A
piece in which nothing can matter is not scanned: `parsing.fast_path`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any

from parsing.blocks import Blocks
from parsing.drafts import Draft, Output
from parsing.events import BadCall, Call, Parsed, ParseEvent, Reclassified, Text, Thought
from parsing.fast_path import FastPath
from parsing.framing import ANY_CLOSER, PROMPT_ENDS, reasoning_open_in
from parsing.matching import NEED_MORE
from parsing.openers import OPENERS, Openers
from parsing.prose import Prose
from parsing.sink import RAW_LIMIT, Excerpts, Sink
from parsing.state import CALL, OVER, State

LIMIT = 1 << 20
_CLOSER_BEGINS = 3  # so many characters of a closer are no chance
_CLOSER_MOST = 64  # characters: no closer of reasoning is longer
_PIECE = 1 << 15  # characters that are scanned at once


class Parser(FastPath):
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
        sink, state = Sink(tools), State()
        sink.stop_cut = stop_cut
        output = Output(sink, state, excerpts, limit)
        blocks = Blocks(sink, state, output, excerpts, limit, enabled=calls)
        super().__init__(sink, state, output, blocks, openers)
        self._prose = prose = Prose(sink, state, output, blocks, openers, fences=fences and calls)
        # by mode
        self._read = (prose.text, prose.span, prose.fence, blocks.read, blocks.follow, blocks.drop)
        self._closed = False
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

    def resume(self, shown: str) -> None:
        """Go on behind text that was shown before: no call begins in it, and it gives no events."""
        if not shown:
            return
        blocks, prose = self._blocks, self._prose
        kept = blocks.enabled, prose.fences
        blocks.enabled = prose.fences = False
        self.feed(shown)
        self._account()
        self._scan_all("", last=True)
        self._settle()
        blocks.enabled, prose.fences = kept
        self._output.taken()

    def close(self, *, cut: bool = False) -> list[ParseEvent]:
        """Return the events that only the end of the reply decides.

        `cut`: the reply broke off, so that a call without a closer of its own may not be whole.
        """
        if self._closed:
            return []
        self._closed = True
        self._sink.is_cut = cut
        self._account()
        self._scan_all("", last=False)  # a tag that waited for its end
        self._scan_all("", last=True)
        self._end()
        self.tried = self._prose.tried
        return _joined(self._output.taken())

    def _read_on(self, text: str) -> list[ParseEvent]:
        self._account()
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
        self._scan_every_piece()

    def _goes_on(self, draft: Draft, held: str) -> bool:
        """Return whether the reasoning that is open was cut, perhaps within its closer: a call in it is a draft."""
        closer = self._state.closer
        if closer is None or self._sink.is_cut:
            return self._sink.is_cut
        end = ("".join(draft.raw) + held)[-_CLOSER_MOST:]
        begins = range(len(end) - _CLOSER_BEGINS + 1)
        return any(closer.fullmatch(end, begin, partial=True) for begin in begins)


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
