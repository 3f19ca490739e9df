"""The arguments that the body of a fence gives to the tool whose name is its tag: the one place for this rule.

A JSON object that fits the tool's schema is the arguments. Else the one required string takes the body as it is. Else
leading lines fill the earlier required strings in order and the rest is the last.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import regex

from parsing.aliases import renamed
from parsing.arguments import coerce_text, is_plain_string, properties_of, required_of
from parsing.events import Arguments
from parsing.framing import ENDS
from parsing.literals import Unreadable, loads
from parsing.matching import compiled
from parsing.shapes import Misfit

# The same rule in words for a model: the system prompt teaches it with these.
RULE = (
    "write a fenced block: the tag is the tool's name, the body its arguments, as a JSON object or as plain text. "
    "Plain text is the one required argument as it is; of several, each takes a line and the last takes the rest."
)

Schema = Mapping[str, Any]
_TICKS = re.compile("`+")
_LAST_FENCE = re.compile(
    r"^ {0,3}(?P<run>`{3,}|~{3,})[^\n`~]*\n(?P<body>\s*\{[^`~]*)\n {0,3}(?P=run)\s*\Z", re.MULTILINE
)
MOST_PARAMETERS = 64  # of a tool that takes plain text: looking through thousands for each fence would take seconds
USUAL = ("command", "code", "query", "content", "text", "input")


@lru_cache(maxsize=64)
def closing_fence(run: str) -> regex.Pattern[str]:
    """The fence that closes the one which `run` opened: alone in its line, but for a token that ends the message."""
    return compiled(rf" {{0,3}}{re.escape(run[0])}{{{len(run)},100}}[ \t]{{0,100}}(?=\r?\n|{ENDS})")


def text_parameters(schema: Schema) -> list[str]:
    """The parameters that a fence's raw text fills, in order; none of a tool with more than MOST_PARAMETERS."""
    declared = properties_of(schema)
    required = required_of(schema)
    if max(len(declared), len(required)) > MOST_PARAMETERS:
        return []
    texts = [name for name in required if is_plain_string(schema, name)]
    if required:
        return texts if len(texts) == len(required) else []
    strings = [name for name in declared if is_plain_string(schema, name)]
    return strings if len(strings) == 1 else [name for name in strings if name in USUAL][:1]


def fill(body: str, schema: Schema) -> Arguments:
    """Return the arguments in the body of a fence. Raises Misfit when there are none."""
    if (fitting := fitting_object(body, schema)) is not None:
        return fitting
    texts = text_parameters(schema)
    if not body.strip():
        if required_of(schema):
            raise Misfit(f"The fence is empty. {fence_usage(schema)}")
        return {}
    if not texts:
        raise Misfit(fence_usage(schema))
    lines = body.split("\n", len(texts) - 1)
    if len(lines) < len(texts):
        raise Misfit(f"The fence has too few lines. {fence_usage(schema)}")
    leading = [line.removesuffix("\r") for line in lines[:-1]]
    return dict(zip(texts, [*leading, lines[-1]], strict=True))


def fenced_call(name: str, arguments: Arguments, schema: Schema) -> str:
    """Return the fence that calls the tool `name` with these arguments, as plain text if that means the same."""
    body = "\n".join(str(arguments.get(text, "")) for text in text_parameters(schema))
    try:
        plain = fill(body, schema) == arguments and not body.endswith("\r")  # of a line end, that is left out
    except Misfit:
        plain = False
    if not plain:
        body = json.dumps(arguments, ensure_ascii=False)
    fence = "`" * max([3, *(len(run) + 1 for run in _TICKS.findall(body))])
    return f"{fence}{name}\n{body}\n{fence}"


def fitting_object(body: str, schema: Schema) -> Arguments | None:
    """The body as a JSON object, if the tool declares its keys (or what they mean) and misses none that it requires."""
    value = _object(body)
    return value if value is not None and _fits(value, schema) else None


def tools_of(body: str, tools: Mapping[str, Schema]) -> list[str]:
    """Return the tools whose required arguments, and none that they do not declare, are in the body, a JSON object."""
    value = _object(body)
    return [name for name, schema in tools.items() if required_of(schema) and _fits(value, schema)] if value else []


def shows_arguments(text: str, tools: Mapping[str, Schema]) -> bool:
    """Return whether a text ends with a fence that holds nothing but the arguments of one tool, whatever its tag."""
    fence = _LAST_FENCE.search(text)
    return fence is not None and len(tools_of(fence["body"], tools)) == 1


def _object(body: str) -> Arguments | None:
    text = body.strip()
    try:
        value = loads(text) if text.startswith("{") else None
    except Unreadable:
        return None
    return value if isinstance(value, dict) else None


def _fits(value: Arguments, schema: Schema) -> bool:
    named = renamed(value, schema)[0].keys()  # the sink renames them, and says so
    return named <= properties_of(schema).keys() and set(required_of(schema)) <= named


_PAIR = re.compile(r"(?P<key>[\w.-]+)=(?:\"(?P<value>[^\"]*)\"|'(?P<value_>[^']*)')(?:\s+|\Z)")


def info_string_arguments(text: str, schema: Schema) -> Arguments | None:
    """The arguments that stand behind the tag: JSON, or key="value" pairs, that fit the tool. None if they do not."""
    if not text.strip():
        return {}
    if text.lstrip().startswith("{"):
        return fitting_object(text, schema)
    pairs = list(_PAIR.finditer(text))
    found = {pair["key"]: pair["value"] if pair["value"] is not None else pair["value_"] for pair in pairs}
    whole = "".join(pair.group() for pair in pairs) == text
    fits = whole and _fits(found, schema)
    return {key: coerce_text(value, schema, key) for key, value in found.items()} if fits else None


def fence_usage(schema: Schema) -> str:
    """The rule for one tool, in words for the model."""
    texts = text_parameters(schema)
    if not texts:
        return f"The fence's body is a JSON object with the arguments: {', '.join(properties_of(schema)) or 'none'}."
    if len(texts) == 1:
        return f"The fence's body is the {texts[0]}."
    first = ", then ".join(texts[:-1])
    return f"The fence's body is the {first}, each on a line of its own, then the {texts[-1]}."
