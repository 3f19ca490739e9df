"""Text to typed values: the JSON Schema of a parameter applied to the text a model wrote for it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from parsing.literals import Unreadable, loads, number

Schema = Mapping[str, Any]

_ORDER = ("null", "integer", "number", "boolean", "object", "array")
_INLINE = {
    "str": "string", "text": "string", "int": "integer", "float": "number", "bool": "boolean", "none": "null",
    "list": "array", "dict": "object",
}  # fmt: skip
_MAX_HOPS = 20


def properties_of(schema: Schema) -> Mapping[str, Any]:
    """The parameters that a tool declares; empty for a schema that names none."""
    found = schema.get("properties")
    return found if isinstance(found, Mapping) else {}


def required_of(schema: Schema) -> list[str]:
    """The names of required parameters, in the schema's own order."""
    found = schema.get("required")
    return [name for name in found if isinstance(name, str)] if isinstance(found, list) else []


def coerce_text(text: str, schema: Schema, key: str, inline: str | None = None) -> Any:
    """The value of parameter `key`, written as raw `text`.

    A type that the model wrote itself (`inline`) outranks the schema. A plain string keeps the text byte for byte, and
    so does text that fits no allowed type: validation can then answer the model.
    """
    if inline is not None:
        word = inline.strip().lower()
        return coerce(text, {_INLINE.get(word, word)}, ())
    declared = properties_of(schema).get(key)
    if not isinstance(declared, Mapping):
        return text
    kinds, choices = allowed_types(declared, schema)
    return coerce(text, kinds, choices)


def is_plain_string(schema: Schema, key: str) -> bool:
    """Return whether parameter `key` takes any string and nothing else."""
    declared = properties_of(schema).get(key)
    return isinstance(declared, Mapping) and allowed_types(declared, schema)[0] == {"string"}


def allowed_types(declared: Schema, root: Schema) -> tuple[set[str], tuple[Any, ...]]:
    """The types and the fixed values that a schema allows."""
    kinds: set[str] = set()
    choices: list[Any] = []
    for part in _parts(declared, root, _MAX_HOPS):
        kind = part.get("type")
        kinds.update([kind] if isinstance(kind, str) else kind if isinstance(kind, list) else [])
        choices.extend(part["enum"] if isinstance(part.get("enum"), list) else [])
        choices.extend([part["const"]] if "const" in part else [])
    kinds.update(_kind(choice) for choice in choices if not kinds)
    return kinds, tuple(choices)


def _parts(declared: Schema, root: Schema, hops: int) -> Iterator[Schema]:
    if hops <= 0:
        return
    yield declared
    reference = declared.get("$ref")
    if isinstance(reference, str) and isinstance(target := _resolve(reference, root), Mapping):
        yield from _parts(target, root, hops - 1)
    for word in ("anyOf", "oneOf", "allOf"):
        branches = declared.get(word)
        for each in branches if isinstance(branches, list) else ():
            if isinstance(each, Mapping):
                yield from _parts(each, root, hops - 1)


def _resolve(reference: str, root: Schema) -> Any:
    target: Any = root
    for step in reference.removeprefix("#").strip("/").split("/"):
        if not isinstance(target, Mapping):
            return None
        target = target.get(step.replace("~1", "/").replace("~0", "~"))
    return target


def _kind(value: Any) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int():
            return "integer"
        case float():
            return "number"
        case str():
            return "string"
        case list():
            return "array"
    return "object"


def coerce(text: str, kinds: set[str], choices: tuple[Any, ...]) -> Any:
    """The text as the first allowed type it can be read as, else as it is."""
    if not kinds or kinds == {"string"}:
        return text
    word = text.strip()
    if "string" in kinds and any(isinstance(choice, str) and choice == text for choice in choices):
        return text
    for kind in _ORDER:
        if kind in kinds:
            read, value = _READ[kind](word)
            if read:
                return value
    return text


_MISS = (False, None)


def _null(word: str) -> tuple[bool, Any]:
    return (True, None) if word in ("null", "None") else _MISS


def _boolean(word: str) -> tuple[bool, Any]:
    lowered = word.lower()
    return (True, lowered == "true") if lowered in ("true", "false") else _MISS


def _integer(word: str) -> tuple[bool, Any]:
    read, value = _number(word)
    if read and isinstance(value, float):
        return (True, int(value)) if value.is_integer() and abs(value) < 2**53 else _MISS
    return read, value


def _number(word: str) -> tuple[bool, Any]:
    if not word or word[-1] not in "0123456789." or not set(word) <= set("+-0123456789.eE_"):
        return _MISS
    try:
        value = number(word)
    except Unreadable:
        return _MISS
    return (True, value) if abs(value) != float("inf") else _MISS


def _nested(word: str, opener: str, kind: type) -> tuple[bool, Any]:
    if not word.startswith(opener):
        return _MISS
    try:
        value = loads(word)
    except Unreadable:
        return _MISS
    return (True, value) if isinstance(value, kind) else _MISS


def _object(word: str) -> tuple[bool, Any]:
    return _nested(word, "{", dict)


def _array(word: str) -> tuple[bool, Any]:
    read = _nested(word, "[", list)
    return read if read[0] else _nested(word, "(", list)


_READ = {
    "null": _null, "integer": _integer, "number": _number, "boolean": _boolean, "object": _object, "array": _array,
}  # fmt: skip
