"""The bodies of rows: functions from an opener's groups to the reader that follows it."""

from __future__ import annotations

import re
from collections.abc import Callable

from parsing.aliases import server_tool
from parsing.arguments import unescaped
from parsing.matching import Groups
from parsing.readers.arrows import arrow_calls, assigned_call, attribute_values, nested_calls, pair_calls
from parsing.readers.json_calls import JsonCalls
from parsing.readers.literal_calls import LiteralCall
from parsing.readers.markup import Markup, children_tags
from parsing.readers.python_calls import PythonCalls
from parsing.readers.raw_calls import RawCall, body_of, code_for, words_of
from parsing.readers.tags import EmptyCall, TaggedCall
from parsing.readers.untaught import UntaughtCall
from parsing.shapes import ENVELOPE, FILLED_ENVELOPE, SINGLE_KEY, UNNAMED, Named
from parsing.sink import Reader, Sink

# The rest of an id, and the same without the number at its end.
_JOINED_ID = re.compile(r"functions[._:-]?((.+?)[._:-]?\d{0,9})")


def name_in(groups: Groups) -> str:
    """The tool that an opener names."""
    return unescaped(groups.get("name") or groups.get("offered") or "").strip()


def json_calls(sink: Sink, groups: Groups) -> Reader:
    return JsonCalls(sink, ENVELOPE)


def bare_json(sink: Sink, groups: Groups) -> Reader:
    return JsonCalls(sink, FILLED_ENVELOPE, offered_only=True)


def single_key_calls(sink: Sink, groups: Groups) -> Reader:
    return JsonCalls(sink, SINGLE_KEY)


def named_json(sink: Sink, groups: Groups) -> Reader:
    return JsonCalls(sink, Named(name_in(groups)))


def kimi_json(sink: Sink, groups: Groups) -> Reader:
    """The name is an id: `functions.NAME:INDEX`, or a bare counter that only the arguments explain.

    Models that have read other ids write `functions_NAME_INDEX`, or without anything between.
    """
    written = name_in(groups)
    name, _, index = written.rpartition(":")
    if not name and index.isdigit() and not sink.offers(index):
        return JsonCalls(sink, UNNAMED)
    name = name if name and index.isdigit() else written
    if not sink.offers(name) and (parts := _JOINED_ID.fullmatch(name)):
        name = next(filter(sink.offers, parts.groups()), name)
    return JsonCalls(sink, Named(name))


def mcp_json(sink: Sink, groups: Groups) -> Reader:
    """The name is that of a server's tool, which is offered under a name made of both."""
    return JsonCalls(sink, Named(server_tool(unescaped(groups["server"] or ""), name_in(groups), sink.tools)))


def tagged(markup: Markup, *, whole_at_end: bool = False) -> Callable[[Sink, Groups], Reader]:
    """Raw values between these tags. `whole_at_end`: the end of the message ends the call as well."""

    def begin(sink: Sink, groups: Groups) -> Reader:
        if groups.get("void"):
            return EmptyCall(sink, name_in(groups))
        return TaggedCall(sink, markup, name_in(groups), whole_at_end=whole_at_end)

    return begin


def arg_lines(markup: Markup) -> Callable[[Sink, Groups], Reader]:
    return tagged(markup, whole_at_end=True)


def tool_element(sink: Sink, groups: Groups) -> Reader:
    """<TOOL><PARAMETER>value</PARAMETER></TOOL>: the tags are the tool's own."""
    name = name_in(groups)
    if attributes := groups.get("attributes"):
        return EmptyCall(sink, name, attribute_values(attributes, sink.schema(name)))
    return TaggedCall(sink, children_tags(name, sink), name)


def empty_call(sink: Sink, groups: Groups) -> Reader:
    """A call without a body."""
    return EmptyCall(sink, name_in(groups))


def children_until(end: str) -> Callable[[Sink, Groups], Reader]:
    """The tool's parameters as elements, inside one of the elements `end`."""

    def begin(sink: Sink, groups: Groups) -> Reader:
        name = name_in(groups)
        return TaggedCall(sink, children_tags(name, sink, end), name)

    return begin


named_children = children_until("parameters")


def assignments(sink: Sink, groups: Groups) -> Reader:
    """KEY=VALUE, one behind the other."""
    name = name_in(groups)
    return RawCall(sink, r"</(?:tool_call|function_call|user|tool_calls)s?\s?>", assigned_call(name), name)


def untaught(sink: Sink, groups: Groups) -> Reader:
    """A form that no row knows, round the name of a tool."""
    return UntaughtCall(sink, name_in(groups), groups.get("label") or "")


def nested_tags(sink: Sink, groups: Groups) -> Reader:
    name = name_in(groups)
    return RawCall(sink, r"<\]minimax\[>\[\s{0,100}</invoke>", nested_calls(name), name)


def literal(sink: Sink, groups: Groups) -> Reader:
    if not groups.get("bracket"):
        return EmptyCall(sink, name_in(groups))
    return LiteralCall(sink, name_in(groups), groups["bracket"] or "")


def python_calls(sink: Sink, groups: Groups) -> Reader:
    return PythonCalls(sink)


def bare_python(sink: Sink, groups: Groups) -> Reader:
    return PythonCalls(sink, offered_only=True)


def all_pairs(sink: Sink, groups: Groups) -> Reader:
    """Pairs of which the first names the tool."""
    return RawCall(sink, r"</tool_call>", pair_calls)


def arrow_until(end: str) -> Callable[[Sink, Groups], Reader]:
    """{tool => "NAME", args => {...}} up to `end`."""

    def begin(sink: Sink, groups: Groups) -> Reader:
        return RawCall(sink, end, arrow_calls)

    return begin


bracket_arrow = arrow_until(r"\[/TOOL_CALLS?\]")
tag_arrow = arrow_until(r"</tool_code>")


def text_until(end: str, *, whole_at_end: bool = False) -> Callable[[Sink, Groups], Reader]:
    """Raw text for the one tool that the opener names."""

    def begin(sink: Sink, groups: Groups) -> Reader:
        name = name_in(groups)
        return RawCall(sink, end, body_of(name), name, whole_at_end=whole_at_end)

    return begin


def words_until(end: str) -> Callable[[Sink, Groups], Reader]:
    """The same without the space around it. The tool may be the opener's label, and its first word not the name."""

    def begin(sink: Sink, groups: Groups) -> Reader:
        name, label = name_in(groups), groups.get("label") or ""
        lead = ""
        if label and sink.offers(label) and not sink.offers(name):
            name, lead = label, groups["lead"] or ""
        return RawCall(sink, end, words_of(name, lead), name)

    return begin


def interpreter(sink: Sink, groups: Groups) -> Reader:
    """Code for whichever code tool is offered."""
    return RawCall(sink, r"(?=<\|action_end\|>)", code_for)


def code_to_end(sink: Sink, groups: Groups) -> Reader:
    """The same, up to the end of the message: nothing else marks where it ends."""
    return RawCall(sink, r"(?=<\|(?:eom_id|eot_id|im_end)\|>)", code_for, whole_at_end=True)
