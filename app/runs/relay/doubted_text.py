"""The text of a relayed reply whose model calls natively, and has written calls as text.

A relay has one round and cannot ask the model again. So what follows the first such call is held until the reply has
ended: then calls are handed over as native ones, and what may be a quotation is shown as text, where it stood.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from msgspec import Struct, field

from app.core.events import AgentEvent, TextDelta, TextReclassified, ToolDelta, ToolRejected
from app.transcript.reply import LEFT, Reply
from app.transcript.reply_calls import TWICE


class DoubtedText(Struct):
    """Holds back text of one reply from its first call in text on."""

    reply: Reply
    _held: list[TextDelta | ToolRejected | str] = field(default_factory=list)  # events, and calls by their ids
    _calls: set[str] = field(default_factory=set)

    def passed(self, events: Iterable[AgentEvent]) -> Iterable[AgentEvent]:
        return self._passed(events) if self.reply.doubts_text else events

    def _passed(self, events: Iterable[AgentEvent]) -> Iterator[AgentEvent]:
        for event in events:
            match event:
                case ToolDelta(call, name=str()) | ToolRejected(_, str(call)) if call in self.reply.found_calls.places:
                    if call not in self._calls:
                        self._calls.add(call)
                        self._held.append(call)
                    if isinstance(event, ToolRejected):
                        self._held.append(event)
                    else:
                        yield event
                case TextDelta() if self._held:
                    self._held.append(event)
                case TextReclassified(characters):
                    held, self._held = self._held, []
                    of_text = sum(len(one.text) for one in held if isinstance(one, TextDelta))
                    if sent := max(0, characters - of_text):
                        yield TextReclassified(sent)
                    yield from (one for one in held if isinstance(one, ToolRejected) and one.reason == TWICE)
                case _:
                    yield event

    def released(self, left: Mapping[str, str]) -> Iterator[AgentEvent]:
        """Yield what was held, with the text of the calls that were `left` in it."""
        held, self._held = self._held, []
        for one in held:
            match one:
                case str(call) if call in left:
                    yield ToolRejected(LEFT, call)
                    if left[call]:
                        yield TextDelta(left[call])
                case ToolRejected(_, call) if call in left:
                    pass
                case TextDelta() | ToolRejected():
                    yield one
