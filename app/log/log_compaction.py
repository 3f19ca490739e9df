"""A log in fewer rows, once its run has ended: neighbouring deltas joined, superseded progress left out.

A joined row keeps the last delta's number and how long each delta was, so that a reader who has seen some of them gets
exactly the text that is left.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from app.core.deltas import MAX_JOINED
from app.core.document_events import DocumentDelta
from app.core.events import ReasoningDelta, TextDelta, ToolDelta, ToolProgress
from app.storage.runs import EventRow

DELTAS = frozenset({TextDelta.type, ReasoningDelta.type, ToolDelta.type, DocumentDelta.type})
MAX_PARTS = 4096  # deltas joined into one row


def joined_rows(rows: Sequence[EventRow]) -> list[EventRow]:
    """The same log in fewer rows; linear."""
    out: list[EventRow] = []
    group: list[tuple[EventRow, dict[str, Any]]] = []
    size = 0
    for row in _without_old_progress(rows):
        fields = _fields(row) if row.type in DELTAS and row.parts is None else None
        size += len(fields["text"]) if fields else 0
        if group and not (fields and size <= MAX_JOINED and _continues(group, row, fields)):
            out.append(_joined(group))
            group = []
            size = len(fields["text"]) if fields else 0
        if fields is None:
            out.append(row)
        else:
            group.append((row, fields))
    return [*out, _joined(group)] if group else out


def _fields(row: EventRow) -> dict[str, Any]:
    """The fields of a delta. One with nothing but text that has no escapes, as most have, is not parsed."""
    begins = f'{{"type": "{row.type}", "text": "'
    if row.data.startswith(begins) and "\\" not in row.data and '"' not in (text := row.data[len(begins) : -2]):
        return {"type": row.type, "text": text}
    fields: dict[str, Any] = json.loads(row.data)
    return fields


def rest_after(row: EventRow, after: int) -> EventRow:
    """Return the part of a joined row after event `after`; other rows are whole."""
    if row.parts is None:
        return row
    parts: list[int] = json.loads(row.parts)
    seen = after - (row.seq - len(parts))
    if seen <= 0:
        return row
    fields = json.loads(row.data)
    fields["text"] = fields["text"][sum(parts[:seen]) :]
    fields.pop("name", None)
    return replace(row, data=json.dumps(fields))


def _continues(group: list[tuple[EventRow, dict[str, Any]]], row: EventRow, fields: dict[str, Any]) -> bool:
    last, first_fields = group[-1][0], group[0][1]
    return (
        row.type == last.type
        and row.seq == last.seq + 1
        and fields.get("call") == first_fields.get("call")
        and fields.get("document") == first_fields.get("document")
        and "name" not in fields
        and not _splits_character(group[-1][1]["text"], fields["text"])
        and len(group) < MAX_PARTS
    )


def _splits_character(left: str, right: str) -> bool:
    """Return True if two halves of a surrogate pair would meet: read back as JSON they are one character."""
    return "\ud800" <= left[-1:] <= "\udbff" and "\udc00" <= right[:1] <= "\udfff"


def _joined(group: list[tuple[EventRow, dict[str, Any]]]) -> EventRow:
    if len(group) == 1:
        return group[0][0]
    texts = [fields["text"] for _, fields in group]
    data = group[0][1] | {"text": "".join(texts)}
    return replace(group[-1][0], data=json.dumps(data), parts=json.dumps([len(text) for text in texts]))


def _without_old_progress(rows: Sequence[EventRow]) -> list[EventRow]:
    """Only the last progress before another event: each says all that those before it said."""
    following = [*rows[1:], None][: len(rows)]
    return [
        row
        for row, later in zip(rows, following, strict=True)
        if row.type != ToolProgress.type or later is None or later.type != ToolProgress.type
    ]
