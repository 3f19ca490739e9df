"""Small notations that are read whole: {tool => "N", args => {--key value}}, and namespaced nested tags."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from parsing.arguments import Schema, coerce_text, properties_of, required_of, unescaped
from parsing.events import Arguments
from parsing.literals import Literals, Unreadable, loads
from parsing.readers.elements import tree, typed_children
from parsing.readers.raw_calls import Reading
from parsing.shapes import ARGUMENTS, ENVELOPE, NAMES, Misfit, arguments_object, call_usage
from parsing.sink import Sink

_MOST_FLAGS = 4
_TOOL = re.compile(r"\{\s*[\"']?tool[\"']?\s*(?:=>|:|=)\s*[\"']?(?P<name>[^\"',{}\s]+)[\"']?\s*,?\s*")
_ARGS = re.compile(r"[\"']?args[\"']?\s*(?:=>|:|=)\s*")
_FLAG = re.compile(r"\s*--(?P<key>[\w-]+)(?:\s+|=)")
_CHILD = re.compile(r"<(?P<key>[\w.-]+)>(?P<value>.*?)</(?P=key)>", re.DOTALL)
_NS_TAG = re.compile(
    r"\]<\]minimax\[>\[\s*<(?P<close>/?)(?P<key>[\w.-]+)(?:\s+[\w.-]+=(?:\"[^\"<>]*\"|'[^'<>]*'))*\s*>"
)
_PAIR = re.compile(r"<arg_key>(?P<key>[^<]*)</arg_key>(?:\s|\\n)*<arg_value>(?P<value>.*?)</arg_value>", re.DOTALL)
_ATTRIBUTE = re.compile(r"(?P<key>[\w.-]+)=(?P<quote>[\"'])(?P<value>.*?)(?P=quote)", re.DOTALL)


def arrow_calls(text: str, sink: Sink) -> list[tuple[str, Arguments]]:
    """The calls of a {tool => ...} block, or of JSON in its place. Raises Misfit."""
    body = text.strip()
    match = _TOOL.match(body)
    if not match or "=>" not in match.group():
        try:
            return ENVELOPE.calls(loads(body), sink)
        except Unreadable:
            pass
    if not match:
        raise Misfit(f"Not understood. {arrow_usage('NAME', {})}")
    name = match["name"]
    rest = body[match.end() :].removesuffix("}").rstrip()
    args = _ARGS.match(rest)
    schema = sink.schema(name)
    try:
        return [(name, _arguments(rest[args.end() :] if args else rest, schema))]
    except Unreadable as error:
        usage = arrow_usage(name, schema)
        raise Misfit(f"The arguments of {name!r} cannot be read: {error}. {usage}") from error


def arrow_usage(name: str, schema: Schema) -> str:
    """The form of a call of `name` in this notation, in words for the model."""
    flags = " ".join(f'--{key} "..."' for key in required_of(schema)[:_MOST_FLAGS] or ["key"])
    return f'Write {{tool => "{name}", args => {{ {flags} }}}}, or {call_usage(name).removeprefix("Write ")}'


def _arguments(text: str, schema: Schema) -> Arguments:
    text = text.strip().rstrip(",")
    if not text:
        return {}
    if text[0] in "\"'" and text[-1] == text[0] and len(text) > 1:
        children = [*_matches(_CHILD, text[1:-1])]
        return {found["key"]: coerce_text(found["value"], schema, found["key"]) for found in children}
    inner = text[1:-1] if text.startswith("{") and text.endswith("}") else text
    if _FLAG.match(inner) or not inner.strip():
        return _flags(inner, schema)
    value = loads(f"{{{inner}}}")
    if not isinstance(value, dict):
        raise Unreadable("they are no object")
    return value


def _matches(pattern: re.Pattern[str], text: str) -> Iterator[re.Match[str]]:
    """The matches that `text` is made of. Raises Unreadable when anything else stands in it."""
    pos = 0
    for match in pattern.finditer(text):
        if not _blank(text[pos : match.start()]):
            break
        pos = match.end()
        yield match
    if not _blank(text[pos:]):
        raise Unreadable(f"{text[pos:].strip()[:40]!r} is no argument with a name")


def _blank(text: str) -> bool:
    return not text.replace("\\n", "").strip()


def _flags(text: str, schema: Schema) -> Arguments:
    found: Arguments = {}
    pos = 0
    while match := _FLAG.match(text, pos):
        stop = _flag_end(text, match.end())
        found[match["key"]] = _flag_value(text[match.end() : stop].strip(), schema, match["key"])
        pos = stop
    if text[pos:].strip():
        raise Unreadable(f"unexpected text at character {pos}")
    return found


_NEXT_FLAG = re.compile(r"\s--[\w-]+(?:\s|=)")


def _flag_end(text: str, pos: int) -> int:
    """The end of a flag's value: after its own literal, or before the next flag."""
    if text[pos : pos + 1] in ('"', "'", "{", "["):
        reader = Literals(text)
        reader.pos = pos
        try:
            if text[pos] in "\"'":
                reader.string(ends="-,")
            else:
                reader.value()
        except Unreadable:
            pass
        else:
            return reader.pos
    following = _NEXT_FLAG.search(text, pos)
    return following.start() if following else len(text)


def _flag_value(text: str, schema: Schema, key: str) -> Any:
    text = text.rstrip(",")
    try:
        value = loads(text)
    except Unreadable:
        return coerce_text(text.strip("\"'"), schema, key)
    if isinstance(value, str) or key not in properties_of(schema):
        return value
    return coerce_text(text, schema, key)


def pair_calls(text: str, sink: Sink) -> list[tuple[str, Arguments]]:
    """The call of key and value pairs, one of which names the tool. Raises Misfit."""
    try:
        pairs = {unescaped(match["key"].strip()): match["value"] for match in _matches(_PAIR, text)}
    except Unreadable as error:
        raise Misfit(f"These pairs cannot be read: {error}. Send the call again.") from error
    name = next((pairs.pop(key).strip() for key in NAMES if key in pairs), "")
    if not name:
        raise Misfit("These pairs name no tool. Put the tool's name first, then its arguments.")
    schema = sink.schema(name)
    packed = next((pairs[key] for key in ARGUMENTS if key in pairs and key not in properties_of(schema)), None)
    if packed is not None:
        return [(name, arguments_object(packed, schema))]
    return [(name, {key: coerce_text(value, schema, key) for key, value in pairs.items()})]


def attribute_values(text: str, schema: Schema) -> Arguments:
    """The arguments written as attributes of an element."""
    found = {unescaped(match["key"]): unescaped(match["value"]) for match in _ATTRIBUTE.finditer(text)}
    return {key: coerce_text(value, schema, key) for key, value in found.items()}


_ASSIGNMENT = re.compile(
    r"[\s,]*(?P<key>[\w.-]+)\s*=\s*(?:(?P<quoted>\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*')|(?P<word>[^\s,\"']+))(?=[\s,]|\Z)",
    re.DOTALL,
)


def assigned_call(name: str) -> Reading:
    """A reading for assignments, one behind the other, with nothing between them."""

    def read(text: str, sink: Sink) -> list[tuple[str, Arguments]]:
        schema = sink.schema(name)
        found: Arguments = {}
        pos = 0
        while match := _ASSIGNMENT.match(text, pos):
            value = match["word"] or Literals(match["quoted"]).string()
            found[match["key"]] = coerce_text(value, schema, match["key"])
            pos = match.end()
        if text[pos:].strip(" \t\r\n,"):
            raise Misfit(f"These arguments cannot be read. {call_usage(name)}")
        return [(name, found)]

    return read


def nested_calls(name: str) -> Reading:
    """A reading for the inside of one namespaced invoke."""

    def read(text: str, sink: Sink) -> list[tuple[str, Arguments]]:
        schema = sink.schema(name)
        found = tree(text.removesuffix("]"), _NS_TAG)
        if isinstance(found, str):
            if found.strip():
                raise Misfit(f"{found.strip()[:40]!r} is no value. Send the call again, with a tag for each argument.")
            return [(name, {})]
        return [(name, typed_children(found, [schema], schema))]

    return read
