"""The reasons of calls that cannot be read: each names what is wrong, and the form that would be read."""

from __future__ import annotations

import pytest

from parsing import Parser, parse
from parsing.sink import CUT

TOOLS = {
    "bash": {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]},
    "add": {
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
        "required": ["a", "b"],
    },
}
ECHO = {"command": "echo A"}
USAGE = 'Write <tool_call>{"name": "bash", "arguments": {...}}</tool_call>.'
ARROW = 'Write {tool => "bash", args => { --command "..." }}, or <tool_call>{"name": "bash", "arguments": {...}}'

READ = {
    '<tool_call_name="bash"><command>echo A</command></tool_call_name>': ("bash", ECHO),
    '<tool_call_name="bash">\n<command>echo A</command>\n</tool_call_name>': ("bash", ECHO),
    '<tool_call_name="bash"><args><command>echo A</command></args></tool_call_name>': ("bash", ECHO),
    '<tool_call_name="bash"><parameter name="command">echo A</parameter></tool_call_name>': ("bash", ECHO),
    '<tool_call_name="add"><a>1</a><b>2</b></tool_call_name>': ("add", {"a": 1, "b": 2}),
    "<tool_call><name>bash</name><command>echo A</command></tool_call_name>": ("bash", ECHO),
    "<tool_code>{tool => 'bash', args => {command => 'echo A'}}</tool_code>": ("bash", ECHO),
}
REFUSED = {
    "<tool_code>{tool => 'bash', args => 'echo A'}</tool_code>": ("'echo A' is no argument with a name", ARROW),
    "<tool_code>{tool => 'bash', args => ['echo A']}</tool_code>": ("cannot be read", ARROW),
    "[TOOL_CALL]{tool => 'bash', args => 'echo A'}[/TOOL_CALL]": ("'echo A' is no argument with a name", ARROW),
    "[TOOL_CALL]{tool => 'add', args => '1, 2'}[/TOOL_CALL]": ("no argument", 'args => { --a "..." --b "..." }}'),
    '<tool_call name="bash"><command>echo A</command></tool>': ("ends with </tool>, which is not its closing", USAGE),
    "<function=bash><parameter=command>echo A</parameter></function_call>": ("ends with </function_call>", USAGE),
    "<tool_call>bash<arg_key>command</arg_key><arg_value>echo A</arg_value></function>": ("</function>", USAGE),
}
CUT_OFF = (
    '<tool_call_name="bash"><command>echo A</command>',
    '<tool_call_name="bash"><command>echo A</comm',
    '<tool_call_name="bash"><command>echo A</command></tool_call_na',
    "<function=bash><parameter=command>echo </b>",
    "<function=bash><parameter=command>echo A</parameter></func",
)


@pytest.mark.parametrize("text", READ)
def test_a_call_that_its_own_tag_closes_is_read(text: str) -> None:
    for before, behind in (("", ""), ("So:\n", "\nDone.")):
        found = parse(f"{before}{text}{behind}", TOOLS)
        assert [(call.name, call.arguments) for call in found.calls] == [READ[text]] and not found.rejected
        assert found.content.split() == f"{before}{behind}".split()


@pytest.mark.parametrize("text", REFUSED)
def test_a_refusal_says_what_is_wrong_and_shows_the_form(text: str) -> None:
    [bad] = parse(text, TOOLS).rejected
    why, form = REFUSED[text]
    assert why in bad.reason and form in bad.reason and "ended inside" not in bad.reason


@pytest.mark.parametrize("text", CUT_OFF)
def test_what_ended_inside_is_said_to_have_ended(text: str) -> None:
    [bad] = parse(text, TOOLS).rejected
    assert bad.reason == CUT


@pytest.mark.parametrize("text", [*REFUSED, *CUT_OFF])
def test_the_reason_is_the_same_in_pieces(text: str) -> None:
    [whole] = parse(text, TOOLS).rejected
    parser = Parser(TOOLS)
    events = [event for letter in text for event in parser.feed(letter)] + list(parser.close())
    assert [event.reason for event in events if hasattr(event, "reason")] == [whole.reason]
