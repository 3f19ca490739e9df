"""The fields of a log's row, and the text of a delta as it stands there: JSON that goes into a frame as it is."""

from __future__ import annotations

import json
from typing import Any

from app.storage.runs import EventRow

WHITE_ESCAPES = ("\\n", "\\r", "\\t")  # which a backslash may stand in front of


def fields_of(row: EventRow) -> dict[str, Any]:
    fields: dict[str, Any] = json.loads(row.data)
    return fields


def text_literal(row: EventRow) -> str:
    """The `text` of a `text.delta` or `reasoning.delta` as a JSON string, quotes included, ASCII."""
    begins = f'{{"type": "{row.type}", "text": '
    if row.data.startswith(begins):  # as `app.core.events.encode` writes it: nearly always
        return row.data[len(begins) : -1]
    return json.dumps(fields_of(row)["text"])


def without_end(literal: str, held: str) -> tuple[str, str] | None:
    """Return a JSON string behind `held` spaces and without those that it ends with, and these.

    None if that takes more than looking at it: it holds nothing else, or other white space may stand at an end.
    """
    body = literal[1:-1].rstrip(" ")
    if not body or body.endswith(WHITE_ESCAPES) or held.strip(" "):
        return None
    return f'"{held}{body}"', " " * (len(literal) - 2 - len(body))


def joined_literals(literals: list[str]) -> str:
    """JSON strings as one; halves of a character that was cut meet again."""
    return f'"{"".join([one[1:-1] for one in literals])}"'


def arguments_text(arguments: dict[str, Any]) -> str:
    """The JSON text of a call's arguments, as clients show it; ASCII where half a character would break them."""
    text = json.dumps(arguments, ensure_ascii=False)
    try:
        text.encode()
    except UnicodeEncodeError:
        return json.dumps(arguments)
    return text
