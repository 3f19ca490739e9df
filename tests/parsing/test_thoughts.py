"""Thoughts whose beginning the parser never saw, and drafts of calls in thoughts."""

from __future__ import annotations

from typing import Any

import pytest

from parsing import Call, ParseEvent, Parser, Reclassified, Text, Thought
from parsing.framing import REASONING, Reasoning
from parsing.matching import compiled
from parsing.parser import gather
from tests.support.nightly import at_night
from tests.support.parsing.cases import CASES, PAIRS, as_fields, expected_fields, parsed_case, with_joined_text

TOOLS: dict[str, dict[str, Any]] = {
    "ping": {"type": "object", "properties": {"host": {"type": "string"}}, "required": ["host"]}
}
PING = '<tool_call>{"name": "ping", "arguments": {"host": "a"}}</tool_call>'
AGAIN = PING.replace('"a"', '"b"')


def read(text: str, size: int = 1, **hints: Any) -> tuple[list[ParseEvent], Parser]:
    parser = Parser(TOOLS, **hints)
    events = [event for at in range(0, len(text), size) for event in parser.feed(text[at : at + size])]
    return with_joined_text([*events, *parser.close()]), parser


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


# --- a draft in a thought is no call ---

SINGLES = [case for case in CASES if case["id"].endswith("/single")]


def marks_of(opener: str) -> Reasoning:
    return next(each for each in REASONING if compiled(each.opens).match(f"{opener}x"))


def test_every_pair_of_marks_is_tried() -> None:
    assert {marks_of(opener) for opener in PAIRS} == {each for each in REASONING if not each.answer}


@pytest.mark.parametrize("opener", PAIRS)
def test_in_a_thought_its_closer_beats_every_candidate(opener: str) -> None:
    """A draft that breaks off is thought, and no call, and no rejected one; the call behind the thought is made."""
    for case in SINGLES:
        call = case["text"]
        if compiled(marks_of(opener).shuts).search(call):
            continue  # a thought with these marks ends where such a call begins
        for percent in at_night((35, 50, 65, 80, 90), (50, 80)):
            text = f"{opener}Maybe {call[: len(call) * percent // 100]} is wrong; no.{PAIRS[opener]}{call}"
            whole = parsed_case(case, [text])
            parsed = gather(whole)
            assert as_fields(whole)["calls"] == expected_fields(case)["calls"], text
            assert (parsed.rejected, parsed.content.strip()) == ([], ""), text
            for size in (1, 7) if opener == "<think>" else (9,):
                assert parsed_case(case, [text[at : at + size] for at in range(0, len(text), size)]) == whole, text


QUOTED = '<tool_call>{"name": "ping", "arguments": {"host": "a </think> b"}}</tool_call>'
SPELT_OTHERWISE = QUOTED.replace("name", "'name'").replace("\"'name'\"", "'name'")


@pytest.mark.parametrize(
    ("text", "thought", "answer", "calls"),
    [
        (f"<think>So {QUOTED}", "So ", "", 1),  # a value, in a thought that never ends
        (f"<think>So {QUOTED} no.</think>Hm.", f"So {QUOTED} no.", "Hm.", 0),
        (f"<think>So {QUOTED[:-13]}</think>Hm.", "So " + QUOTED.partition("</think>")[0], ' b"}Hm.', 0),
        (f"<think>So {SPELT_OTHERWISE}", "So " + SPELT_OTHERWISE.partition("</think>")[0], None, 0),
        ('<think>So <tool_call>{"name": "ping", "a</think>Hm.', 'So <tool_call>{"name": "ping", "a', "Hm.", 0),
        ('<think>So <tool_call>{"name": "p</think>He said "ok", so.', 'So <tool_call>{"name": "p', None, 0),
        (f"<think>So {PING} <tool_response>x</think>Hm.", f"So {PING} <tool_response>x", "Hm.", 0),
        (
            '<think>So <function_calls><invoke name="pin no.</think>Hm.',
            'So <function_calls><invoke name="pin no.',
            "Hm.",
            0,
        ),
    ],
)
@pytest.mark.parametrize("size", [1, 5, 999])
def test_a_closer_in_a_string_counts_only_if_its_json_is_not_whole(
    text: str, thought: str, answer: str | None, calls: int, size: int
) -> None:
    parsed = gather(read(text, size)[0])
    assert (parsed.reasoning, len(parsed.calls), parsed.rejected) == (thought, calls, [])
    assert parsed.content == text.partition("</think>")[2] if answer is None else parsed.content == answer
