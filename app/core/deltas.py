"""Deltas of a log, split and joined: what arrives together travels as one, within bounds."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from app.core.document_events import DocumentDelta
from app.core.events import Delta, Encoded, ReasoningDelta, TextDelta, ToolDelta

MAX_JOINED = 16_384  # characters: clients bound the size of one event
MAX_DELTA = 16_384  # characters of one delta: a watcher that stalls holds the event, its frame and what is sent of it


def parted(delta: Delta) -> Sequence[Delta]:
    """The delta, split into pieces of at most MAX_DELTA characters."""
    text = delta.text
    if len(text) <= MAX_DELTA:
        return (delta,)
    first, *rest = (text[at : at + MAX_DELTA] for at in range(0, len(text), MAX_DELTA))
    goes_on = replace(delta, name=None) if isinstance(delta, ToolDelta) else delta
    return [replace(delta, text=first), *(replace(goes_on, text=piece) for piece in rest)]


def joined(events: Sequence[Delta | Encoded]) -> list[Delta | Encoded]:
    """The events, with neighbouring deltas joined up to MAX_JOINED characters."""
    if len(events) == 1:  # as a rule
        return [*events]
    out: list[Delta | Encoded] = []
    row: list[str] = []
    size = 0
    for event in events:
        if isinstance(event, Delta):
            size += len(event.text)
            if out and size <= MAX_JOINED and _continues(out[-1], event):
                row.append(event.text)
                continue
            size = len(event.text)
        _close_row(out, row)
        out.append(event)
    _close_row(out, row)
    return out


def _continues(last: Delta | Encoded, event: Delta | Encoded) -> bool:
    match last, event:
        case TextDelta(call=open_block), TextDelta(call=block):
            return open_block == block
        case ReasoningDelta(), ReasoningDelta():
            return True
        case ToolDelta(call=open_call), ToolDelta(call=call, name=None):
            return open_call == call
        case DocumentDelta(document=open_document), DocumentDelta(document=document):
            return open_document == document
    return False


def _close_row(out: list[Delta | Encoded], row: list[str]) -> None:
    last = out[-1] if row else None
    if isinstance(last, Delta):
        out[-1] = replace(last, text=last.text + "".join(row))
        row.clear()
