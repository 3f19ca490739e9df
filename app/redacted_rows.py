"""What the store keeps, with its secrets hidden."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

from app.redaction import Redactor
from app.store import Change

# Fields that are JSON, in whatever row they stand.
JSON_FIELDS = frozenset(
    {"arguments", "attachments", "budget", "data", "disabled", "edited", "message", "pattern", "policy", "tools"}
)


def redacted_row(row: Change, redactor: Redactor) -> Change:
    """The same row; its texts may hold no secret, and what is JSON stays JSON."""
    changed: dict[str, Any] = {}
    for field in fields(row):
        value = getattr(row, field.name)
        if isinstance(value, str):
            redact = redactor.redact_json if field.name in JSON_FIELDS else redactor.redact
            if (redacted := redact(value)) != value:
                changed[field.name] = redacted
    return replace(row, **changed) if changed else row
