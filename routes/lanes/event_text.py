"""The fields of a log's row, and the text of a delta as it stands there: JSON that goes into a frame as it is."""

from __future__ import annotations

import json
from typing import Any

from app.storage.runs import EventRow

WHITE = " \t\r\n"
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


def parted_end(text: str) -> tuple[str, str]:
    """Return a text with the blanks that it ends with, and what stands behind these: line ends, and white space."""
    end = text[len(text.rstrip(WHITE)) :].lstrip(" \t")
    return text[: len(text) - len(end)], end


def is_whole(literal: str) -> bool:
    """Return whether a JSON string surely has no line end at its end, perhaps with white space behind it."""
    return not literal[:-1].rstrip(" ").endswith(WHITE_ESCAPES)


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
