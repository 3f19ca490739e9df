"""Text to typed values: the JSON Schema of a parameter applied to the text a model wrote for it."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from parsing.literals import Unreadable, loads, number

Schema = Mapping[str, Any]

_ORDER = ("null", "integer", "number", "boolean", "object", "array")
# Names of types in the wild, in schemas and in markup.
_TYPES = {
    "str": "string", "text": "string", "int": "integer", "float": "number", "double": "number", "bool": "boolean",
    "long": "integer", "short": "integer", "int32": "integer", "int64": "integer", "uint32": "integer",
    "uint64": "integer", "num": "number", "decimal": "number", "none": "null", "list": "array", "tuple": "array",
    "dict": "object",
}  # fmt: skip
_OBJECT = (dict, Mapping)  # nearly always the first, which is found much faster
MOST_PARTS = 200
_ALTERNATIVES = ("anyOf", "oneOf", "allOf")
_FURTHER = frozenset(("$ref", *_ALTERNATIVES))  # a schema has more parts where these stand
_NUMBERS = {"number": "integer", "integer": "number"}  # either name may stand for the other
ANY_JSON = "json"  # the inline type of a value that is JSON, whichever
_ENTITY = re.compile(r"&(?:amp|quot|lt|gt|apos|#\d{1,7}|#[xX][0-9a-fA-F]{1,6});")


def properties_of(schema: Schema) -> Mapping[str, Any]:
    """The parameters that a tool declares; empty for a schema that names none."""
    found = schema.get("properties")
    return found if isinstance(found, _OBJECT) else {}


def required_of(schema: Schema) -> list[str]:
    """The names of required parameters, in the schema's own order."""
    found = schema.get("required")
    return [name for name in found if isinstance(name, str)] if isinstance(found, list) else []


def unescaped(text: str) -> str:
    """Attribute or key text of XML without its escapes; a bare `&` is none, whatever follows it."""
    return _ENTITY.sub(lambda match: html.unescape(match.group()), text) if "&" in text else text


def coerce_text(text: str, schema: Schema, key: str, inline: str | None = None) -> Any:
    """The value of parameter `key`, written as raw `text`.

    A type that the model wrote itself (`inline`) decides between the types that the schema allows. A plain string
    keeps the text byte for byte, and so does text that fits no allowed type: validation can then answer the model.
    """
    declared = properties_of(schema).get(key)
    if inline != ANY_JSON and _is_only_string(declared):
        return text
    kinds, choices = allowed_types(declared, schema) if isinstance(declared, Mapping) else (set[str](), ())
    # A parameter of any type may be an object or a list; other words are text, which such a one may be as well.
    of_any_type = inline is None and not kinds and isinstance(declared, Mapping)
    if inline == ANY_JSON or (of_any_type and text.lstrip()[:1] in ("{", "[")):
        return _json(text, kinds, choices)
    return coerce(text, _narrowed(kinds, inline), choices)


def _is_only_string(declared: object) -> bool:
    """Return whether this schema is a string, found at first sight."""
    return isinstance(declared, dict) and declared.get("type") == "string" and _FURTHER.isdisjoint(declared)


def _narrowed(kinds: set[str], inline: str | None) -> set[str]:
    if inline is None:
        return kinds
    word = type_name(inline)
    for kind in (word, _NUMBERS.get(word)):
        if kind in kinds:
            return {kind}
    return kinds or {word}


def _json(text: str, kinds: set[str], choices: tuple[Any, ...]) -> Any:
    try:
        value = loads(text.strip())
    except Unreadable:
        return coerce(text, kinds, choices)
    kind = kind_of(value)
    return value if not kinds or kind in kinds or _NUMBERS.get(kind) in kinds else coerce(text, kinds, choices)


def is_plain_string(schema: Schema, key: str) -> bool:
    """Return whether parameter `key` takes any string and nothing else."""
    declared = properties_of(schema).get(key)
    return isinstance(declared, Mapping) and allowed_types(declared, schema)[0] == {"string"}


def allowed_types(declared: Schema, root: Schema) -> tuple[set[str], tuple[Any, ...]]:
    """The types and the fixed values that a schema allows."""
    return types_in(parts_of(declared, root))


def types_in(parts: Iterable[Schema]) -> tuple[set[str], tuple[Any, ...]]:
    kinds: set[str] = set()
    choices: list[Any] = []
    for part in parts:
        kind = part.get("type")
        named = [kind] if isinstance(kind, str) else kind if isinstance(kind, list) else []
        kinds.update(type_name(each) for each in named if isinstance(each, str))
        choices.extend(part["enum"] if isinstance(part.get("enum"), list) else [])
        choices.extend([part["const"]] if "const" in part else [])
    if not kinds:
        kinds.update(kind_of(choice) for choice in choices)
    return kinds, tuple(choices)


def type_name(word: str) -> str:
    """The name that JSON Schema has for a type."""
    word = word.strip().lower()
    return _TYPES.get(word, word)


def parts_of(declared: Schema, root: Schema) -> list[Schema]:
    """The schemas that one value may or must fit: itself, what it refers to, and its alternatives; each once.

    Of thousands, which each call would be read with, only the first MOST_PARTS.
    """
    found: dict[int, Schema] = {}
    waiting = [declared]
    while waiting and len(found) < MOST_PARTS:
        part = waiting.pop()
        if id(part) in found:
            continue
        found[id(part)] = part
        waiting += reversed([*_next_parts(part, root)])
    return [*found.values()]


def _next_parts(part: Schema, root: Schema) -> Iterator[Schema]:
    reference = part.get("$ref")
    if isinstance(reference, str) and isinstance(target := resolve(reference, root), Mapping):
        yield target
    for word in _ALTERNATIVES:
        branches = part.get(word)
        yield from (each for each in (branches if isinstance(branches, list) else ()) if isinstance(each, Mapping))


def property_schemas(key: str, parts: Iterable[Schema]) -> list[Schema]:
    """The schemas of one property, by its name or else as a further one."""
    found = [properties_of(part).get(key, part.get("additionalProperties")) for part in parts]
    return [each for each in found if isinstance(each, Mapping)]


def item_schemas(parts: Iterable[Schema]) -> list[Schema]:
    """The schemas of the items of an array."""
    return [part["items"] for part in parts if isinstance(part.get("items"), Mapping)]


def resolve(reference: str, root: Schema) -> Any:
    """Return the part of the root schema that `$ref` refers to, such as `#/$defs/node`; None if there is none."""
    target: Any = root
    for step in reference.removeprefix("#").strip("/").split("/"):
        if not isinstance(target, Mapping):
            return None
        target = target.get(step.replace("~1", "/").replace("~0", "~"))
    return target


def kind_of(value: Any) -> str:
    """The type of a value, as JSON Schema names it."""
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
    if "string" in kinds and (not word or any(isinstance(each, str) and each == text for each in choices)):
        return text
    for written in (word, *_unquoted(word)):
        for kind in _ORDER:
            if kind in kinds:
                read, value = _READ[kind](written)
                if read:
                    return value
    return text


def _unquoted(word: str) -> tuple[str, ...]:
    """The inside of a quoted word, if it is one; the quotes may be escaped."""
    match = _QUOTED.match(word)
    return (match["inner"],) if match else ()


_QUOTED = re.compile(r"""\\?(?P<quote>["'])(?P<inner>[^"'\\]{1,100})\\?(?P=quote)\Z""")
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


def _object(word: str) -> tuple[bool, Any]:
    return _nested(word, "{", dict) if word else (True, {})


def _array(word: str) -> tuple[bool, Any]:
    return _nested(word, "[(", list) if word else (True, [])


def _nested(word: str, openers: str, kind: type) -> tuple[bool, Any]:
    for text in _spellings(word):
        if text[:1] not in openers or not text:
            continue
        try:
            value = loads(text)
        except Unreadable:
            continue
        if isinstance(value, kind):
            return True, value
    return _MISS


def _spellings(word: str) -> Iterator[str]:
    """The text as it is, then with one level of escaping undone."""
    if "&quot;" in word and '"' not in word:  # or its escapes are words without quotes
        yield unescaped(word).strip()
    yield word
    if "\\" in word or word[:1] in "\"'":
        try:
            inner = loads(word) if word[:1] in "\"'" else json.loads(f'"{word}"', strict=False)
        except ValueError:
            inner = None
        if isinstance(inner, str):
            yield inner.strip()


_READ = {
    "null": _null, "integer": _integer, "number": _number, "boolean": _boolean, "object": _object, "array": _array,
}  # fmt: skip
