"""Values to the types that a schema wants, at every depth: the same argument is read alike in every dialect.

A string stays one wherever the schema allows a string. Where it does not, its text is read as raw text of that type
would be, and a sentence says so: the arguments that are decided on, shown and run are those that come out here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from parsing.aliases import renamed
from parsing.arguments import Schema, coerce, item_schemas, kind_of, parts_of, properties_of, property_schemas, types_in
from parsing.events import Arguments

MAX_DEPTH = 64
MAX_VALUES = 20_000
MAX_REPAIRS = 16
_OBJECT = (dict, Mapping)  # nearly always the first, which is found much faster
_UNCHANGED = (int, float, bool, type(None))
_ARTICLES = {"array": "an array", "object": "an object", "null": "null"}


def fit(arguments: Arguments, schema: Schema) -> tuple[Arguments, tuple[str, ...]]:
    """Return the arguments as the schema wants them, and a sentence for each text that was read as another type."""
    if not arguments or not schema or _fits_already(arguments, schema):
        return arguments, ()
    walk = _Walk(schema)
    return walk.object(arguments, walk.parts((schema,)), "", 0), tuple(walk.repairs)


def read_arguments(arguments: Arguments, schema: Schema) -> tuple[Arguments, tuple[str, ...]]:
    """Return the arguments of a call as its tool declares them, names and values, and a sentence for each repair.

    The one door for arguments, whatever the call was written in: what is decided on, shown and run comes out here.
    """
    arguments, named = renamed(arguments, schema) if arguments and schema else (arguments, ())
    fitted, typed = fit(arguments, schema)
    return fitted, (*named, *typed)


def _fits_already(arguments: Arguments, schema: Schema) -> bool:
    """Return whether all are scalars, and each text a declared string: nearly always, and found without a walk."""
    declared = properties_of(schema)
    if not declared:
        return False
    for key, value in arguments.items():
        if isinstance(value, str):
            wanted = declared.get(key)
            if not isinstance(wanted, _OBJECT) or wanted.get("type") != "string":
                return False
        elif not isinstance(value, _UNCHANGED):
            return False
    return True


class _Walk:
    """One walk through the values of a call, bounded in depth and in the number of values."""

    def __init__(self, root: Schema) -> None:
        self.repairs: list[str] = []
        self._root = root
        self._left = MAX_VALUES
        self._known: dict[tuple[int, ...], list[Schema]] = {}

    def parts(self, declared: Iterable[Schema]) -> list[Schema]:
        """All schemas that one value may or must fit."""
        declared = tuple(declared)
        key = tuple(map(id, declared))
        if key not in self._known:
            found = (part for each in declared for part in parts_of(each, self._root))
            self._known[key] = [*{id(part): part for part in found}.values()]
        return self._known[key]

    def value(self, value: Any, declared: list[Schema], path: str, depth: int) -> Any:
        self._left -= 1
        if isinstance(value, _UNCHANGED) or not declared or depth > MAX_DEPTH or self._left < 0:
            return value
        parts = self.parts(declared)
        match value:
            case dict():
                return self.object(value, parts, path, depth)
            case list():
                return self._array(value, parts, path, depth)
        return self._text(value, parts, path, depth)

    def object(self, value: Arguments, parts: list[Schema], path: str, depth: int) -> Arguments:
        fitted = {
            key: self.value(each, property_schemas(key, parts), f"{path}.{key}" if path else key, depth + 1)
            for key, each in value.items()
        }
        return fitted if any(fitted[key] is not each for key, each in value.items()) else value

    def _array(self, value: list[Any], parts: list[Schema], path: str, depth: int) -> list[Any]:
        items = item_schemas(parts)
        fitted = [self.value(each, items, f"{path}[{at}]", depth + 1) for at, each in enumerate(value)]
        return fitted if any(new is not old for new, old in zip(fitted, value, strict=True)) else value

    def _text(self, text: str, parts: list[Schema], path: str, depth: int) -> Any:
        kinds, choices = types_in(parts)
        if not kinds or ("string" in kinds and (not choices or text in choices)):
            return text
        value = coerce(text, kinds - {"string"}, choices)
        if isinstance(value, str) or ("string" in kinds and value not in choices):
            return text
        if len(self.repairs) < MAX_REPAIRS:
            self.repairs.append(f'"{path}" was text and is read as {_described(value)}.')
        return self.value(value, parts, path, depth + 1)


def _described(value: Any) -> str:
    kind = kind_of(value)
    return _ARTICLES.get(kind) or f"the {kind} {str(value).lower()[:40]}"
