"""The items of a request's input, as they are kept with its run and listed again."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from routes.lanes.reading import Node, plain_text

MOST_KEPT = 64 * 1024  # characters of JSON: the rest of a long conversation is in the session
LONG = 4096  # characters; the data of files are longer


def kept_items(given: Any) -> list[dict[str, Any]]:
    """The input's items, the newest if they are long, without the data of files."""
    if isinstance(given, (str, bytes)):
        given = [{"role": "user", "content": plain_text(given)}]
    kept, room = list[dict[str, Any]](), MOST_KEPT
    for item in reversed(given or ()):
        found = _listed(item)
        room -= len(json.dumps(found))
        if room < 0:
            break
        kept.append(found)
    return kept[::-1]


def items_in(body: Node) -> Sequence[Node]:
    """The items of a request's input, which may be a text instead."""
    return body.children("input") if isinstance(body.fields.get("input"), list) else ()


def items_of(body: Node, kind: str) -> list[Node]:
    """The items of this type among a request's input."""
    return [item for item in items_in(body) if item.fields.get("type") == kind]


def _listed(item: Mapping[str, Any]) -> dict[str, Any]:
    found = {name: _without_data(value) for name, value in item.items()}
    if "role" not in found:
        return found
    kind = "output_text" if found["role"] == "assistant" else "input_text"
    if isinstance(found.get("content"), str):
        found["content"] = [{"type": kind, "text": found["content"]}]
    return {"type": "message", "status": "completed"} | found


def _without_data(value: Any) -> Any:
    match value:
        case bytes():
            return None
        case str() if len(value) > LONG and value.startswith("data:"):
            return None
        case dict():
            return {name: _without_data(inner) for name, inner in value.items()}
        case list():
            return [_without_data(inner) for inner in value]
    return value


def listed(items: Sequence[Mapping[str, Any]], stem: str) -> list[dict[str, Any]]:
    """The items with ids, those of the client where it sent some."""
    return [{"id": f"in_{stem}_{at}"} | dict(item) for at, item in enumerate(items)]
