"""Validation of arguments against a JSON Schema, with errors that a model can act on."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from parsing import Arguments
from tools.base.texts import shortened

if TYPE_CHECKING:
    from jsonschema import ValidationError

LONGEST_OF_CLIENT = 16_000  # characters of a schema, which take 40 ms
LONGEST_CHECKED = 64_000  # no other schema is longer
_MAX_ERRORS = 5
CHECKS = "tools.base.schema_limits"  # 40 ms and 3 MB: to be imported in another thread before the first check
_SHOWN = 100
CORRECT = "Correct this and call again."  # ends the description of errors that the model can correct


def argument_error(name: str, schema: dict[str, Any], arguments: Arguments) -> str | None:
    """Describe at most five errors in the arguments of the tool `name`; None when they are valid."""
    from tools.base.schema_limits import SCHEMA_FAULTS, TooMuchWork, errors_of

    try:
        errors = errors_of(json.dumps(schema), arguments, _MAX_ERRORS)
    except TooMuchWork:
        return f"The arguments of {name} take too long to check against its schema: send simpler ones."
    except SCHEMA_FAULTS as error:
        return f"{name} cannot be used, because its own schema is wrong ({_cut(str(error))}). Use another tool."
    except RecursionError:
        return f"The arguments of {name} are nested too deeply: send simpler ones."
    return _sentence(name, errors)


def client_argument_error(name: str, schema: dict[str, Any], arguments: Arguments) -> str | None:
    """Describe the errors in arguments for a client's tool, which the client checks as well.

    A schema that is wrong or long allows any object. It is not checked before there is a call: a client sends hundreds
    of schemas with each request, and each would take milliseconds.
    """
    from tools.base.schema_limits import SCHEMA_FAULTS, TooMuchWork, errors_of

    try:
        written = json.dumps(schema)
        errors = errors_of(written, arguments, _MAX_ERRORS) if len(written) <= LONGEST_OF_CLIENT else []
    except (*SCHEMA_FAULTS, RecursionError, TooMuchWork):
        return None
    return _sentence(name, errors)


def _sentence(name: str, errors: list[ValidationError]) -> str | None:
    if not errors:
        return None
    wrong = "; ".join(map(_describe_error, errors))
    return f"The arguments of {name} do not fit: {wrong}. {CORRECT}"


def schema_error(schema: dict[str, Any]) -> str | None:
    """Describe the error in a schema itself; None when it can be used."""
    from tools.base.schema_limits import SCHEMA_FAULTS, TooMuchWork, errors_of

    try:
        errors_of(json.dumps(schema), {}, 1)
    except (*SCHEMA_FAULTS, RecursionError, TooMuchWork) as error:
        return _cut(str(error).partition("\n")[0])
    return None


def _describe_error(error: ValidationError) -> str:
    if error.validator == "required":
        # One error for each missing name, and only the message names it.
        names: Any = error.validator_value
        missing = next(name for name in names if error.message.startswith(f"{name!r} is"))
        wanted = (error.schema.get("properties") or {}).get(missing) if isinstance(error.schema, dict) else None
        return f"{_path(*error.absolute_path, missing)} is missing, wanted {_wanted_of(wanted)}"
    if error.validator == "additionalProperties":
        return _cut(error.message)
    given = _cut(json.dumps(error.instance, ensure_ascii=False, default=str))
    return f"{_path(*error.absolute_path) or 'all of it'} was given {given}, wanted {_wanted(error)}"


def _wanted(error: ValidationError) -> str:
    describe = _WANTED.get(str(error.validator))
    return (
        describe(error.validator_value) if describe else _cut(f"{error.validator} {json.dumps(error.validator_value)}")
    )


def _wanted_of(schema: object) -> str:
    if isinstance(schema, dict) and "type" in schema:
        return _type(schema["type"])
    return "a value"


def _type(wanted: str | list[str]) -> str:
    names = [wanted] if isinstance(wanted, str) else wanted
    return " or ".join(names)


_WANTED: dict[str, Callable[[Any], str]] = {
    "type": _type,
    "enum": lambda values: _cut("one of " + ", ".join(json.dumps(value) for value in values)),
    "const": lambda value: _cut(json.dumps(value)),
    "minimum": lambda least: f"at least {least}",
    "maximum": lambda most: f"at most {most}",
    "minLength": lambda least: f"at least {least} characters",
    "maxLength": lambda most: f"at most {most} characters",
    "minItems": lambda least: f"at least {least} items",
    "maxItems": lambda most: f"at most {most} items",
}


def _path(*steps: str | int) -> str:
    """`items[2].name`, as a model would write it."""
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in steps).removeprefix(".")


def _cut(text: str) -> str:
    return shortened(text, _SHOWN)
