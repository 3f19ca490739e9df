"""Every case of the catalogue: whole, one character at a time, and cut in two at every place."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest

from parsing import Call, CallDelta, ParseEvent, Parser, Text, Thought
from parsing.parser import gather
from parsing.sink import RAW_LIMIT

CASES = [
    json.loads(line)
    for line in (Path(__file__).parents[1] / "fixtures/dialects/cases.jsonl").read_text("utf-8").splitlines()
]
VARIANTS = json.loads((Path(__file__).parents[1] / "fixtures/dialects/variants.json").read_text("utf-8"))
DIALECT_NAMES = sorted({case["dialect"] for case in CASES})
CHUNK = 7


def parser_for(case: dict[str, Any]) -> Parser:
    hint = case.get("hint") or {}
    return Parser(
        {tool["name"]: tool["parameters"] for tool in case["tools"]},
        fences=bool(hint.get("fenced_tools")),
        starts_in_thought=bool(hint.get("starts_in_reasoning")),
        prompt_suffix=hint.get("prompt_suffix", ""),
    )


def events_of(case: dict[str, Any], pieces: Iterable[str]) -> list[ParseEvent]:
    parser = parser_for(case)
    events = [event for piece in pieces for event in parser.feed(piece)]
    return joined([*events, *parser.close()])


def raws_of(case: dict[str, Any], pieces: Iterable[str]) -> dict[int, str]:
    """Of each call the block that it stands in, as it was written."""
    parser = parser_for(case)
    events = [event for piece in pieces for event in parser.feed(piece)]
    calls = [event.index for event in [*events, *parser.close()] if isinstance(event, Call)]
    return {index: parser.raw[index] for index in calls}


def joined(events: Iterable[ParseEvent]) -> list[ParseEvent]:
    """The events with neighbours of one kind made one."""
    result: list[ParseEvent] = []
    for event in events:
        match result[-1:], event:
            case [Text(before)], Text(text):
                result[-1] = Text(before + text)
            case [Thought(before)], Thought(text):
                result[-1] = Thought(before + text)
            case [CallDelta(index, before)], CallDelta(_, text):
                result[-1] = CallDelta(index, before + text)
            case _:
                result.append(event)
    return result


def words(text: str | None) -> str:
    return " ".join((text or "").split())


def by_value(value: Any) -> Any:
    """Numbers compare by value, but True is not 1."""
    match value:
        case bool():
            return str(value)
        case int() | float():
            return float(value)
        case list():
            return [by_value(item) for item in value]
        case dict():
            return {key: by_value(item) for key, item in value.items()}
    return value


def seen(events: Sequence[ParseEvent]) -> dict[str, Any]:
    parsed = gather(events)
    return {
        "content": words(parsed.content),
        "reasoning": words(parsed.reasoning),
        "calls": [(call.name, by_value(call.arguments)) for call in parsed.calls],
    }


def expected(case: dict[str, Any]) -> dict[str, Any]:
    wanted = case["expected"]
    return {
        "content": words(wanted["content"]),
        "reasoning": words(wanted["reasoning"]),
        "calls": [(call["name"], by_value(call["arguments"])) for call in wanted["calls"]],
    }


@pytest.mark.parametrize("dialect", DIALECT_NAMES)
def test_a_case_is_read_as_the_catalogue_says(dialect: str) -> None:
    for case in CASES:
        if case["dialect"] == dialect:
            assert seen(events_of(case, [case["text"]])) == expected(case), case["id"]


@pytest.mark.parametrize("dialect", DIALECT_NAMES)
def test_slicing_never_matters(dialect: str) -> None:
    """Character by character, in sevens, and cut in two at every place: the very same events."""
    for case in CASES:
        if case["dialect"] != dialect:
            continue
        text = case["text"]
        whole = events_of(case, [text])
        assert events_of(case, text) == whole, case["id"]
        sevens = [text[start : start + CHUNK] for start in range(0, len(text), CHUNK)]
        assert events_of(case, sevens) == whole, case["id"]
        for cut in range(1, len(text)):
            assert events_of(case, [text[:cut], text[cut:]]) == whole, (case["id"], cut)


def test_a_cut_message_never_makes_another_call() -> None:
    """Each beginning of each case has the case's first calls, and none that the case has not."""
    for case in CASES:
        if case["id"].endswith(("think_closed_draft", "think_closed_only_call", "prose_after_weak", "code_tool")):
            continue  # what follows makes a thought or a sample of a call; code has no end but the message's
        wanted = expected(case)["calls"]
        text = case["text"]
        for end in range(0, len(text), 3):
            calls = seen(events_of(case, [text[:end]]))["calls"]
            assert all(call in wanted for call in calls), (case["id"], end, calls)


@pytest.mark.parametrize("dialect", DIALECT_NAMES)
def test_the_raw_text_of_a_call_is_what_was_written_in_any_slicing(dialect: str) -> None:
    for case in CASES:
        if case["dialect"] != dialect:
            continue
        text = case["text"]
        whole = raws_of(case, [text])
        assert len(whole) == len(case["expected"]["calls"]), case["id"]
        for raw in whole.values():
            assert raw.strip() and raw in text and len(raw) <= RAW_LIMIT, (case["id"], raw)
        assert raws_of(case, text) == whole, case["id"]
        for cut in range(1, len(text), CHUNK):
            assert raws_of(case, [text[:cut], text[cut:]]) == whole, (case["id"], cut)


def test_of_a_long_call_the_beginning_is_kept() -> None:
    body = json.dumps({"name": "note", "arguments": {"text": "word " * RAW_LIMIT}})
    parser = Parser({"note": {}})
    for piece in ("Here: ", "<tool_call>", *body.split(), "</tool_call>"):
        parser.feed(piece)
    parser.close()
    assert len(parser.raw[0]) == RAW_LIMIT and parser.raw[0].startswith('<tool_call>{"name":"note"')


@pytest.mark.parametrize("case", VARIANTS["cases"], ids=lambda case: case["id"])
def test_a_variant_is_read_the_same_at_every_cut(case: dict[str, Any]) -> None:
    """Spellings, omissions and mentions from the field, which no dialect's own examples show."""
    offered = case | {"tools": VARIANTS["tools"]}
    text = case["text"]
    whole = events_of(offered, [text])
    assert seen(whole) == expected(case)
    assert events_of(offered, text) == whole
    for cut in range(1, len(text)):
        assert events_of(offered, [text[:cut], text[cut:]]) == whole, cut
