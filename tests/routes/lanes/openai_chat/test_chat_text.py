"""The text and the thoughts of Chat Completions: no stray white space, nothing twice, the same however a log is cut."""

from __future__ import annotations

from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.core.events import AgentEvent, Notice, ReasoningDelta, RoundStarted, TextDelta, TextReclassified
from app.log.log_compaction import joined_rows
from tests.support.lanes.chat_chunks import (
    CALL,
    CLIENT_TOOLS,
    FINISHED,
    NEXT,
    OTHER,
    OWN,
    ROUND,
    by_character,
    chunks,
    deltas,
    message_of,
    whole,
)
from tests.support.lanes.logs import STARTED, rows_of

ANSWER: list[AgentEvent] = [STARTED, ROUND, TextDelta("Hello."), FINISHED]
WHITE: dict[str, tuple[list[AgentEvent], str]] = {
    "before a call": ([TextDelta("\n"), CALL, CLIENT_TOOLS], ""),
    "between text and a call": ([TextDelta("I look.\n"), TextDelta("\n"), CALL, CLIENT_TOOLS], "I look."),
    "a blank before a call": ([TextDelta("I look. "), CALL, CLIENT_TOOLS], "I look. "),
    "blanks in pieces of their own": ([TextDelta("I"), TextDelta(" "), TextDelta("\t"), CALL, CLIENT_TOOLS], "I \t"),
    "a blank and a line": ([TextDelta("I look. \n"), TextDelta(" "), CALL, CLIENT_TOOLS], "I look. "),
    "a blank alone before a call": ([TextDelta(" "), CALL, CLIENT_TOOLS], ""),
    "behind a call": ([TextDelta("I look."), CALL, TextDelta("\n"), CLIENT_TOOLS], "I look."),
    "between calls": ([CALL, TextDelta("\n"), OTHER, CLIENT_TOOLS], ""),
    "text behind a call": ([TextDelta("a\n"), CALL, TextDelta("\nb"), CLIENT_TOOLS], "a\n\nb"),
    "inside of text": ([TextDelta("a"), TextDelta(" \n"), TextDelta("\tb "), TextDelta("c"), FINISHED], "a \n\tb c"),
    "in front": ([TextDelta("  "), TextDelta("  a"), FINISHED], "    a"),
    "at the end": ([TextDelta("a\n"), FINISHED], "a\n"),
    "alone": ([TextDelta("\n"), FINISHED], "\n"),
    "a backslash and a letter": ([TextDelta("a\\n"), TextDelta("b"), CALL, CLIENT_TOOLS], "a\\nb"),
    "a quotation": ([TextDelta('"a"'), TextDelta('"'), FINISHED], '"a""'),
    "empty text": ([TextDelta("a"), TextDelta(""), TextDelta("b"), FINISHED], "ab"),
    "a further round": ([TextDelta("a \n"), NEXT, TextDelta(" \n"), TextDelta(" b"), FINISHED], "a \n\nb"),
    "a further round of white space": ([TextDelta("a\n"), NEXT, TextDelta("\n"), FINISHED], "a"),
    "a further round without text": ([TextDelta("a\n"), NEXT, FINISHED], "a"),
    "no text before a further round": ([*OWN, NEXT, TextDelta("b"), FINISHED], "b"),
    "white space before a further round": ([TextDelta("\n"), NEXT, TextDelta("b"), FINISHED], "b"),
    "three rounds": ([TextDelta("a"), NEXT, *OWN, RoundStarted(3), TextDelta("b"), FINISHED], "a\n\nb"),
    "an answer that goes on": (
        [TextDelta("Half an "), Notice("continued", ""), NEXT, TextDelta("answer."), FINISHED],
        "Half an answer.",
    ),
    "behind thoughts": ([ReasoningDelta("hm"), TextDelta("\n"), TextDelta("\n a"), FINISHED], "a"),
    "around thoughts": ([TextDelta("\n"), ReasoningDelta("hm"), TextDelta("\na"), FINISHED], "a"),
    "alone behind thoughts": ([ReasoningDelta("hm"), TextDelta("\n"), FINISHED], ""),
    "thoughts of a further round": (
        [TextDelta("a\n"), NEXT, ReasoningDelta("hm"), TextDelta("\nb"), FINISHED],
        "a\n\nb",
    ),
    "thoughts of a further round alone": ([*OWN, NEXT, ReasoningDelta("hm"), TextDelta("\nb"), FINISHED], "b"),
    "thoughts between": ([TextDelta("a "), ReasoningDelta("hm"), TextDelta("b"), FINISHED], "a b"),
}


@pytest.mark.parametrize("events, text", WHITE.values(), ids=WHITE)
def test_no_stray_white_space(events: list[AgentEvent], text: str) -> None:
    rows = rows_of(STARTED, ROUND, *events)
    for same in (rows, joined_rows(rows), by_character(rows)):
        assert message_of(chunks(same))["content"] == text
        assert (whole(same)["choices"][0]["message"]["content"] or "") == text


class TestReasoning:
    """Thoughts have two names, and are never sent twice."""

    def test_both_names(self) -> None:
        found = chunks(rows_of(STARTED, ROUND, ReasoningDelta("I th\u00efnk."), TextDelta("Yes."), FINISHED))
        assert deltas(found)[1:] == [
            {"reasoning_content": "I th\u00efnk.", "reasoning": "I th\u00efnk."},
            {"content": "Yes."},
            {},
        ]

    def test_a_further_thought_begins_with_an_empty_line(self) -> None:
        events: list[AgentEvent] = [
            ReasoningDelta("a"),
            ReasoningDelta("b"),
            NEXT,
            ReasoningDelta("c"),
            TextDelta("x"),
            ReasoningDelta("d"),
        ]
        rows = rows_of(STARTED, ROUND, *events, FINISHED)
        assert message_of(chunks(rows))["reasoning"] == "ab\n\nc\n\nd"
        assert whole(rows)["choices"][0]["message"]["reasoning"] == "ab\n\nc\n\nd"

    def test_no_key_without_thoughts(self) -> None:
        assert set(whole(rows_of(*ANSWER))["choices"][0]["message"]) == {"role", "content"}

    def test_what_was_sent_as_text_is_no_thought_again(self) -> None:
        taken: list[AgentEvent] = [
            TextDelta("Hm. So."),
            TextReclassified(7),
            ReasoningDelta("Hm. "),
            ReasoningDelta("So."),
        ]
        rows = rows_of(STARTED, ROUND, *taken, ReasoningDelta(" New."), TextDelta("Yes."), FINISHED)
        for same in (rows, joined_rows(rows), by_character(rows)):
            message = message_of(chunks(same))
            assert (message["content"], message["reasoning"]) == ("Hm. So.Yes.", " New.")
        answer = whole(rows)["choices"][0]["message"]
        assert (answer["content"], answer["reasoning"]) == ("Yes.", "Hm. So. New.")


PIECES = st.text(alphabet=' \n\t\\"nra\u2028\u00e9', min_size=1, max_size=4)
EVENTS = st.one_of(
    st.builds(TextDelta, PIECES),
    st.builds(ReasoningDelta, PIECES),
    st.sampled_from([NEXT, CALL, OTHER, Notice("continued", ""), Notice("cut", ""), *OWN]),
)


@given(st.lists(EVENTS, max_size=12), st.sampled_from([FINISHED, CLIENT_TOOLS]))
def test_any_log_gives_one_answer(events: list[AgentEvent], end: AgentEvent) -> None:
    number = count(2)
    events = [RoundStarted(next(number)) if isinstance(event, RoundStarted) else event for event in events]
    rows = rows_of(STARTED, ROUND, *events, end)
    streamed, answer = message_of(chunks(rows)), whole(rows)
    for same in (joined_rows(rows), by_character(rows)):
        assert message_of(chunks(same)) == streamed
        assert whole(same) == answer
    message = answer["choices"][0]["message"]
    assert (message["content"] or "", message.get("reasoning", "")) == (streamed["content"], streamed["reasoning"])
    assert (message["content"] is None) is (bool(streamed["calls"]) and not streamed["content"])
