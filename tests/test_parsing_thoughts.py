"""Thoughts whose beginning the parser never saw, and drafts of calls in thoughts."""

from __future__ import annotations

from typing import Any

import pytest

from parsing import Call, ParseEvent, Parser, Reclassified, Text, Thought
from parsing.parser import gather
from tests.test_parsing_cases import joined

TOOLS: dict[str, dict[str, Any]] = {
    "ping": {"type": "object", "properties": {"host": {"type": "string"}}, "required": ["host"]}
}
PING = '<tool_call>{"name": "ping", "arguments": {"host": "a"}}</tool_call>'
AGAIN = PING.replace('"a"', '"b"')


def read(text: str, size: int = 1, **hints: Any) -> tuple[list[ParseEvent], Parser]:
    parser = Parser(TOOLS, **hints)
    events = [event for at in range(0, len(text), size) for event in parser.feed(text[at : at + size])]
    return joined([*events, *parser.close()]), parser


@pytest.mark.parametrize("size", [1, 4, 999])
def test_all_that_was_shown_is_thought_in_hindsight(size: int) -> None:
    events, _ = read("\n😀 plan\n\n</think>\n\nAnswer", size)
    assert events == [Text("\n😀 plan\n\n"), Reclassified(9), Text("\n\nAnswer")]
    parsed = gather(events)
    assert (parsed.reasoning, parsed.content) == ("\n😀 plan\n\n", "\n\nAnswer")


@pytest.mark.parametrize("size", [1, 4, 999])
def test_calls_before_the_end_of_such_a_thought_were_drafts(size: int) -> None:
    events, parser = read(f"plan {PING} no{PING[:20]}|</tool_call></think>{AGAIN}", size)
    assert [event for event in events if isinstance(event, Reclassified)] == [Reclassified(8, 2)]
    parsed = gather(events)
    assert (parsed.content, parsed.reasoning, parsed.rejected) == ("", "plan  no", [])
    assert parsed.calls == [Call(2, "ping", {"host": "b"}, "hermes")]
    assert list(parser.raw) == [2]  # its index is its own: that of a draft is not given again


@pytest.mark.parametrize("text", ["</think>Answer", "<think></think>Answer</think>", "`</think>` Answer"])
def test_nothing_is_reclassified_where_nothing_was_shown_or_a_thought_was_seen(text: str) -> None:
    events, _ = read(text)
    assert not [event for event in events if isinstance(event, Reclassified)]


def test_an_invented_result_after_a_draft_ends_nothing() -> None:
    """A result counts as invented only behind a call that stands."""
    events, _ = read(f"plan {PING}</think><tool_response>none</tool_response> Answer")
    assert gather(events).content.endswith("Answer")


@pytest.mark.parametrize("hints", [{"starts_in_thought": True}, {"prompt_suffix": "<think>\n"}])
@pytest.mark.parametrize("text", ["plan</think>Answer", "<think>plan</think>Answer", "\n <think>plan</think>Answer"])
def test_a_hint_that_the_text_contradicts_costs_nothing(text: str, hints: dict[str, Any]) -> None:
    events, _ = read(text, **hints)
    [thought, answer] = events
    assert isinstance(thought, Thought) and thought.text.strip() == "plan" and answer == Text("Answer")
