"""Bounds on schema validation: the schema of an untrusted tool must not be able to stop the server.

A pattern with catastrophic backtracking, circular references, or many branches for each of many items can take
unbounded time, and so can messages that show a long value for each of many branches.
Imported before the first check only: jsonschema takes 100 ms.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from functools import cache, lru_cache
from itertools import islice
from time import thread_time
from typing import Any

import regex
from jsonschema import Draft202012Validator, SchemaError, ValidationError
from jsonschema.protocols import Validator
from jsonschema.validators import extend, validator_for
from jsonschema_specifications import REGISTRY  # type: ignore[import-untyped]
from msgspec import Struct, field
from referencing.exceptions import Unresolvable

from tools.base.permit import canonical

MAX_STEPS = 10_000  # of one check: about 50 ms
REFERENCE_STEPS, SIZE_OF_STEP = 10, 16  # steps of a reference that is followed; fields and items that are a step
REFERENCES = frozenset({"$ref", "$dynamicRef", "$recursiveRef"})
MAX_S, MAX_PATTERN_S = 0.25, 0.1  # of CPU for one check, which no step count bounds, and for a search in it
LONGEST_PATTERN = 1_000  # characters, which take 5 ms to compile
SCHEMA_FAULTS = (SchemaError, Unresolvable, re.error)  # of a schema that is wrong itself

Check = Callable[[Any, Any, Any, Any], Iterator[ValidationError] | None]


class _Limits(Struct):
    steps: int = MAX_STEPS
    end_s: float = field(default_factory=lambda: thread_time() + MAX_S)  # by the clock of the thread


_limits: ContextVar[_Limits] = ContextVar("limits of the check under way")


class TooMuchWork(Exception):
    """A check exceeds its time or its number of steps."""


def errors_of(schema: str, value: Any, most: int) -> list[ValidationError]:
    """Return the first errors of a value, within the limits. Raises TooMuchWork, SCHEMA_FAULTS, RecursionError."""
    validator = _validator(schema)
    if isinstance(validator, Exception):
        raise validator.with_traceback(None)  # else it would grow with each call
    token = _limits.set(_Limits())
    try:
        return list(islice(validator.iter_errors(value), most))
    finally:
        _limits.reset(token)


@lru_cache(maxsize=512)
def _validator(schema: str) -> Validator | Exception:
    """Build a validator, or find the fault, once. References are never fetched: a schema must not cause requests."""
    read = json.loads(schema)
    kind = validator_for(read, default=Draft202012Validator)
    try:
        kind.check_schema(read)
    except SCHEMA_FAULTS as fault:
        return fault
    return _bounded(kind)(read, registry=REGISTRY)


def _spend(steps: int) -> float:
    """Take so many steps; return the seconds that are left. Raises TooMuchWork."""
    limits = _limits.get()
    limits.steps -= steps
    left_s = limits.end_s - thread_time()
    if limits.steps < 0 or left_s <= 0:
        raise TooMuchWork
    return left_s


@cache
def _bounded(kind: type[Validator]) -> type[Validator]:
    """The same kind of validator, whose checks raise TooMuchWork."""
    checks: dict[str, Check] = {name: _counted(check, name) for name, check in {**kind.VALIDATORS, **OWN}.items()}
    return extend(kind, checks)  # type: ignore[no-any-return, no-untyped-call]


def _counted(follow: Check, name: str) -> Check:
    least = REFERENCE_STEPS if name in REFERENCES else 1

    def check(validator: Any, wanted: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
        _spend(least + (_size(wanted) + _size(instance)) // SIZE_OF_STEP)
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


def _additional_properties(validator: Any, wanted: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
    """As jsonschema has it, which looks for the patterns without a limit."""
    patterns = schema.get("patternProperties", ())
    if patterns and isinstance(instance, dict):
        instance = {key: one for key, one in instance.items() if not any(_found(pattern, key) for pattern in patterns)}
        schema = {name: one for name, one in schema.items() if name != "patternProperties"}
    yield from Draft202012Validator.VALIDATORS["additionalProperties"](validator, wanted, instance, schema) or ()


OWN: dict[str, Check] = {
    "additionalProperties": _additional_properties,
    "pattern": _pattern,
    "patternProperties": _pattern_properties,
    "uniqueItems": _unique_items,
    "unevaluatedProperties": lambda *_: None,  # rare, and as above: the tool checks them itself
}


def _found(pattern: str, text: str) -> bool:
    """Return whether a text has a pattern; True for one that is too long, or of another dialect."""
    if len(pattern) > LONGEST_PATTERN:
        return True
    try:
        return regex.search(pattern, text, timeout=min(_spend(1), MAX_PATTERN_S)) is not None
    except TimeoutError as error:
        raise TooMuchWork from error
    except regex.error:
        return True  # the tool checks it itself
