"""The payloads of each argument form, found in the text of known calls and masked."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from parsing.events import Arguments
from parsing.literals import Literals, Unreadable, read_whole
from parsing.readers.arrows import arrow_calls
from parsing.readers.literal_calls import STRINGS
from parsing.readers.python_calls import keywords
from parsing.shapes import Misfit, Shape
from parsing.sink import Sink
from parsing.templates.outline import ID, KEY, NAME, PAYLOAD, VALUE, common_end, common_start, tokens
from parsing.templates.probes import TOOLS, Calls, Probe

_MOST_ENDS = 64  # brackets that may close a payload
_MOST_BEGINNINGS = 64  # brackets that may begin a value
_PYTHON_BEFORE = re.compile(r"\[?\s*(?:print\s?\(\s*)?(?:default_api\.)?\Z")
_FENCE_BEFORE = re.compile(r"```(?:python|py|tool_code)?\s*\Z")
_FENCE_BEHIND = re.compile(r"\s*```")
_BRACKET = re.compile(r"[{\[]")
_BETWEEN = re.compile(rf"{PAYLOAD}(?:\s*[,;]?\s*{PAYLOAD})+")
Mask = Callable[[Probe], str | None]
Span = tuple[int, int]


def _masked(text: str, spans: list[Span], mask: str = PAYLOAD) -> str:
    for start, end in reversed(spans):
        text = text[:start] + mask + text[end:]
    return text


def _named(text: str, probe: Probe) -> str:
    """Mask the names and ids outside of payloads."""
    for call_id in probe.ids:
        text = text.replace(call_id, ID)
    for name, _ in probe.calls:
        text = re.sub(rf"(?<![^\W_]){re.escape(name)}(?![^\W_])", NAME, text)
    return text


def json_values(shape: Shape) -> Mask:
    """JSON that holds names and arguments, in this shape."""

    def mask(probe: Probe) -> str | None:
        spans, left = [], list(probe.calls)
        for start, end, value in _values(probe.text):
            try:
                found = shape.calls(value, Sink(TOOLS))
            except (Misfit, TypeError, ValueError):
                continue
            if found != left[: len(found)]:
                return None
            del left[: len(found)]
            spans.append((start, end))
        return None if left else _named(_BETWEEN.sub(PAYLOAD, _masked(probe.text, spans)), probe)

    return mask


def named_json(probe: Probe) -> str | None:
    """JSON that holds the arguments alone: the name stands before it."""
    spans, left = [], list(probe.calls)
    for start, end, value in _values(probe.text):
        if left and value == left[0][1]:
            spans.append((start, end))
            del left[0]
    return None if left else _named(_masked(probe.text, spans), probe)


def _values(text: str) -> Iterator[tuple[int, int, Any]]:
    """The JSON values in a text that are objects or lists, the outermost of each."""
    at = 0
    for _ in range(_MOST_BEGINNINGS):
        match = _BRACKET.search(text, at)
        if match is None:
            return
        reader = Literals(text)
        reader.pos = match.start()
        at = match.end()
        try:
            value = reader.value()
        except Unreadable:
            continue
        except RecursionError:
            return
        if isinstance(value, dict | list) and value:
            at = reader.pos
            yield match.start(), at, value


def objects(text: str) -> Iterator[dict[str, Any]]:
    """The objects in a text, and those in its lists."""
    for _, _, value in _values(text):
        yield from (each for each in (value if isinstance(value, list) else [value]) if isinstance(each, dict))


def python(probe: Probe) -> str | None:
    """Python calls, with the list, the module and the `print` round them that their reader knows."""
    spans, at = [], 0
    for name, arguments in probe.calls:
        found = _ending(probe.text, at, f"{name}(", ")", read=keywords, wanted=arguments)
        if found is None:
            return None
        lead = _PYTHON_BEFORE.search(probe.text, at, found[0])
        start, at = (lead.start() if lead else found[0]), found[1]
        while at < len(probe.text) and probe.text[at] in ")]":
            at += 1
        if fence := _FENCE_BEFORE.search(probe.text, 0, start):
            start = fence.start()
        if fence := _FENCE_BEHIND.match(probe.text, at):
            at = fence.end()
        spans.append((start, at))
    return _named(_BETWEEN.sub(PAYLOAD, _masked(probe.text, spans)), probe)


def literal(probe: Probe) -> str | None:
    """Object literals behind a name."""
    spans, at = [], 0
    for name, arguments in probe.calls:
        found = None
        for opener, closer in ("{}", "()"):
            found = found or _ending(probe.text, at, name + opener, closer, read=_keys_of, wanted=sorted(arguments))
        if found is None:
            return None
        at = found[1]
        spans.append((found[0] + len(name), at))
    return _named(_masked(probe.text, spans), probe)


def _keys_of(inside: str) -> list[str]:
    return sorted(read_whole("{" + inside + "}", Literals.value, strings=STRINGS, words=True))


def _arrow_in(inside: str) -> list[tuple[str, Arguments]]:
    return arrow_calls(f"{{tool{inside}}}", Sink(TOOLS))


def arrow(probe: Probe) -> str | None:
    """{tool => "NAME", args => {...}}"""
    spans, at = [], 0
    for call in probe.calls:
        found = _ending(probe.text, at, "{tool", "}", read=_arrow_in, wanted=[call])
        if found is None:
            return None
        spans.append(found)
        at = found[1]
    return _masked(probe.text, spans)


def _ending(
    text: str, at: int, head: str, closer: str, *, read: Callable[[str], object], wanted: object
) -> Span | None:
    """The span that begins with `head` and ends with the first `closer` at which it reads as is wanted."""
    start = text.find(head, at)
    end = start + len(head)
    for _ in range(_MOST_ENDS if start >= 0 else 0):
        shut = text.find(closer, end)
        if shut < 0:
            return None
        try:
            if read(text[start + len(head) : shut]) == wanted:
                return start, shut + 1
        except (Unreadable, Misfit, RecursionError, AttributeError, TypeError):
            pass
        end = shut + 1
    return None


@dataclass(frozen=True)
class Unit:
    """The marks of one parameter, masked: up to its value, and behind it."""

    opens: str
    shuts: str


def parameters(probe: Probe) -> tuple[str, Unit] | None:
    """The text with the parameters of each call masked, and their marks; None unless each stands in its own."""
    spans = _parameter_spans(probe.text, probe.calls)
    if spans is None:
        return None
    text = probe.text
    for start, end, mask in reversed(spans):
        text = text[:start] + mask + text[end:]
    found = tokens(_named(text, probe))
    values = [at for at, token in enumerate(found) if token == VALUE]
    if len(values) != sum(len(arguments) for _, arguments in probe.calls):
        return None
    first, second = values[:2]
    between = found[first + 1 : second]
    shuts = common_start(between, found[second + 1 :])
    opens = common_end(found[:first], between[len(shuts) :])
    unit = Unit("".join(opens), "".join(shuts))
    if unit.opens.count(KEY) != 1 or not unit.shuts.strip():
        return None
    return _without(found, values, (len(opens), len(shuts)), probe.calls), unit


def _without(found: list[str], values: list[int], sizes: tuple[int, int], calls: Calls) -> str:
    """The text with one mask for all parameters of a call."""
    for _, arguments in reversed(calls):
        mine = values[-len(arguments) :]
        del values[-len(arguments) :]
        found[mine[0] - sizes[0] : mine[-1] + 1 + sizes[1]] = [PAYLOAD]
    return "".join(found)


def _parameter_spans(text: str, calls: Calls) -> list[tuple[int, int, str]] | None:
    spans = []
    at = 0
    for _, arguments in calls:
        for key, value in arguments.items():
            written = re.compile(rf"(?<!\w){key}(?!\w)").search(text, at)
            start = text.find(str(value), written.end()) if written else -1
            if written is None or start < 0:
                return None
            at = start + len(str(value))
            spans += [(written.start(), written.end(), KEY), (start, at, VALUE)]
            while echo := re.compile(rf"\s*</({key})>").match(text, at):  # the value is an element
                spans.append((*echo.span(1), KEY))
                at = echo.end()
    return spans
