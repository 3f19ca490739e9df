"""Calls of a client's tools, fitted to what the client declared: strict clients fail on any other name or argument."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from app.core.events import ToolHanded
from app.core.messages import AskedCall
from app.models.wire.native_calls import is_json_of
from app.redaction.redactor import Redactor
from parsing import Arguments
from parsing.aliases import loose
from parsing.arguments import Schema, parts_of, properties_of, resolve, types_in
from parsing.fitting import MAX_DEPTH, fit
from tools.base.patterns import lazy_pattern

LONGEST_NAME = 256  # characters that are looked at
_SEPARATORS = lazy_pattern(r"__|[.:/]")
_MARKUP = lazy_pattern(r"<\|.*")  # tokens of a template that the server has left in a name
_WRAPPERS = frozenset({"functions", "function", "tools", "tool", "defaultapi", "multitooluse", "mcp"})

Names = Callable[[str], Iterator[str]]


def handed_event(call: AskedCall, redactor: Redactor) -> ToolHanded:
    """Return the event of a call for the client, as the model wrote it if it was not changed and holds no secret."""
    written = redactor.redact_value(call).written if is_json_of(call.written, call.arguments) else ""
    return ToolHanded(call.id, call.name, call.arguments, call.dialect, written or None)


def fitted_for_client(name: str, arguments: Arguments, declared: Mapping[str, Schema]) -> tuple[str, Arguments]:
    """Return the call under the declared name that it can mean, without the arguments that its schema forbids.

    A name that can mean none of them, or more than one, is left as it is, and so are its arguments.
    """
    name = declared_name(name, declared)
    schema = declared.get(name)
    if not schema:
        return name, arguments
    return name, permitted(fit(arguments, schema)[0], schema)


def declared_name(name: str, declared: Mapping[str, Schema]) -> str:
    """Return the one declared name that this one can mean, or else the name itself."""
    if name in declared:
        return name
    plain = _MARKUP.sub("", name[:LONGEST_NAME]).strip(" \t\n`'\"()")
    for given, offered in _READINGS:
        wanted = set(given(plain)) - {""}
        found = [one for one in declared if wanted & set(offered(one))]
        if len(found) == 1:
            return found[0]
        if found:  # looser readings would find more
            return name
    return name


def _itself(name: str) -> Iterator[str]:
    yield name


def _caseless(name: str) -> Iterator[str]:
    yield name.casefold()


def _loose(name: str) -> Iterator[str]:
    """`read_file`, `readFile` and `read-file` alike."""
    yield loose(name)


def _without_wrapper(name: str) -> Iterator[str]:
    """`functions.bash` without its prefix, which is not part of any name."""
    head, found, rest = name.partition(".")
    if found and loose(head) in _WRAPPERS:
        yield from _loose(rest)


def _ends(name: str) -> Iterator[str]:
    """`mcp__files__read` as `files__read` and as `read`."""
    for separator in _SEPARATORS.finditer(name):
        yield from _loose(name[separator.end() :])


# How the given name and a declared one are read, from strict to loose.
_READINGS: tuple[tuple[Names, Names], ...] = (
    (_itself, _itself),
    (_caseless, _caseless),
    (_loose, _loose),
    (_without_wrapper, _loose),
    (_ends, _loose),
    (_loose, _ends),
    (_without_wrapper, _ends),
)


def permitted(arguments: Arguments, schema: Schema) -> Arguments:
    """Return the arguments without those that the schema forbids, at every depth.

    A forbidden name that is another spelling of a declared one, which is missing, is that one.
    """
    fitted: Arguments = _object(arguments, [schema], schema, 0)
    return fitted


def _object(value: Arguments, schemas: list[Schema], root: Schema, depth: int) -> Arguments:
    kept: Arguments = {}
    for key, inner in value.items():
        name = key if not _forbids_all(schemas, key, root) else _respelt(key, value, schemas, root)
        if name is not None:
            kept[name] = _value(inner, _schemas_of(name, schemas, root), root, depth + 1)
    return kept


def _value(value: Any, schemas: list[Schema], root: Schema, depth: int) -> Any:
    if not schemas or depth > MAX_DEPTH:
        return value
    match value:
        case dict():
            return _object(value, schemas, root, depth)
        case list():
            items = [part["items"] for part in _parts(schemas, root) if isinstance(part.get("items"), Mapping)]
            return [_value(each, items, root, depth + 1) for each in value]
    return value


def _parts(schemas: list[Schema], root: Schema) -> Iterator[Schema]:
    for schema in schemas:
        yield from parts_of(schema, root)


def _schemas_of(key: str, schemas: list[Schema], root: Schema) -> list[Schema]:
    """Return the schemas of a property, by its name or else as a further one."""
    found = [
        properties_of(part)[key] if key in properties_of(part) else part.get("additionalProperties")
        for part in _parts(schemas, root)
    ]
    return [one for one in found if isinstance(one, Mapping)]


def _respelt(key: str, value: Arguments, schemas: list[Schema], root: Schema) -> str | None:
    """Return the declared name that the key is another spelling of, unless the object has that, too."""
    names = {name for part in _parts(schemas, root) for name in properties_of(part)}
    found = [name for name in names if loose(name) == loose(key)]
    return found[0] if len(found) == 1 and found[0] not in value else None


def _forbids_all(schemas: list[Schema], key: str, root: Schema) -> bool:
    """Return whether each of the schemas, any of which may hold, forbids the property."""
    return bool(schemas) and all(_forbids(schema, key, root, set()) for schema in schemas)


def _forbids(schema: Schema, key: str, root: Schema, passed: set[int]) -> bool:
    """Return whether no object with this property can fit the schema. `passed` ends circles of references."""
    passed.add(id(schema))
    if schema.get("additionalProperties") is False and not _named(schema, key):
        return True
    if schema.get("unevaluatedProperties") is False and not any(_named(part, key) for part in parts_of(schema, root)):
        return True
    required = _next(schema.get("allOf"), passed)
    if isinstance(reference := schema.get("$ref"), str):
        required += _next([resolve(reference, root)], passed)
    if any(_forbids(each, key, root, passed) for each in required):
        return True
    return any(_all_forbid(schema.get(word), key, root, passed) for word in ("anyOf", "oneOf"))


def _all_forbid(branches: Any, key: str, root: Schema, passed: set[int]) -> bool:
    """Return whether all branches that an object can take forbid the property."""
    takes_objects = [one for one in _next(branches, passed) if "object" in (types_in([one])[0] or {"object"})]
    return bool(takes_objects) and all(_forbids(one, key, root, passed) for one in takes_objects)


def _next(schemas: Any, passed: set[int]) -> list[Schema]:
    found = schemas if isinstance(schemas, list) else []
    return [one for one in found if isinstance(one, Mapping) and id(one) not in passed]


def _named(schema: Schema, key: str) -> bool:
    """Return whether the schema declares the property; patterns of names may declare any."""
    return key in properties_of(schema) or bool(schema.get("patternProperties"))
