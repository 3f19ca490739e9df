"""Known calls as a checkpoint's `response_template` says that its model writes them.

The format: https://github.com/huggingface/transformers/blob/main/docs/source/en/chat_response_parsing.md.
Its patterns are never run: the shortest text that one matches is written out, with the name, the keys and the values at
its groups.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from parsing.templates.derive import Underivable
from parsing.templates.probes import Calls, Probe

_ATOM = re.compile(
    r"\(\?P<(?P<group>\w+)>|(?P<look>\(\?<?[=!])|(?P<open>\((?:\?:)?)|\\(?P<escape>.)|(?P<class>\[\^?\]?(?:\\.|[^\]\\])*\])"
    r"|(?P<close>[)|])|(?P<none>[\^$.])|(?P<text>.)",
    re.DOTALL,
)
_REPEAT = re.compile(r"(?P<any>[*?]|\{0?,\d*\})[?+]?|(?:\+|\{\d+(?:,\d*)?\})[?+]?")
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "s": "", "S": "x", "d": "0", "w": "x", "b": "", "Z": "", "A": "", "B": ""}
_LONGEST = 2000
_PLACE = re.compile(r"\{(\w+(?:\.\w+)*)\}")


def example(pattern: str, groups: Mapping[str, str]) -> str:
    """The shortest text that a pattern matches, with these texts for its groups. Raises Underivable."""
    if len(pattern) > _LONGEST:
        raise Underivable(f"a pattern of its response template has more than {_LONGEST:,} characters")
    text, end = _example(pattern, 0, groups, 0)
    if end < len(pattern):
        raise Underivable(f"the pattern {pattern[:80]!r} of its response template is not closed")
    return text


def _example(pattern: str, at: int, groups: Mapping[str, str], depth: int) -> tuple[str, int]:
    """The text of the first alternative that begins at a place, and the place of the bracket that ends it."""
    found: list[str] = []
    first = True
    while at < len(pattern) and (atom := _ATOM.match(pattern, at)) is not None:
        if atom["close"] == ")":
            break
        piece, at = _atom(atom, pattern, groups, depth)
        first = first and atom["close"] != "|"
        repeat = _REPEAT.match(pattern, at)
        at = repeat.end() if repeat else at
        if (first and not (repeat and repeat["any"])) or (first and atom["group"] in groups):
            found.append(piece)
    return "".join(found), at


def _atom(atom: re.Match[str], pattern: str, groups: Mapping[str, str], depth: int) -> tuple[str, int]:
    at = atom.end()
    if atom["group"] or atom["open"] or atom["look"]:
        if depth > 20:
            raise Underivable("a pattern of its response template is nested too deeply")
        inner, end = _example(pattern, at, groups, depth + 1)
        text = groups.get(atom["group"] or "", inner)
        return "" if atom["look"] else text, end + 1
    if atom["escape"]:
        return _ESCAPES.get(atom["escape"], atom["escape"]), at
    if atom["class"]:
        return atom["class"].strip("[]^\\")[:1], at
    return atom["text"] or "", at


def response_probe(template: Any, calls: Calls) -> Probe:
    """These calls as the template says that its model writes them. Raises Underivable."""
    match template:
        case {"fields": {"tool_calls": dict(field)}}:
            pass
        case _:
            raise Underivable("its response template has no field `tool_calls`")
    blocks = [(call,) for call in calls] if field.get("repeats") else [calls]
    try:
        return Probe(calls, "\n".join(_block(field, block) for block in blocks))
    except (TypeError, AttributeError, LookupError) as error:
        raise Underivable(f"its response template cannot be read: {error!r}"[:200]) from error


def _block(field: Mapping[str, Any], calls: Calls) -> str:
    name = calls[0][0]
    return _mark(field, "open", name) + _content(field, calls) + _mark(field, "close", name)


def _mark(field: Mapping[str, Any], key: str, name: str) -> str:
    literal = field.get(key, "")
    if pattern := field.get(f"{key}_pattern"):
        return example(pattern, {"name": name})
    return literal if isinstance(literal, str) else literal[0]


def _content(field: Mapping[str, Any], calls: Calls) -> str:
    kind, options = field.get("content", "text"), field.get("content_args", {})
    _, arguments = calls[0]
    match kind:
        case "json":
            values = [_shaped(field, *call) for call in calls]
            return _json(values if field.get("transform_each") or len(calls) > 1 else values[0], options)
        case "xml-inline":
            tag = options["tag_pattern"]
            return (
                "".join(f"\n{example(tag, {'key': key, 'value': _text(each)})}" for key, each in arguments.items())
                + "\n"
            )
        case "kv-lines":
            between = options.get("kv_sep", ":")
            lines = (f"{key}{between}{_text(each)}" for key, each in arguments.items())
            return str(options.get("line_sep", "\n")).join(lines)
        case "python-call-list":
            return f"[{', '.join(_python(*call) for call in calls)}]"
    raise Underivable(f"the content {kind!r} of its tool calls is none of the known ones")


def _shaped(field: Mapping[str, Any], name: str, arguments: Mapping[str, Any]) -> Any:
    """The value that the transform takes a call out of."""
    transform = field.get("transform", "{content}")
    function = transform.get("function", transform) if isinstance(transform, dict) else transform
    places = function if isinstance(function, dict) else {}
    whole = _path(function)[1:] if isinstance(function, str) else []
    found: dict[str, Any] = {}
    for key, value in (("name", name), ("arguments", arguments)):
        path = _path(places[key]) if key in places else ["content", *whole, key]
        if path[0] == "content" and len(path) == 1:
            return value  # the content is the arguments alone
        if path[0] == "content" or field.get("transform_each"):
            _put(found, path[1:] if path[0] == "content" else path, value)
    return found


def _path(text: str) -> list[str]:
    match = _PLACE.fullmatch(text)
    if not match:
        raise Underivable(f"the transform {text[:80]!r} of its response template is no placeholder")
    return match[1].split(".")


def _put(into: dict[str, Any], path: Sequence[str], value: Any) -> None:
    for key in path[:-1]:
        into = into.setdefault(key, {})
    into[path[-1]] = value


def _json(value: Any, options: Mapping[str, Any]) -> str:
    """JSON, with the delimiters and bare keys that the options allow."""
    opens, shuts = (options.get("string_delims") or [('"', '"')])[0]
    match value:
        case str():
            return json.dumps(value, ensure_ascii=False) if opens == '"' else f"{opens}{value}{shuts}"
        case dict():
            bare = options.get("unquoted_keys")
            pairs = (f"{key if bare else json.dumps(key)}:{_json(each, options)}" for key, each in value.items())
            return "{" + ",".join(pairs) + "}"
        case list():
            return f"[{','.join(_json(each, options) for each in value)}]"
    return json.dumps(value)


def _python(name: str, arguments: Mapping[str, Any]) -> str:
    return f"{name}({', '.join(f'{key}={each!r}' for key, each in arguments.items())})"


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
