"""Every case of the catalogue and of the policies: whole, one character at a time, and cut at every place."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from parsing import Call, CallDelta, ParseEvent, Parser, Text, Thought
from parsing.parser import gather
from parsing.sink import RAW_LIMIT
from tests import ROOT
from tests.support.nightly import NIGHTLY, at_night

FIXTURES = ROOT / "fixtures/dialects"


def cases_in(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text("utf-8").splitlines()]


CASES = cases_in(FIXTURES / "cases.jsonl")
VARIANTS = json.loads((FIXTURES / "variants.json").read_text("utf-8"))
POLICIES = {file.stem: cases_in(file) for file in sorted((FIXTURES / "policies").glob("*.jsonl"))}
BY_DIALECT = {name: [case for case in CASES if case["dialect"] == name] for name in {case["dialect"] for case in CASES}}
# Few tests with many cases each: a dialect's, or a policy's of every dialect that it touches.
GROUPS = BY_DIALECT | POLICIES
SIZES = at_night((5, 29), (5,))
# A closer quoted in a value: cut behind it, the message is a whole call that has forgotten one closing tag.
CLOSED_WHERE_CUT = "<arg_value>finish with </tool_call>"


def slicings(text: str) -> Iterator[list[str]]:
    """A character at a time, and cut once at every place in short pieces and in long ones; at night in two as well."""
    yield list(text)
    for size in SIZES:
        for first in range(min(size, len(text))):
            starts = [0, *range(first or size, len(text), size), len(text)]
            yield [text[start:end] for start, end in pairwise(starts)]
    if NIGHTLY:
        for cut in range(1, len(text)):
            yield [text[:cut], text[cut:]]


def parser_for(case: dict[str, Any]) -> Parser:
    hint = case.get("hint") or {}
    return Parser(
        {tool["name"]: tool["parameters"] for tool in case["tools"]},
        fences=bool(hint.get("fenced_tools")),
        starts_in_thought=bool(hint.get("starts_in_reasoning")),
        stop_cut=bool(hint.get("stop_cut")),
        prompt_suffix=hint.get("prompt_suffix", ""),
    )


def events_of(case: dict[str, Any], pieces: Iterable[str]) -> list[ParseEvent]:
    parser = parser_for(case)
    events = [event for piece in pieces for event in parser.feed(piece)]
    return joined([*events, *parser.close()])


def events_and_raws(case: dict[str, Any], pieces: Iterable[str]) -> tuple[list[ParseEvent], dict[int, str]]:
    """The events, and of each call the block that it stands in, as it was written."""
    parser = parser_for(case)
    events = [event for piece in pieces for event in parser.feed(piece)]
    events += parser.close()
    return joined(events), {call.index: parser.raw[call.index] for call in gather(events).calls}


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


@pytest.mark.parametrize("group", sorted(GROUPS))
def test_a_case_is_read_as_the_catalogue_says(group: str) -> None:
    for case in GROUPS[group]:
        events = events_of(case, [case["text"]])
        assert seen(events) == expected(case), case["id"]
        if "rejected" in case["expected"]:
            assert len(gather(events).rejected) == case["expected"]["rejected"], case["id"]


@pytest.mark.parametrize("group", sorted(GROUPS))
def test_slicing_never_matters(group: str) -> None:
    """The very same events, and the very same text kept of each call."""
    for case in GROUPS[group]:
        whole, raws = events_and_raws(case, [case["text"]])
        for pieces in slicings(case["text"]):
            assert events_and_raws(case, pieces) == (whole, raws), (case["id"], pieces)


def test_a_cut_message_never_makes_another_call() -> None:
    """Each beginning of each case has the case's first calls, and none that the case has not."""
    for case in CASES:
        if case["id"].endswith(("think_closed_draft", "think_closed_only_call", "prose_after_weak", "code_tool")):
            continue  # the rest makes a thought or a sample of a call; code has no end but the message's
        wanted = expected(case)["calls"]
        text = case["text"]
        for end in range(0, len(text), at_night(1, 7)):
            if text[:end].rstrip().endswith(CLOSED_WHERE_CUT):
                continue
            parser = parser_for(case)
            events = [*parser.feed(text[:end]), *parser.close()]
            calls = [(event.name, by_value(event.arguments)) for event in events if isinstance(event, Call)]
            assert all(call in wanted for call in calls), (case["id"], end, calls)


@pytest.mark.parametrize("group", sorted(GROUPS))
def test_the_raw_text_of_a_call_is_what_was_written(group: str) -> None:
    for case in GROUPS[group]:
        _, raws = events_and_raws(case, [case["text"]])
        assert len(raws) == len(case["expected"]["calls"]), case["id"]
        for raw in raws.values():
            assert raw.strip() and raw in case["text"] and len(raw) <= RAW_LIMIT, (case["id"], raw)


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
    whole = events_and_raws(offered, [case["text"]])
    assert seen(whole[0]) == expected(case)
    for pieces in slicings(case["text"]):
        assert events_and_raws(offered, pieces) == whole, pieces
