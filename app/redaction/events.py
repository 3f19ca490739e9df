"""A run's events with their secrets hidden, also those that the model wrote in pieces."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from app.core.events import AgentEvent, Delta, ReasoningDelta, TextDelta, ToolDelta
from app.redaction.redactor import RedactedStream, Redactor

Stream = tuple[str, str]  # type of the deltas, and the call that they belong to


class RedactedEvents:
    """Events go in and come out in the same order; the deltas of each stream are one text, whatever comes between.

    The end of a delta is withheld while it may be the beginning of a secret, until the next event at the latest.
    """

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        self._begun: dict[Stream, RedactedStream] = {}  # those whose last words may be the beginning of a secret
        self._waiting: Stream | None = None  # the one of them that has not told all of it

    def add(self, event: AgentEvent) -> Sequence[AgentEvent]:
        if not isinstance(event, Delta):
            told: Sequence[AgentEvent] = [*self._tell_rest(), self._redactor.redact_value(event)]
            return told
        stream = (event.type, event.call if isinstance(event, ToolDelta) else "")
        if stream not in self._begun and self._redactor.is_plain(event.text):
            event = self._with_plain_name(event)
            return (event,) if self._waiting is None else [*self._tell_rest(), event]
        rest = self._tell_rest() if stream != self._waiting else ()
        return [*rest, *self._feed(stream, event)]

    def end(self) -> Sequence[AgentEvent]:
        """What was withheld of the last delta: nothing comes after it."""
        return self._tell_rest()

    def _feed(self, stream: Stream, event: Delta) -> Sequence[Delta]:
        held = self._begun.pop(stream, None) or RedactedStream(self._redactor)
        text = held.feed(event.text)
        self._waiting = stream if held.waits else None
        if not held.empty:
            self._begun[stream] = held
        named = isinstance(event, ToolDelta) and event.name is not None
        return [replace(self._with_plain_name(event), text=text)] if text or named else ()

    def _tell_rest(self) -> Sequence[Delta]:
        if self._waiting is None:
            return ()
        (kind, call), held = self._waiting, self._begun[self._waiting]
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
