"""The JSON of a request's body: an object, not too deep, in which each key stands once."""

from __future__ import annotations

import json
from codecs import BOM_UTF8
from collections import Counter
from math import isfinite
from typing import Any

from routes.protocol.errors import Refused

ENCODING = "send JSON encoded as UTF-8"
MAX_DEPTH = 64  # of lists and objects within each other


class RepeatedKey(ValueError):
    """Readers of JSON differ on which of two values counts: one shows `deny`, another acts on `approve`."""


def read_object(body: bytes, field: str) -> dict[str, Any]:
    """The body's object. Raises Refused with 400 and an example with this field."""
    example = f'send an object such as {{"{field}": ...}}'
    try:
        fields = _DECODER.decode(_text(body))
    except RecursionError:
        raise Refused(400, "invalid_json", f"The body is nested too deeply; {example}") from None
    except RepeatedKey as repeated:
        raise Refused(400, "invalid_json", f"In the body {repeated}; send each key once") from None
    except ValueError as error:
        raise Refused(400, "invalid_json", f"The body is not JSON ({error}); {example}") from None
    if not isinstance(fields, dict):
        raise Refused(400, "invalid_json", f"The body is JSON but not an object; {example}")
    if body.count(b"[") + body.count(b"{") > MAX_DEPTH and _deep(fields):
        raise Refused(400, "invalid_json", f"The body is nested more than {MAX_DEPTH} levels deep; {example}")
    return fields


def _text(body: bytes) -> str:
    """JSON between systems is UTF-8 (RFC 8259, 8.1): guessed encodings are one more way to read a body twice.

    A byte order mark may be ignored, and is. Raises Refused.
    """
    try:
        text = body.removeprefix(BOM_UTF8).decode()
    except UnicodeDecodeError as error:
        raise Refused(400, "invalid_json", f"The body is not UTF-8 (at byte {error.start}); {ENCODING}") from None
    if "\0" in text:  # in every text of UTF-16 and UTF-32, and in none of JSON
        raise Refused(400, "invalid_json", f"The body contains null bytes, as UTF-16 does; {ENCODING}")
    return text


def _once_each(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Raises RepeatedKey."""
    fields = dict(pairs)
    if len(fields) < len(pairs):
        [(name, _)] = Counter(name for name, _ in pairs).most_common(1)
        raise RepeatedKey(f"an object has the key {name[:40]!a} twice")
    return fields


def _finite(number: str) -> float:
    """Raises ValueError: the model's server would be sent what is no JSON."""
    value = float(number)
    if not isfinite(value):
        raise ValueError(f"{number[:40]}is not a JSON number")
    return value


_DECODER = json.JSONDecoder(object_pairs_hook=_once_each, parse_float=_finite, parse_constant=_finite)


def _deep(fields: dict[str, Any]) -> bool:
    """Return whether lists and objects are nested more than MAX_DEPTH levels deep; level by level."""
    level: list[Any] = [fields]
    for _ in range(MAX_DEPTH):
        inner = (node.values() if isinstance(node, dict) else node for node in level)
        level = [child for children in inner for child in children if isinstance(child, dict | list)]
    return bool(level)
