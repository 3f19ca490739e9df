"""Encoding of request bodies: JSON that every server's parser accepts."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

PROMPT = ("tools", "system", "messages")
_compact = json.JSONEncoder(separators=(",", ":"))


class EncodedJSON(str):
    """A value that has been encoded before; a list may begin with the items of `opening`, which others share."""

    opening = ""


def encode(body: Mapping[str, Any]) -> bytes:
    """Return the body as ASCII-escaped JSON, so that no character in it can break the encoder."""
    fields = [f'"{name}":{value}' for name, value in body.items() if isinstance(value, EncodedJSON)]
    others = {name: value for name, value in body.items() if not isinstance(value, EncodedJSON)}
    if others:
        fields.insert(0, encoded(others)[1:-1])
    return f"{{{','.join(fields)}}}".encode("ascii")


def with_encoded_prompt(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return the body with the fields of its prompt encoded, in the order in which models read them."""
    prompt = {name: encoded(body[name]) for name in PROMPT if name in body}
    return {name: value for name, value in body.items() if name not in prompt} | prompt


def encoded(value: Any) -> EncodedJSON:
    return value if isinstance(value, EncodedJSON) else EncodedJSON(_compact.encode(value))


def encodable_fields(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name: encodable(value) if isinstance(value, str) else value for name, value in fields.items()}


def encodable(text: str) -> str:
    """Join surrogate pairs and replace lone surrogates by U+FFFD; some JSON parsers (llama.cpp) refuse them."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def encodable_value(value: Any) -> Any:
    """Return the JSON value with lone surrogates replaced in all of its strings and keys."""
    return json.loads(encodable(json.dumps(value, ensure_ascii=False)))
