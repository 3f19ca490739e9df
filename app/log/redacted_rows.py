"""Redacted rows for the store."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from app.redaction.redactor import Redactor, texts_in
from app.storage.changes import Change

# Fields that are JSON, in whatever row they stand.
JSON_FIELDS = frozenset(
    (
        *("arguments", "attachments", "budget", "data", "disabled", "edited", "hosts", "message", "pattern", "policy"),
        "tools",
    )
)


def redacted_row(row: Change, redactor: Redactor) -> Change:
    """The same row; its texts may hold no secret, and what is JSON stays JSON."""
    if redactor.is_clean_json(texts_in(row)):  # as a rule
        return row
    changed: dict[str, Any] = {}
    for name in row.__struct_fields__:
        value = getattr(row, name)
        if isinstance(value, str):
            redact = redactor.redact_json if name in JSON_FIELDS else redactor.redact
            if (redacted := redact(value)) != value:
                changed[name] = redacted
    return replace(row, **changed) if changed else row
