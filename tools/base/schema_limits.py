"""Bounds on schema validation: the schema of an untrusted tool must not be able to stop the server.

A pattern with catastrophic backtracking, circular references, or many branches for each of many items can take
unbounded time.
Imported before the first check only: jsonschema takes 100 ms.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache, lru_cache
from itertools import islice
from typing import Any

import regex
from jsonschema import Draft202012Validator, SchemaError, ValidationError
from jsonschema.protocols import Validator
from jsonschema.validators import extend, validator_for
from jsonschema_specifications import REGISTRY  # type: ignore[import-untyped]
from referencing.exceptions import Unresolvable

from tools.base.permit import canonical

MAX_STEPS = 10_000  # of one check: about 50 ms
REFERENCE_STEPS, SIZE_OF_STEP = 10, 16  # steps of a reference that is followed; fields and items that are a step
REFERENCES = frozenset({"$ref", "$dynamicRef", "$recursiveRef"})
MAX_PATTERN_S = 0.1
SCHEMA_FAULTS = (SchemaError, Unresolvable, re.error)  # of a schema that is wrong itself

Check = Callable[[Any, Any, Any, Any], Iterator[ValidationError] | None]

_left: ContextVar[list[int]] = ContextVar("steps that may still be taken")


class TooMuchWork(Exception):
    """A check exceeds its time or its number of steps."""


def errors_of(schema: str, value: Any, most: int) -> list[ValidationError]:
    """Return the first errors of a value, within the limits. Raises TooMuchWork, SCHEMA_FAULTS, RecursionError."""
    with _limited():
        return list(islice(_validator(schema).iter_errors(value), most))


@lru_cache(maxsize=512)
def _validator(schema: str) -> Validator:
    """Build a validator, cached per schema. References are never fetched: a schema must not cause requests."""
    read = json.loads(schema)
    kind = validator_for(read, default=Draft202012Validator)
    kind.check_schema(read)
    return _bounded(kind)(read, registry=REGISTRY)


@contextmanager
def _limited() -> Iterator[None]:
    """Set the limits of one check."""
    token = _left.set([MAX_STEPS])
    try:
        yield
    finally:
        _left.reset(token)


@cache
def _bounded(kind: type[Validator]) -> type[Validator]:
    """The same kind of validator, whose checks raise TooMuchWork."""
    checks: dict[str, Check] = {name: _counted(check, name) for name, check in {**kind.VALIDATORS, **OWN}.items()}
    return extend(kind, checks)  # type: ignore[no-any-return, no-untyped-call]


def _counted(follow: Check, name: str) -> Check:
    least = REFERENCE_STEPS if name in REFERENCES else 1

    def check(validator: Any, wanted: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
        left = _left.get()
        left[0] -= least + (_size(wanted) + _size(instance)) // SIZE_OF_STEP
        if left[0] < 0:
            raise TooMuchWork
        yield from follow(validator, wanted, instance, schema) or ()

    return check


def _size(value: Any) -> int:
    return len(value) if isinstance(value, dict | list) else 0


def _unique_items(_validator: Any, wanted: Any, instance: Any, _schema: Any) -> Iterator[ValidationError]:
    """In one go: jsonschema compares each item with each, which takes 10 s for 4,000 objects."""
    if wanted and isinstance(instance, list) and len(set(map(canonical, instance))) < len(instance):
        yield ValidationError("has items that are the same")


def _pattern(_validator: Any, pattern: Any, instance: Any, _schema: Any) -> Iterator[ValidationError]:
    if isinstance(instance, str) and not _found(pattern, instance):
        yield ValidationError(f"{instance!r} does not match {pattern!r}")


def _pattern_properties(validator: Any, patterns: Any, instance: Any, _schema: Any) -> Iterator[ValidationError]:
    for pattern, subschema in patterns.items() if isinstance(instance, dict) else ():
        for key, value in instance.items():
            if _found(pattern, key):
                yield from validator.descend(value, subschema, path=key, schema_path=pattern)


OWN: dict[str, Check] = {
    "pattern": _pattern,
    "patternProperties": _pattern_properties,
    "uniqueItems": _unique_items,
}


def _found(pattern: str, text: str) -> bool:
    try:
        return regex.search(pattern, text, timeout=MAX_PATTERN_S) is not None
    except TimeoutError as error:
        raise TooMuchWork from error
    except regex.error:
        return True  # a pattern of another dialect: the tool checks it itself
