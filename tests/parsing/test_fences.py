"""Fences whose tag is a tool: what the prompt teaches, and what is not one."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parsing import CallDelta, CallOpened, Parser, Text, parse
from parsing.arguments import MOST_PARTS, allowed_types, parts_of
from parsing.fences import MOST_PARAMETERS, fence_usage, fenced_call, fill, shows_arguments, text_parameters
from parsing.parser import gather
from parsing.shapes import Misfit

STRING = {"type": "string"}
TOOLS: dict[str, dict[str, Any]] = {
    "bash": {"type": "object", "properties": {"command": STRING}, "required": ["command"]},
    "python": {"type": "object", "properties": {"code": STRING}, "required": ["code"]},
    "write_file": {
        "type": "object",
        "properties": {"path": STRING, "content": STRING},
        "required": ["path", "content"],
    },
    "list_files": {"type": "object", "properties": {"path": STRING, "depth": {"type": "integer"}}},
    "ping": {"type": "object", "properties": {}},
}
CALLS = {
    "raw text": ("```bash\nls -la\n```", "bash", {"command": "ls -la"}),
    "JSON that fits": ('```bash\n{"command": "ls"}\n```', "bash", {"command": "ls"}),
    "JSON that does not fit is text": ('```python\n{"a": 1}\n```', "python", {"code": '{"a": 1}'}),
    "a line, then the rest": (
        "```write_file\na.md\n# A\n\ntext\n```",
        "write_file",
        {"path": "a.md", "content": "# A\n\ntext"},
    ),
    "a fence inside a longer one": (
        "````write_file\na.md\n```js\nx\n```\n````",
        "write_file",
        {"path": "a.md", "content": "```js\nx\n```"},
    ),
    "no arguments": ("```ping\n```", "ping", {}),
    "an empty body for optional ones": ("```list_files\n```", "list_files", {}),
    "one optional string": ("```list_files\nsrc\n```", "list_files", {"path": "src"}),
    "JSON behind the tag": ('```list_files {"path": "a", "depth": 2}\n```', "list_files", {"path": "a", "depth": 2}),
    "pairs behind the tag": ('```list_files path="a" depth="2"\n```', "list_files", {"path": "a", "depth": 2}),
    "tildes": ("~~~bash\nls\n~~~", "bash", {"command": "ls"}),
    "CRLF": ("```bash\r\nls\r\n```\r\n", "bash", {"command": "ls"}),
    "another form, alone": ('```python\n{"name": "ping", "arguments": {}}\n```', "ping", {}),
}
TEXTS = {
    "an info string": '```python title="demo.py"\nprint(1)\n```',
    "a longer tag": "```python3\nprint(1)\n```",
    "attributes": "```bash {title=x}\nls\n```",
    "JSON that is no argument": '```python {"x": 1}\nprint(1)\n```',
    "an unknown tag": "```rust\nfn main() {}\n```",
    "inside a longer fence": "````md\n```bash\nls\n```\n````",
    "inside inline code": "Write ```bash ls``` to list.",
}


@pytest.mark.parametrize("name", CALLS)
def test_a_fence_is_a_call(name: str) -> None:
    text, tool, arguments = CALLS[name]
    parsed = parse(text, TOOLS)
    assert [(call.name, call.arguments) for call in parsed.calls] == [(tool, arguments)]
    assert not parsed.content.strip()


@pytest.mark.parametrize("name", TEXTS)
def test_a_fence_is_text(name: str) -> None:
    parsed = parse(TEXTS[name], TOOLS)
    assert (parsed.content, parsed.calls, parsed.rejected) == (TEXTS[name], [], [])


@pytest.mark.parametrize("name", CALLS)
def test_without_the_hint_a_fence_is_text(name: str) -> None:
    text = f"So:\n{CALLS[name][0]}"
    assert parse(text, TOOLS, fences=False).content == text


def test_an_unclosed_fence_is_shown_and_told() -> None:
    text = "So:\n```bash\nrm -rf build"
    parsed = parse(text, TOOLS)
    assert (parsed.content, parsed.calls) == (text, [])
    [bad] = parsed.rejected
    assert bad.raw == "" and "not closed" in bad.reason


def test_another_form_in_a_fence_amid_prose_is_answered_by_teaching() -> None:
    parsed = parse('So:\n```python\n{"name": "ping", "arguments": {}}\n```', TOOLS)
    [bad] = parsed.rejected
    assert not parsed.calls and "tag is the tool's name" in bad.reason


@pytest.mark.parametrize("before", ["", "So:\n"])
@pytest.mark.parametrize(
    ("tag", "body", "owner"),
    [
        ("python", '{"command": "ls"}', "bash"),
        ("bash", "{'code': 'print(1)',}", "python"),
        ("bash", '{"path": "a", "content": "b"}', "write_file"),
        ("write_file", '{"cmd": "ls"}', "bash"),
        ("python", '{"command": "ls", "more": 1}', None),
        ("python", "{}", None),
        ("python", '{"path": "a"}', None),  # of optional ones alone
        ("python", '{"code": "{\\"command\\": 1}"}', None),
    ],
)
def test_arguments_of_another_tool_are_not_run_as_text(before: str, tag: str, body: str, owner: str | None) -> None:
    text = f"{before}```{tag}\n{body}\n```\n"
    parser = Parser(TOOLS)
    events = [event for letter in text for event in parser.feed(letter)] + parser.close()
    found = gather(events)
    assert parse(text, TOOLS) == found
    if owner is None:
        assert [call.name for call in found.calls] == [tag] and not found.rejected
        return
    [bad] = found.rejected
    assert not found.calls and f"holds arguments of {owner}, so it was not run" in bad.reason
    assert [event.name for event in events if isinstance(event, CallOpened)] == [owner], "whose form is shown"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ('```json\n{"command": "ls"}\n```', True),
        ('So:\n```xml\n{"command": "ls"}\n```\n', True),
        ('~~~\n{"path": "a",\n "content": "b"}\n~~~', True),
        ('```json\n{"path": "a"}\n```', False),  # of optional ones alone
        ('```json\n{"command": "ls"}\n```\nThat is all.', False),
        ('```json\n{"command": "ls", "x": 1}\n```', False),
        ('```json\n[{"command": "ls"}]\n```', False),
        ('{"command": "ls"}', False),
        ("`" * 100_000 + "\n{" * 50_000, False),
    ],
)
def test_arguments_alone_at_the_end_of_a_text(text: str, shown: bool) -> None:
    assert shows_arguments(text, TOOLS) is shown


def test_markup_in_a_code_fence_is_not_run_as_code() -> None:
    parsed = parse('```bash\n<invoke name="ping"></invoke>\n```', TOOLS)
    assert not parsed.calls and len(parsed.rejected) == 1


def test_a_file_is_seen_growing() -> None:
    parser = Parser(TOOLS)
    events = [
        event
        for piece in ("```write", "_file\na.md\n", "one ", "two\n", "three\n", "```\n")
        for event in parser.feed(piece)
    ]
    assert isinstance(events[0], CallOpened)
    grown = [event.text for event in events if isinstance(event, CallDelta)]
    assert grown == ["a.md\n", "one ", "two\n", "three\n"]
    assert not any(isinstance(event, Text) for event in events[:-1])


@pytest.mark.parametrize(("tool", "body"), [("bash", ""), ("write_file", "only a path")])
def test_a_body_that_fills_nothing_says_what_would(tool: str, body: str) -> None:
    with pytest.raises(Misfit) as refused:
        fill(body, TOOLS[tool])
    assert fence_usage(TOOLS[tool]) in str(refused.value)


def test_the_rule_in_words() -> None:
    assert fence_usage(TOOLS["bash"]) == "The fence's body is the command."
    assert "the path, each on a line of its own, then the content" in fence_usage(TOOLS["write_file"])


WRITTEN: list[tuple[str, dict[str, Any], str]] = [
    ("bash", {"command": "ls -la"}, "```bash\nls -la\n```"),
    ("bash", {"command": '{"command": "ls"}'}, '```bash\n{"command": "{\\"command\\": \\"ls\\"}"}\n```'),
    ("write_file", {"content": "# A\n\ntext", "path": "a.md"}, "```write_file\na.md\n# A\n\ntext\n```"),
    ("write_file", {"path": "a.md", "content": "```js\nx\n```"}, "````write_file\na.md\n```js\nx\n```\n````"),
    ("write_file", {"path": "a\nb", "content": "x"}, '```write_file\n{"path": "a\\nb", "content": "x"}\n```'),
    ("list_files", {"path": "a", "depth": 2}, '```list_files\n{"path": "a", "depth": 2}\n```'),
    ("ping", {}, "```ping\n\n```"),
]


@pytest.mark.parametrize(("tool", "arguments", "fence"), WRITTEN)
def test_a_call_is_written_as_the_fence_that_makes_it(tool: str, arguments: dict[str, Any], fence: str) -> None:
    assert fenced_call(tool, arguments, TOOLS[tool]) == fence
    assert [(call.name, call.arguments) for call in parse(fence, TOOLS).calls] == [(tool, arguments)]


@given(st.sampled_from(sorted(TOOLS)), st.text(), st.text())
def test_any_call_is_written_as_a_fence_that_makes_it(tool: str, first: str, second: str) -> None:
    texts = text_parameters(TOOLS[tool])
    arguments = dict(zip(texts, (first, second), strict=False))
    [call] = parse(fenced_call(tool, arguments, TOOLS[tool]), TOOLS).calls
    assert (call.name, call.arguments) == (tool, arguments)


RESUMED = {
    "in a fence": ("Look:\n```json\n", '{"name": "bash", "arguments": {"command": "ls"}}\n```\n', 0),
    "in a fence that names a tool": ("Look:\n```bash\nls -", "la\n```\nThat is all.", 0),
    "behind a fence": ("Look:\n```text\nls\n```\n", "```bash\nls\n```\n", 1),
    "within a line": ("I run it. ", '\n<tool_call>\n{"name": "bash", "arguments": {}}\n</tool_call>', 1),
}


@pytest.mark.parametrize(("shown", "rest", "calls"), RESUMED.values(), ids=RESUMED)
def test_what_was_shown_before_is_no_call_and_no_event(shown: str, rest: str, calls: int) -> None:
    for size in (1, 7, len(rest)):
        parser = Parser({"bash": {"properties": {"command": {"type": "string"}}}})
        parser.resume(shown)
        pieces = [rest[at : at + size] for at in range(0, len(rest), size)]
        found = gather([*(event for piece in pieces for event in parser.feed(piece)), *parser.close()])
        assert len(found.calls) == calls and not found.rejected
        assert calls or found.content == rest


def test_a_tool_of_many_parameters_takes_no_plain_text() -> None:
    """Each fence would look through all of them."""
    many = {f"p{number}": STRING for number in range(MOST_PARAMETERS)}
    assert text_parameters({"properties": many | {"command": STRING}}) == []
    assert text_parameters({"properties": many, "required": [*many]}) == [*many]
    assert text_parameters({"properties": many, "required": [*many, "more"]}) == []


def test_of_thousands_of_alternatives_the_first_count() -> None:
    root = {"anyOf": [{"const": number} for number in range(5_000)]}
    assert len(parts_of(root, root)) == MOST_PARTS
    assert allowed_types(root, root)[0] == {"integer"}
