"""Events on their way out: those that are certain, and those of a draft, with the text that stands for it."""

from __future__ import annotations

from dataclasses import dataclass, field

from parsing.dialects import Dialect
from parsing.events import Call, ParseEvent, Reclassified, Text, Thought
from parsing.sink import Excerpts, Sink
from parsing.state import AFTER, CALL, OVER, TEXT, Channel, State

DOUBTS = 8  # times that text of one message may be read again


@dataclass
class Draft:
    """Events that are not certain yet, and the text that is shown instead if they turn out wrong.

    `row` is set for a form without a mark, which only a whole message can be; else it is a call inside reasoning.
    """

    channel: Channel
    index: int
    shown: bool
    row: Dialect | None = None
    raw: list[str] = field(default_factory=list)
    size: int = 0
    closed: bool = False  # the form has ended: only what shows nothing may follow
    doubt: int | None = None  # where in its text the reasoning has ended, unless the call turns out whole


class Output:
    """The events of one reply. While there is a draft, the sink holds its events."""

    def __init__(self, sink: Sink, state: State, excerpts: Excerpts, limit: int) -> None:
        self.draft: Draft | None = None
        self.hidden = 0  # characters of the prompt that were fed with the message: they are not shown
        self.certain: list[ParseEvent] = []
        self.doubts = DOUBTS
        self.again = ""  # text that is to be read again
        self._sink = sink
        self._state = state
        self._excerpts = excerpts
        self._limit = limit

    def emit(self, text: str) -> None:
        """Show `text`, or let it be reasoning."""
        state = self._state
        bare = not text.strip()
        if self.draft is not None and self.draft.row and not bare:
            self.release(self.draft)
        if self.hidden:
            text, self.hidden = text[self.hidden :], max(0, self.hidden - len(text))
        if text:
            self._sink.events.append(state.channel(text))
            state.shown = state.shown or (not bare and state.channel is Text)
            state.hinted = state.hinted and bare
            state.empty = state.empty and bare
            if self.draft is None:
                state.characters += len(text)
            state.line_start = text[-1] == "\n" or (state.line_start and bare)
            state.indent = _indent(text, state.indent) if state.line_start else 0

    def open_draft(self, draft: Draft) -> None:
        self.certain += self._sink.taken()
        self._sink.whole = draft.row is not None
        self._sink.disqualified = False
        self.draft = draft

    def hold(self, text: str) -> None:
        """Keep the text of the draft, if there is one."""
        draft = self.draft
        if draft is None or not text:
            return
        draft.raw.append(text)
        draft.size += len(text)
        if draft.size > self._limit:
            self.release(draft)

    def release(self, draft: Draft) -> None:
        """Show the text of the draft, or make it reasoning: it holds no call after all."""
        state = self._state
        self.drop(draft)
        raw = "".join(draft.raw)
        if draft.doubt is not None:
            raw, self.again = raw[: draft.doubt], raw[draft.doubt :]
            self.doubts -= 1
        if raw:
            self.certain.append(draft.channel(raw))
            state.characters += len(raw)
            state.shown = draft.shown or (draft.channel is Text and bool(raw.strip()))
            state.line_start = raw.endswith("\n")
            state.indent = 0
        if draft.row is not None and raw.startswith("```") and not draft.closed:
            state.open_fence("```")
        if draft.channel is Thought and state.closer is not None:
            state.channel = Thought

    def take_again(self) -> str:
        """Return the text that a draft took although it stood behind the reasoning: it is to be read again."""
        again, self.again = self.again, ""
        return again

    def reclassify(self) -> None:
        """All that was shown is reasoning, and its calls are drafts: its opener stood in the prompt."""
        state, sink = self._state, self._sink
        if self.draft is not None:
            self.release(self.draft)
        if state.characters or sink.made:
            self.certain += sink.taken()
            self.certain.append(Reclassified(state.characters, sink.made))
        self._excerpts.drop(0, sink.index)
        sink.made = 0
        state.shown = False

    def drop(self, draft: Draft) -> None:
        """Forget the events of the draft."""
        self.draft = None
        if self._state.mode in (CALL, AFTER, OVER):
            self._state.enter(TEXT)
        self._excerpts.drop(draft.index, self._sink.index)
        self._sink.rewind(draft.index)

    def commit(self) -> None:
        """Make the events of the draft certain: the message is over."""
        self.draft = None
        self.certain += self._sink.taken()

    def is_whole(self, ended: bool) -> bool:
        """Return whether a form without a mark has become calls, and nothing but calls."""
        return ended and not self._sink.disqualified and any(isinstance(event, Call) for event in self._sink.events)

    def taken(self) -> list[ParseEvent]:
        """Return the events that have become certain since the last time."""
        if self.draft is not None:
            events, self.certain = self.certain, []
            return events
        if not self.certain:
            return self._sink.taken()
        events, self.certain = self.certain + self._sink.taken(), []
        return events


def _indent(text: str, before: int) -> int:
    """The blanks behind the last line end of `text`, which is blank from there on; `before` it stood others."""
    newline = text.rfind("\n")
    return len(text) - newline - 1 if newline >= 0 else before + len(text)
