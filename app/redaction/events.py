"""Redaction of a run's events, also of secrets that the model wrote in several deltas."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from app.core.events import AgentEvent, Delta, ReasoningDelta, TextDelta, ToolDelta
from app.redaction.redactor import RedactedStream, Redactor

Stream = tuple[str, str]  # type of the deltas, and the call that they belong to


class RedactedEvents:
    """Redacts events in their order; the deltas of each stream are one text, whatever comes between.

    The end of a delta is withheld while it may be the beginning of a secret, until the next event at the latest.
    """

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        self._open: dict[Stream, RedactedStream] = {}  # those that end with what may be the beginning of a secret
        self._waiting: Stream | None = None  # the one of them that withholds text

    def add(self, event: AgentEvent) -> Sequence[AgentEvent]:
        if not isinstance(event, Delta):
            events: Sequence[AgentEvent] = [*self._flush(), self._redactor.redact_value(event)]
            return events
        stream = (event.type, event.call if isinstance(event, ToolDelta) else "")
        if stream not in self._open and self._redactor.is_plain(event.text):
            event = self._with_plain_name(event)
            return (event,) if self._waiting is None else [*self._flush(), event]
        rest = self._flush() if stream != self._waiting else ()
        return [*rest, *self._feed(stream, event)]

    def end(self) -> Sequence[AgentEvent]:
        """The withheld end of the last delta."""
        return self._flush()

    def _feed(self, stream: Stream, event: Delta) -> Sequence[Delta]:
        held = self._open.pop(stream, None) or RedactedStream(self._redactor)
        text = held.feed(event.text)
        self._waiting = stream if held.waits else None
        if not held.empty:
            self._open[stream] = held
        named = isinstance(event, ToolDelta) and event.name is not None
        return [replace(self._with_plain_name(event), text=text)] if text or named else ()

    def _flush(self) -> Sequence[Delta]:
        if self._waiting is None:
            return ()
        (kind, call), held = self._waiting, self._open[self._waiting]
        self._waiting = None
        text = held.end()
        match kind:
            case TextDelta.type:
                return (TextDelta(text),)
            case ReasoningDelta.type:
                return (ReasoningDelta(text),)
        return (ToolDelta(call, text),)

    def _with_plain_name(self, event: Delta) -> Delta:
        if isinstance(event, ToolDelta) and event.name is not None:
            return replace(event, name=self._redactor.redact(event.name))
        return event
