"""Calls written as JSON: which key holds the name, which the arguments, which further calls."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from parsing.arguments import properties_of, required_of
from parsing.events import Arguments
from parsing.literals import Unreadable, loads
from parsing.sink import Sink

NAMES = ("name", "tool", "tool_name", "function", "action", "recipient_name", "function_name")
ARGUMENTS = ("arguments", "parameters", "args", "input", "tool_input", "action_input", "params")
NESTED = ("function", "function_call")
LISTS = ("tool_calls", "tool_uses", "calls")
_WRAPPERS = frozenset((*NESTED, *LISTS))
EXTRAS = ("type", "id", "index", "call_id", "tool_call_id")

_WRITE_ENVELOPE = 'Write {"name": "the tool", "arguments": {...}}.'

Found = tuple[str, Arguments]


class Misfit(ValueError):
    """JSON that is no call. Its message is for the model: how to write the call."""


class Shape(Protocol):
    """The role of each key in a call's object, and the calls in a finished value."""

    def role(self, key: str) -> str: ...

    def calls(self, value: Any, sink: Sink) -> list[Found]: ...


class Envelope:
    """{"name": ..., "arguments": {...}} in all its spellings, alone, nested or in a list.

    `filled`: a name alone is no call. Else one without arguments is.
    """

    def __init__(self, *, filled: bool = False) -> None:
        self._filled = filled

    def role(self, key: str) -> str:
        if key in NESTED:
            return "nested"
        if key in NAMES:
            return "name"
        return "arguments" if key in ARGUMENTS else "extra" if key in EXTRAS or key in LISTS else "other"

    def calls(self, value: Any, sink: Sink) -> list[Found]:
        if isinstance(value, list):
            return [call for each in value for call in self.calls(each, sink)]
        if not isinstance(value, dict):
            raise Misfit('A call is a JSON object such as {"name": "...", "arguments": {...}}.')
        if not _WRAPPERS.isdisjoint(value):
            for key in LISTS:
                if isinstance(value.get(key), list) and not any(isinstance(value.get(name), str) for name in NAMES):
                    return self.calls(value[key], sink)
            for key in NESTED:
                if isinstance(value.get(key), dict):
                    return self.calls(value[key], sink)
        return [self._call(value, sink)]

    def _call(self, value: dict[str, Any], sink: Sink) -> Found:
        name_key = _name_key(value)
        if name_key is None:
            raise Misfit(f"This call names no tool. {_WRITE_ENVELOPE}")
        name: str = value[name_key]
        schema = sink.schema(name)
        held = _arguments_key(value, name_key)
        if held is None:
            return name, self._flat(value, name_key, schema)
        if is_definition(value[held], schema):
            raise Misfit(f"This repeats the definition of {name!r}. To call it, send its arguments.")
        return name, arguments_object(value[held], schema)

    def _flat(self, value: dict[str, Any], name_key: str, schema: Mapping[str, Any]) -> Arguments:
        """Arguments beside the name, if the tool declares every one of them. Raises Misfit."""
        declared = properties_of(schema)
        rest = {key: each for key, each in value.items() if key != name_key and (key in declared or key not in EXTRAS)}
        if odd := ", ".join(key for key in rest if key not in declared):
            raise Misfit(f"{value[name_key]!r} was not run: {odd[:80]} stands beside its name. {_WRITE_ENVELOPE}")
        if self._filled and not rest:
            raise Misfit(f"This is only a name. {_WRITE_ENVELOPE}")
        return rest


def _name_key(value: dict[str, Any]) -> str | None:
    for key in NAMES:  # a loop: a generator takes twice as long to find the first
        if isinstance(name := value.get(key), str) and name.strip():
            return key
    return None


def _arguments_key(value: dict[str, Any], name_key: str) -> str | None:
    for key in ARGUMENTS:
        if key in value and key != name_key:
            return key
    return None


class SingleKey:
    """{"NAME": {...}}: the key is the name, its value the arguments."""

    def role(self, key: str) -> str:
        return "whole"

    def calls(self, value: Any, sink: Sink) -> list[Found]:
        if isinstance(value, list):
            return [call for each in value for call in self.calls(each, sink)]
        if not isinstance(value, dict) or len(value) != 1:
            raise Misfit('A call is a JSON object with one key, the tool: {"tool": {...arguments...}}.')
        [(name, arguments)] = value.items()
        return [(name, arguments_object(arguments, sink.schema(name)))]


class Keyed:
    """An object with these keys for the name and for the arguments."""

    def __init__(self, name: str, arguments: str) -> None:
        self._name = name
        self._arguments = arguments

    def role(self, key: str) -> str:
        return {self._name: "name", self._arguments: "arguments"}.get(key, "extra")

    def calls(self, value: Any, sink: Sink) -> list[Found]:
        if isinstance(value, list):
            return [call for each in value for call in self.calls(each, sink)]
        if not isinstance(value, dict) or not isinstance(name := value.get(self._name), str):
            raise Misfit(f'A call is a JSON object such as {{"{self._name}": "...", "{self._arguments}": {{...}}}}.')
        return [(name, arguments_object(value.get(self._arguments), sink.schema(name)))]


class Named:
    """The arguments alone: the name stood in front of them."""

    def __init__(self, name: str) -> None:
        self.name = name

    def role(self, key: str) -> str:
        return "argument"

    def calls(self, value: Any, sink: Sink) -> list[Found]:
        return [(self.name, arguments_object(value, sink.schema(self.name)))]


class Unnamed:
    """The arguments alone, under a counter: they call the one tool that they fit."""

    def role(self, key: str) -> str:
        return "argument"

    def calls(self, value: Any, sink: Sink) -> list[Found]:
        keys = value.keys() if isinstance(value, dict) else set()
        fitting = [
            name
            for name, schema in sink.tools.items()
            if keys <= properties_of(schema).keys() and set(required_of(schema)) <= keys
        ]
        if len(fitting) != 1:
            raise Misfit("This call names no tool, only a number. Send it again with the tool's name.")
        return [(fitting[0], arguments_object(value, sink.schema(fitting[0])))]


def arguments_object(value: Any, schema: Mapping[str, Any]) -> Arguments:
    """The arguments, decoded once if they came as JSON in a string. Raises Misfit."""
    if isinstance(value, str) and value.strip():
        value = _decoded(value, schema)
    if value is None or value == "" or (isinstance(value, str) and not value.strip()):
        return {}
    if not isinstance(value, dict):
        raise Misfit(f"The arguments must be a JSON object, not {type(value).__name__}. Send the call again.")
    return value


def _decoded(text: str, schema: Mapping[str, Any]) -> Any:
    """The JSON in `text`, or the text as the one required argument. Raises Misfit."""
    try:
        value = loads(text)
    except Unreadable:
        value = text
    if isinstance(value, dict | None):
        return value
    required = required_of(schema)
    if text.lstrip().startswith("{"):
        raise Misfit("The arguments are a text that is no valid JSON. Send the call again, with a JSON object.")
    return {required[0]: text} if len(required) == 1 else value


def is_definition(value: Any, schema: Mapping[str, Any]) -> bool:
    """Return whether this is a JSON Schema, repeated from the prompt, instead of arguments."""
    if not isinstance(value, dict) or value.get("type") != "object":
        return False
    return isinstance(value.get("properties"), dict) and "properties" not in properties_of(schema)


def call_usage(name: str) -> str:
    """The form of a call of `name` that every model can write, in words for the model."""
    return f'Write <tool_call>{{"name": "{name}", "arguments": {{...}}}}</tool_call>.'


ENVELOPE = Envelope()
FILLED_ENVELOPE = Envelope(filled=True)
SINGLE_KEY = SingleKey()
UNNAMED = Unnamed()
