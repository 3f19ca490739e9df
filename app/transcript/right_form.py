"""The right form of a wrong call, below the answer to it: in the form that this model is taught, whatever it wrote.

Arguments that fit stay as the model gave them, so that it can send the example as it is; the others are placeholders.
The line above the example names the call, whose id was drawn after everything that the model has read was written:
so it is known to be ours (`without_right_form`), and a call like it is no quotation.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from typing import Any

from app.core.provider import CallForm
from app.models.wire.native_calls import NATIVE
from parsing import Arguments
from parsing.aliases import renamed
from parsing.arguments import Schema, allowed_types, kind_of, properties_of, required_of
from parsing.fences import fenced_call

LONGEST = 400  # characters of an argument that is repeated, as JSON
MOST = 64  # arguments of an example: schemas of clients have as many as they like
MARK = '\n\n[The right form, in place of call "{call}":]\n'
PLACEHOLDERS: Mapping[str, Any] = {
    "integer": 1, "number": 1, "boolean": True, "array": [], "object": {}, "null": None,
}  # fmt: skip
SEARCHES = ("grep", "rg", "ripgrep")  # tools of other programs that are a command here


def right_form(call: str, dialect: str, form: CallForm, name: str, schema: Schema, *, given: Arguments) -> str:
    """Return the lines that show a call of the tool `name`, in place of a `call` that was written in `dialect`.

    Empty where the example would be too long to learn from.
    """
    if len(required_of(schema)) > MOST or len(given) > MOST:
        return ""
    arguments = example_arguments(schema, given)
    wanted = CallForm.NATIVE if dialect == NATIVE else form
    return MARK.format(call=call) + _WRITE[wanted](name, arguments, schema)


def without_right_form(text: str, call: str | None) -> str:
    """Return the answer to a call without the example that we have put below it."""
    return text.partition(MARK.format(call=call))[0] if call else text


def as_command(called: str, given: Arguments) -> Arguments:
    """Return the arguments, for a call of grep with the command that it means."""
    if called.casefold() not in SEARCHES or not isinstance(pattern := given.get("pattern"), str):
        return given
    path = given.get("path")
    words = ["grep", "-rnE", "-e", pattern, "--", path if isinstance(path, str) and path else "."]
    return {"command": shlex.join(words), **given}


def example_arguments(schema: Schema, given: Arguments) -> Arguments:
    """Return the required arguments, and those given that the tool declares: as given where that may fit."""
    declared, named = properties_of(schema), renamed(given, schema)[0]
    names = [*required_of(schema), *(name for name in named if name in declared)]
    return {name: _value(declared.get(name), name, named, schema) for name in dict.fromkeys(names)}


def _value(declared: Any, name: str, given: Arguments, schema: Schema) -> Any:
    kinds, choices = allowed_types(declared, schema) if isinstance(declared, Mapping) else (set[str](), ())
    if name in given and _may_stay(given[name], kinds, choices):
        return given[name]
    if choices:
        return choices[0]
    kind = next((one for one in ("string", *PLACEHOLDERS) if one in kinds), "string")
    return PLACEHOLDERS.get(kind, name.upper())


def _may_stay(value: Any, kinds: set[str], choices: tuple[Any, ...]) -> bool:
    kind = kind_of(value)
    fits = not kinds or kind in kinds or (kind == "integer" and "number" in kinds)
    return fits and (not choices or value in choices) and len(json.dumps(value)) <= LONGEST


def _native(name: str, arguments: Arguments, _: Schema) -> str:
    return f"{name} with the arguments {json.dumps(arguments, ensure_ascii=False)}"


def _tagged(name: str, arguments: Arguments, _: Schema) -> str:
    call = json.dumps({"name": name, "arguments": arguments}, ensure_ascii=False)
    return f"<tool_call>\n{call}\n</tool_call>"


_WRITE = {CallForm.NATIVE: _native, CallForm.TAGGED: _tagged, CallForm.FENCED: fenced_call}
