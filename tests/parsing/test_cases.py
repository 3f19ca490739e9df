"""Every case of the catalogue and of the policies: whole, one character at a time, and cut at every place."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Any

import pytest

from parsing import Call, ParseEvent, Parser
from parsing.parser import gather
from parsing.sink import RAW_LIMIT
from tests.support.nightly import NIGHTLY, at_night
from tests.support.parsing.cases import (
    CASES,
    FIXTURES,
    GROUPS,
    as_fields,
    by_value,
    expected_fields,
    parsed_case,
    parser_for,
    with_joined_text,
)

VARIANTS = json.loads((FIXTURES / "variants.json").read_text("utf-8"))
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


def events_and_raws(case: dict[str, Any], pieces: Iterable[str]) -> tuple[list[ParseEvent], dict[int, str]]:
    """The events, and of each call the block that it stands in, as it was written."""
    parser = parser_for(case)
    events = [event for piece in pieces for event in parser.feed(piece)]
    events += parser.close()
    return with_joined_text(events), {call.index: parser.raw[call.index] for call in gather(events).calls}


@pytest.mark.parametrize("group", sorted(GROUPS))
def test_a_case_is_read_as_the_catalogue_says(group: str) -> None:
    for case in GROUPS[group]:
        events = parsed_case(case, [case["text"]])
        assert as_fields(events) == expected_fields(case), case["id"]
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
        wanted = expected_fields(case)["calls"]
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
    assert as_fields(whole[0]) == expected_fields(case)
    for pieces in slicings(case["text"]):
        assert events_and_raws(offered, pieces) == whole, pieces
