"""The filters, tests, methods and functions that a template may use, a row each. It can call nothing else.

Those that could make a large value out of small ones are bounded here; `bounded` looks at every new value.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from jinja2 import Undefined

LONGEST = 1 << 16  # characters of a text
MOST_PARTS = 4096  # of a value, with all that it holds
MOST_BITS = 256  # of a number
MOST_INDENT = 16
_DATE = "2026-01-01"  # the same prompt at any time
_PLAIN_FIELD = re.compile(r"(?:[^{}]|\{\{|\}\}|\{\w*\})*")


class TemplateRefused(ValueError):
    """The template is not rendered. The message says why, and goes on from "the template"."""


def bounded(value: Any) -> Any:
    """Return the value. Raises TemplateRefused if it is larger than a prompt of a few messages can need."""
    left, characters = MOST_PARTS, LONGEST
    waiting = [value]
    while waiting:
        each = waiting.pop()
        left -= 1
        characters -= len(each) if isinstance(each, str) else 0
        if characters < 0:
            raise TemplateRefused(f"makes a text of more than {LONGEST:,} characters")
        if isinstance(each, int) and each.bit_length() > MOST_BITS:
            raise TemplateRefused("makes a huge number")
        if isinstance(each, dict):
            waiting += [*each, *each.values()]
        elif isinstance(each, list | tuple):
            waiting += each
        if left < len(waiting):
            raise TemplateRefused(f"makes a value with more than {MOST_PARTS:,} parts")
    return value


def _to_json(value: Any, ensure_ascii: bool = False, indent: int | None = None, **options: Any) -> str:
    if isinstance(value, Undefined):
        raise TemplateRefused("writes as JSON what is not there")
    spaces = min(indent, MOST_INDENT) if isinstance(indent, int) else None
    return json.dumps(value, ensure_ascii=bool(ensure_ascii), indent=spaces, sort_keys=bool(options.get("sort_keys")))


def _joined(values: Iterable[Any], between: str = "", attribute: str | None = None) -> str:
    texts = [str(_attribute(each, attribute)) for each in values]
    if sum(map(len, texts)) + len(between) * len(texts) > LONGEST:
        raise TemplateRefused(f"makes a text of more than {LONGEST:,} characters")
    return between.join(texts)


def _replaced(text: str, old: str, new: str, count: int = -1) -> str:
    if len(str(text)) + (len(str(text)) + 1) * len(new) > LONGEST:
        raise TemplateRefused(f"makes a text of more than {LONGEST:,} characters")
    return str(text).replace(old, new, count)


def _indented(text: str, width: int = 4, first: bool = False, blank: bool = False) -> str:
    margin = " " * min(width, MOST_INDENT)
    lines = str(text).split("\n")
    if len(text) + len(lines) * len(margin) > LONGEST:
        raise TemplateRefused(f"makes a text of more than {LONGEST:,} characters")
    return "\n".join((margin if (at or first) and (line or blank) else "") + line for at, line in enumerate(lines))


def _formatted(text: str, *values: Any, **named: Any) -> str:
    if not _PLAIN_FIELD.fullmatch(text) or text.count("{") * max(map(len, map(str, values)), default=0) > LONGEST:
        raise TemplateRefused("formats a text with more than plain fields")
    return text.format(*values, **named)


_MISSING = Undefined()


def _attribute(value: Any, path: str | None, default: Any = _MISSING) -> Any:
    for name in path.split(".") if path else ():
        value = value.get(name, default) if isinstance(value, dict) else default
    return value


def _or_default(value: Any, default: Any = "", boolean: bool = False) -> Any:
    return default if isinstance(value, Undefined) or (boolean and not value) else value


def _mapped(
    values: Iterable[Any], name: str = "", *args: Any, attribute: str | None = None, default: Any = _MISSING
) -> list[Any]:
    if attribute:
        return [_attribute(each, attribute, default) for each in values]
    return [FILTERS[name](each, *args) for each in values]


def _chosen(wanted: bool, by_attribute: bool) -> Callable[..., list[Any]]:
    def choose(values: Iterable[Any], *args: Any) -> list[Any]:
        path, (name, *rest) = (args[0], args[1:] or ("true_like",)) if by_attribute else (None, args or ("true_like",))
        return [each for each in values or () if TESTS[name](_attribute(each, path), *rest) is wanted]

    return choose


def _sorted(
    values: Iterable[Any], reverse: bool = False, case_sensitive: bool = False, attribute: str | None = None
) -> list[Any]:
    def key(value: Any) -> Any:
        found = _attribute(value, attribute)
        return found.lower() if isinstance(found, str) and not case_sensitive else found

    return sorted(values, key=key, reverse=reverse)


def _sorted_items(
    value: Mapping[str, Any], case_sensitive: bool = False, by: str = "key", reverse: bool = False
) -> list[Any]:
    pairs = [(key if by == "key" else each, key, each) for key, each in value.items()]
    fold = str.lower if not case_sensitive else str
    return [(key, each) for _, key, each in sorted(pairs, key=lambda pair: fold(str(pair[0])), reverse=reverse)]


def _number(kind: Callable[[Any], Any], default: Any) -> Callable[..., Any]:
    def convert(value: Any, otherwise: Any = default, *_: Any) -> Any:
        try:
            return kind(value)
        except (TypeError, ValueError, OverflowError):
            return otherwise

    return convert


FILTERS: Mapping[str, Callable[..., Any]] = {
    "tojson": _to_json,
    "length": len,
    "count": len,
    "trim": lambda value, characters=None: str(value).strip(characters),
    "string": str,
    "default": _or_default,
    "d": _or_default,
    "join": _joined,
    "items": lambda value: [] if isinstance(value, Undefined) else list(value.items()),
    "lower": lambda value: str(value).lower(),
    "upper": lambda value: str(value).upper(),
    "title": lambda value: str(value).title(),
    "capitalize": lambda value: str(value).capitalize(),
    "safe": lambda value: value,
    "list": list,
    "replace": _replaced,
    "indent": _indented,
    "dictsort": _sorted_items,
    "sort": _sorted,
    "unique": lambda values: list(dict.fromkeys(values)),
    "reverse": lambda value: value[::-1] if isinstance(value, str) else list(value)[::-1],
    "first": lambda values: next(iter(values), Undefined()),
    "last": lambda values: next(iter(list(values)[::-1]), Undefined()),
    "min": min,
    "max": max,
    "abs": abs,
    "int": _number(int, 0),
    "float": _number(float, 0.0),
    "map": _mapped,
    "select": _chosen(wanted=True, by_attribute=False),
    "reject": _chosen(wanted=False, by_attribute=False),
    "selectattr": _chosen(wanted=True, by_attribute=True),
    "rejectattr": _chosen(wanted=False, by_attribute=True),
}


def _equal(value: Any, other: Any) -> bool:
    return bool(value == other)


TESTS: Mapping[str, Callable[..., bool]] = {
    "defined": lambda value: not isinstance(value, Undefined),
    "undefined": lambda value: isinstance(value, Undefined),
    "none": lambda value: value is None,
    "string": lambda value: isinstance(value, str),
    "mapping": lambda value: isinstance(value, dict),
    "iterable": lambda value: isinstance(value, str | list | tuple | dict | Undefined),
    "sequence": lambda value: isinstance(value, str | list | tuple | dict | Undefined),
    "boolean": lambda value: isinstance(value, bool),
    "number": lambda value: isinstance(value, int | float),
    "integer": lambda value: isinstance(value, int) and not isinstance(value, bool),
    "float": lambda value: isinstance(value, float),
    "true": lambda value: value is True,
    "false": lambda value: value is False,
    "true_like": bool,
    "equalto": _equal,
    "eq": _equal,
    "==": _equal,
    "ne": lambda value, other: not _equal(value, other),
    "in": lambda value, values: value in values,
    "odd": lambda value: value % 2 == 1,
    "even": lambda value: value % 2 == 0,
    "lower": lambda value: str(value).islower(),
    "upper": lambda value: str(value).isupper(),
}
METHODS: Mapping[type, Mapping[str, Callable[..., Any]]] = {
    str: {
        "format": _formatted,
        "join": lambda text, values: _joined(values, text),
        "replace": _replaced,
        "split": lambda text, *args: text.split(*args),
        "rsplit": lambda text, *args: text.rsplit(*args),
        "splitlines": str.splitlines,
        "strip": str.strip,
        "lstrip": str.lstrip,
        "rstrip": str.rstrip,
        "startswith": str.startswith,
        "endswith": str.endswith,
        "lower": str.lower,
        "upper": str.upper,
        "title": str.title,
        "capitalize": str.capitalize,
        "find": str.find,
        "count": str.count,
        "isdigit": str.isdigit,
    },
    dict: {
        "get": dict.get,
        "items": lambda value: list(value.items()),
        "keys": lambda value: list(value),
        "values": lambda value: list(value.values()),
    },
    list: {"index": list.index, "count": list.count},
}


class Namespace(dict[str, Any]):
    """An object whose names a template may set."""


class Function:
    """Something that a template may call."""

    def __init__(self, call: Callable[..., Any]) -> None:
        self.call = call


def _raise(message: object = "") -> None:
    raise TemplateRefused(f"refuses these messages: {str(message)[:200]}")


def _range(*bounds: int) -> list[int]:
    found = range(*bounds)
    if len(found) > 1000:
        raise TemplateRefused("counts beyond 1,000")
    return list(found)


GLOBALS: Mapping[str, Any] = {
    "raise_exception": Function(_raise),
    "range": Function(_range),
    "namespace": Function(lambda *args, **names: Namespace(*args, **names)),
    "dict": Function(lambda *args, **names: dict(*args, **names)),
    "strftime_now": Function(lambda form: _DATE),
    "bos_token": "",
    "eos_token": "",
}
