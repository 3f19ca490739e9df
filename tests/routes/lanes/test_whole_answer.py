from __future__ import annotations

import json
from typing import Any

import pytest

from app.core.events import (
    AgentEvent,
    Notice,
    ReasoningDelta,
    RoundStarted,
    TextDelta,
    TextReclassified,
    Usage,
    encode,
)
from app.storage.runs import EventRow
from routes.lanes.answer import Answer, Words
from routes.lanes.event_text import arguments_text


def collected(*events: AgentEvent) -> Answer:
    answer = Answer()
    for number, event in enumerate(events, 1):
        answer.add(EventRow("run_1", number, event.type, encode(event)))
    return answer


def test_a_round_that_goes_on_with_a_broken_answer_begins_nothing_new() -> None:
    goes_on = Notice("continued", "The answer broke off.")
    answer = collected(RoundStarted(1), TextDelta("Half an "), goes_on, RoundStarted(2), TextDelta("answer."))
    assert answer.text == "Half an answer."
    assert answer.items == [Words(["Half an ", "answer."])]


def test_words_know_their_round() -> None:
    answer = collected(
        RoundStarted(1), TextDelta("a"), ReasoningDelta("b"), TextDelta("c"), RoundStarted(2), TextDelta("d")
    )
    assert [(one.text, one.round) for one in answer.items if isinstance(one, Words)] == [
        *(("a", 1), ("b", 1), ("c", 1)),
        ("d", 2),
    ]


def test_what_was_taken_back_is_no_text() -> None:
    answer = collected(
        RoundStarted(1), TextDelta("Hm. "), TextReclassified(4), ReasoningDelta("Hm. "), TextDelta("Yes.")
    )
    assert (answer.text, answer.reasoning) == ("Yes.", "Hm. ")


@pytest.mark.parametrize("code, name", [("cut", "cut"), ("refusal", "declined")])
def test_only_the_last_round_says_how_the_answer_ended(code: str, name: str) -> None:
    assert getattr(collected(RoundStarted(1), Notice(code, "")), name) is True
    assert getattr(collected(RoundStarted(1), Notice(code, ""), RoundStarted(2)), name) is False


def test_cached_tokens_are_those_of_all_rounds() -> None:
    answer = collected(Usage(10, 1, 10, 1, True, cached_tokens=4), Usage(20, 1, 30, 2, True, cached_tokens=8))
    assert (answer.used.cached, answer.usage["total_prompt_tokens"]) == (12, 30)


@pytest.mark.parametrize(
    "arguments, text",
    [
        ({}, "{}"),
        ({"a": "Bröt \N{PILE OF POO}"}, '{"a": "Bröt \N{PILE OF POO}"}'),
        ({"a": "\ud83d"}, r'{"a": "\ud83d"}'),
    ],
)
def test_arguments_are_text_that_any_client_can_show(arguments: dict[str, Any], text: str) -> None:
    assert arguments_text(arguments) == text
    text.encode()
    assert json.loads(text) == arguments
