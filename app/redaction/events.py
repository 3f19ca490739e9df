"""Redaction of a run's events, also of secrets that the model wrote in several deltas."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from app.core.document_events import DocumentDelta
from app.core.events import AgentEvent, Delta, ReasoningDelta, TextDelta, TextReclassified, ToolDelta
from app.redaction.redactor import RedactedStream, Redactor, Replaced

Stream = tuple[str, str]  # type of the deltas, and the call or document that they belong to
TEXT: Stream = (TextDelta.type, "")


class RedactedEvents:
    """Redacts events in their order; the deltas of each stream are one text, whatever comes between.

    The end of a delta is withheld while it may be the beginning of a secret, until the next event at the latest.
    Text that turns out to have been thought is counted, and repeated, as it was emitted: with the same marks. With
    `deltas_only` other events pass as they are: their secrets are looked for in their JSON.
    """

    def __init__(self, redactor: Redactor, *, deltas_only: bool = False) -> None:
        self._redactor = redactor
        self._deltas_only = deltas_only
        self._open: dict[Stream, RedactedStream] = {}  # those that end with what may be the beginning of a secret
        self._waiting: Stream | None = None  # the one of them that withholds text
        self._block: str | None = None  # the call whose block of code the text is
        self._length = 0  # of the text, before redaction
        self._replaced: list[Replaced] = []  # in the text
        self._repetition: Repetition | None = None  # as far as marks stand in it

    def add(self, event: AgentEvent) -> Sequence[AgentEvent]:
        if type(event) is TextDelta and TEXT not in self._open and self._redactor.is_plain(event.text):  # as a rule
            self._length += len(event.text)
            return (event,) if self._waiting is None else [*self.end(), event]
        if not isinstance(event, Delta):
            withheld = self.end()
            if isinstance(event, TextReclassified):
                return [*withheld, *self._reclassified(event)]
            return [*withheld, event if self._deltas_only else self._redactor.redact_value(event)]
        if self._repetition and isinstance(event, ReasoningDelta):
            event = ReasoningDelta(self._repetition.emitted(event.text))
            self._repetition = self._repetition if self._repetition.replaced else None
            if not event.text:
                return ()
        stream = (event.type, _of(event))
        if stream not in self._open and self._redactor.is_plain(event.text):
            event = self._with_plain_name(event)
            return (event,) if self._waiting is None else [*self.end(), event]
        block = event.call if isinstance(event, TextDelta) else self._block
        rest = self.end() if stream != self._waiting or block != self._block else ()
        self._block = block
        return [*rest, *self._feed(stream, event)]

    def _feed(self, stream: Stream, event: Delta) -> Sequence[Delta]:
        held = self._open.pop(stream, None) or self._begun(stream)
        text = held.feed(event.text)
        if stream == TEXT:
            self._length += len(event.text)
        self._waiting = stream if held.waits else None
        if not held.empty:
            self._open[stream] = held
        named = isinstance(event, ToolDelta) and event.name is not None
        return [replace(self._with_plain_name(event), text=text)] if text or named else ()

    def _begun(self, stream: Stream) -> RedactedStream:
        kept = (self._length, self._replaced) if stream == TEXT else ()
        return RedactedStream(self._redactor, *kept)

    def end(self) -> Sequence[Delta]:
        """The withheld end of the last delta."""
        if self._waiting is None:
            return ()
        (kind, of), held = self._waiting, self._open[self._waiting]
        self._waiting = None
        text = held.end()
        match kind:
            case TextDelta.type:
                return (TextDelta(text, self._block),)
            case ReasoningDelta.type:
                return (ReasoningDelta(text),)
            case DocumentDelta.type:
                return (DocumentDelta(of, text),)
        return (ToolDelta(of, text),)

    def _reclassified(self, event: TextReclassified) -> Sequence[TextReclassified]:
        """The same in emitted characters. A mark that stands for text on both sides of the border goes as well."""
        border = begin = max(0, self._length - event.characters)
        moved: list[Replaced] = []
        while self._replaced and self._replaced[-1].end > border:
            moved.append(self._replaced.pop())
            begin = min(begin, moved[-1].start)
        emitted = self._length - begin + sum(len(one.mark) - (one.end - one.start) for one in moved)
        if begin < border:
            self._replaced.append(Replaced(begin, border, ""))
        if held := self._open.get(TEXT):
            held.position -= self._length - border
        self._repetition = Repetition(border, moved) if moved else None
        self._length = border
        return (TextReclassified(emitted),) if emitted else ()

    def _with_plain_name(self, event: Delta) -> Delta:
        if isinstance(event, ToolDelta) and event.name is not None:
            return replace(event, name=self._redactor.redact(event.name))
        return event


def _of(event: Delta) -> str:
    match event:
        case ToolDelta(call=call):
            return call
        case DocumentDelta(document=document):
            return document
    return ""


class Repetition(Struct):
    """Text that comes again, from `position` on, with what was `replaced` in it, the last first."""

    position: int
    replaced: list[Replaced]

    def emitted(self, text: str) -> str:
        """The next piece as it was emitted."""
        parts, first, behind = list[str](), self.position, self.position + len(text)
        while self.replaced and self.replaced[-1].start < behind:
            one = self.replaced.pop()
            parts += [text[self.position - first : max(0, one.start - first)], one.mark]
            self.position = min(one.end, behind)
            if one.end > behind:
                self.replaced.append(Replaced(behind, one.end, ""))
        parts.append(text[self.position - first :])
        self.position = behind
        return "".join(parts)
