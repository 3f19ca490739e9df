"""Texts made to hurt: time stays linear, memory bounded, and every character is accounted for."""

from __future__ import annotations

import math
from collections.abc import Callable
from time import process_time
from typing import Any

import pytest

from parsing import BadCall, CallDelta, Parser, parse
from parsing.matching import compiled
from parsing.openers import HEAD, OPENERS
from parsing.parser import gather
from tests.support.nightly import at_night

TOOLS: dict[str, dict[str, Any]] = {
    "note": {"type": "object", "properties": {"path": {"type": "string"}, "body": {"type": "string"}}},
    "ping": {"type": "object", "properties": {}},
}
PING = '<tool_call>{"name": "ping", "arguments": {}}</tool_call>'
# One row: what is repeated, and what stands in front of it.
REPEATED = {
    "brackets": ("", "["),
    "nested brackets": ('<tool_call>{"a": ', "["),
    "nested objects": ('<tool_call>{"name": "note", "arguments": ', '{"a": '),
    "unclosed openers": ("", "<tool_call>"),
    "unclosed calls": ("", '<tool_call>{"name": "note", "arguments": {"body": "'),
    "unclosed functions": ("", "<tool_call><function=note><parameter=body>"),
    "closed parameters of unclosed calls": ("", "<tool_call><function=note><parameter=body>x</parameter></function>."),
    "near sentinels": ("", "<tool_ca <|tool_cal <｜DSML｜too [TOOL_CAL "),
    "bars": ("", "<｜"),
    "back-ticks": ("", "a `b "),
    "one run of back-ticks": ("", "`"),
    "fences": ("", "```\n````\n"),
    "thoughts": ("", "<think>a <tool_call>{"),
    "closers in strings of drafts": ("", '<think><tool_call>{"a":"</think>'),
    "closers in whole strings of drafts": ("", '<think><tool_call>{"a":"</think>", "'),
    "drafts": ("", f"<think>a {PING} b</think>"),
    "drafts in one thought": ("<think>", PING),
    "quoted closers in one draft": ('<think><tool_call>{"a":["', '</think>", "'),
    "closed thoughts": ("", "<think>a</think>"),
    "spaces after an opener": ("<tool_call>", " "),
    "one line": ("", "word "),
    "a bare list": ("", "[ping(), "),
    "bare calls": ("", "ping()\n"),
    "bare objects": ("", '{"name": "ping", "arguments": {}}; '),
    "quotes in a string": ('<tool_call>{"name": "note", "arguments": {"body": "', 'a "b" '),
    "backslashes": ('<tool_call>{"name": "note", "arguments": {"body": "', "\\\\"),
    "closers in a value": ("<tool_call><function=note><parameter=body>", "</parameter> <parameter=x "),
    "closing brackets": ("<tool_call>{", "]}"),
    "pairs without an end": ("<tool_call>note<arg_key>body</arg_key><arg_value>", "<arg_key>"),
    "calls": ("", '<tool_call>{"name": "ping", "arguments": {}}</tool_call>'),
    "spaces": ("", " "),
    "lines": ("", "\n"),
    "spaces in a key": ("<tool_call>note\n<arg_key>", " "),
    "keys of spaces": ("<tool_call>note\n", "<arg_key>" + " " * 300),
    "calls and calls in thoughts": ("", f"{PING}<think>a{PING}</think>\n"),
    "closers in a delimited text": ('<|tool_call>call:note{body:<|"|>', "}<tool_call|>"),
    "openers in a delimited text": ('<|tool_call>call:note{body:<|"|>', "<|tool_call>call:note{"),
    "broken delimited calls": ("", '<|tool_call>call:note{body:<|"|>a}<tool_call|>'),
    "bare texts": ("<|tool_call>call:note{", "a:b,"),
    "flags": ('[TOOL_CALL]{tool => "note", args => {', ' --body "x'),
}
SMALL, LARGE = at_night((8_000, 64_000), (4_000, 32_000))


def feed(text: str, size: int) -> float:
    """CPU seconds to read the text in pieces of this size."""
    start = process_time()
    parser = Parser(TOOLS)
    for at in range(0, len(text), size):
        parser.feed(text[at : at + size])
    parser.close()
    return process_time() - start


@pytest.mark.parametrize("size", [5, 4096])
@pytest.mark.parametrize("name", REPEATED)
def test_time_grows_with_the_length_only(name: str, size: int) -> None:
    """Eight times the text takes about eight times as long: 20 leaves room for noise, 64 would be quadratic."""
    before, again = REPEATED[name]

    def text(length: int) -> str:
        return before + again * (length // len(again))

    small = max(min(feed(text(SMALL), size) for _ in range(2)), 0.001)
    large = feed(text(LARGE), size)
    if large / small >= 20:  # once more: the machine may have been busy
        large = min(large, feed(text(LARGE), size))
    assert large / small < 20, f"exponent {math.log(large / small, LARGE / SMALL):.2f}"


@pytest.mark.parametrize("name", REPEATED)
def test_hostile_text_is_the_same_in_any_slicing(name: str) -> None:
    before, again = REPEATED[name]
    text = before + again * 60
    whole = parse(text, TOOLS)
    parser = Parser(TOOLS)
    assert gather([*(event for char in text for event in parser.feed(char)), *parser.close()]) == whole


def test_a_string_costs_the_same_at_any_depth() -> None:
    """As above: what is remembered of the open brackets at each string is no copy of them."""
    before, strings = '<tool_call>{"a": ', '"s", ' * 20_000
    shallow = max(min(feed(f"{before}[{strings}", 4096) for _ in range(2)), 0.001)
    deep = min(feed(before + "[" * 100_000 + strings, 4096) for _ in range(2))
    assert deep / shallow < 20


def test_a_hundred_thousand_brackets_are_refused() -> None:
    nested = "[" * 100_000 + "]" * 100_000
    parsed = parse(f'<tool_call>{{"name": "note", "arguments": {nested}}}</tool_call> after', TOOLS)
    assert parsed.calls == []
    assert (len(parsed.rejected), parsed.content.strip()) == (1, "after")


@pytest.mark.parametrize(
    "pieces", [lambda text: [text], lambda text: [text[i : i + 999] for i in range(0, len(text), 999)]]
)
def test_an_undecided_form_is_released_at_its_limit(pieces: Callable[[str], list[str]]) -> None:
    text = '{"name": "note", "arguments": {"body": "' + "x" * 5000 + '"}}'
    parser = Parser(TOOLS, limit=2000)
    parsed = gather([*(event for piece in pieces(text) for event in parser.feed(piece)), *parser.close()])
    assert (parsed.content, parsed.calls) == (text, [])


def test_an_undecided_form_is_not_held_beyond_its_limit() -> None:
    parser = Parser(TOOLS, limit=2000)
    parser.feed('{"name": "note", "arguments": {"body": "')
    shown = sum(len(event) for _ in range(30) for event in parser.feed("x" * 100) if isinstance(event, str))
    assert shown > 2900


@pytest.mark.parametrize("size", [1, 999, 10_000])
def test_a_result_invented_in_a_thought_ends_nothing_beyond_the_limit(size: int) -> None:
    thought = f"{PING}<tool_response>{'x' * 5000}"
    text = f"<think>{thought}</think>Hello."
    parser = Parser(TOOLS, limit=2000)
    pieces = (text[at : at + size] for at in range(0, len(text), size))
    parsed = gather([*(event for piece in pieces for event in parser.feed(piece)), *parser.close()])
    assert (parsed.reasoning, parsed.content, parsed.calls) == (thought, "Hello.", [])


def test_a_call_beyond_all_measure_is_refused() -> None:
    parser = Parser(TOOLS, limit=1000)
    events = parser.feed('<tool_call>{"name": "note", "arguments": {"body": "')
    for _ in range(200):
        events += parser.feed("x" * 100)
    events += parser.close()
    [bad] = gather(events).rejected
    assert isinstance(bad, BadCall) and "too long" in bad.reason
    assert gather(events).calls == []


@pytest.mark.parametrize("size", [1, 5, 50_000])
def test_a_limit_holds_in_a_value_full_of_backslashes(size: int) -> None:
    text = '<tool_call>{"name": "note", "arguments": {"body": "' + r"\n" * 20_000
    parser = Parser(TOOLS, limit=1000)
    events = [event for at in range(0, len(text), size) for event in parser.feed(text[at : at + size])]
    events += parser.close()
    assert sum(len(event.text) for event in events if isinstance(event, CallDelta)) < 16 * 1000
    assert isinstance(events[-1], BadCall)


def test_a_line_of_ten_megabytes() -> None:
    parsed = parse("word " * 2_000_000, TOOLS)
    assert len(parsed.content) == 10_000_000


def test_spaces_between_tags_are_not_shared_out_in_every_way() -> None:
    """Both wait for a tag's end, with as much held: one of them took 250 times as long as the other."""

    def spent(before: str) -> float:
        return min(feed(before + " " * SMALL, 64) for _ in range(3))

    plain, pairs = spent("<tool_call><function=note><parameter=body>x</"), spent("<tool_call>note\n<arg_key>body</")
    assert pairs / max(plain, 0.001) < 30


@pytest.mark.parametrize("space", [" ", "\n", "\t ", "\r\n"])
def test_spaces_in_front_of_everything_are_not_an_event_each(space: str) -> None:
    assert len(Parser(TOOLS).feed(space * 10_000)) <= 2


def test_what_is_kept_of_the_calls_is_not_gone_through_for_each_thought() -> None:
    parser = Parser(TOOLS)
    parser.feed(PING * 10)
    kept = parser.raw
    parser.feed(f"<think>a{PING}</think>" * 10 + PING)
    parser.close()
    assert parser.raw is kept and list(kept) == list(range(11))


# Beginnings that are none: what is repeated, and how many of a thousand may be looked at row by row.
RULED_OUT = (
    "<tool",
    "<|tool",
    "</tool",
    '<tool"',
    "<user>",
    "<",
    "[",
    "<|",
    "<｜",
    "✿",
    "word <b> ",
    "[TOOL",
    "<a></a>",
)


@pytest.mark.parametrize("size", [7, 4096, 1 << 20])
@pytest.mark.parametrize("repeated", RULED_OUT)
def test_what_its_first_characters_rule_out_is_not_looked_at_further(repeated: str, size: int) -> None:
    text = f"So: {repeated * 1000}\n\nDone."
    parser = Parser(TOOLS)
    events = [event for at in range(0, len(text), size) for event in parser.feed(text[at : at + size])]
    assert len(events) <= len(text) // size + 1, "one text for each piece"
    assert gather([*events, *parser.close()]).content == text
    assert parser.tried <= 1, "the last"


@pytest.mark.parametrize(
    "text",
    [
        "Look: " + "<tool_call>x " * 50 + "<b>bold</b> " * 50,
        "<tool_use> [TOOL_CALLS] " * 30,
        "So. " + PING * 20 + "<think>a</think>" * 20,
        "<x:invoke y> <x:invo <tool_call> {`a`<tool_call> } " * 20,
        "<unknown_tool>a</unknown_tool> <ping>" * 20,
    ],
)
def test_places_are_counted_alike_however_the_text_is_sliced(text: str) -> None:
    counts = set()
    for size in (1, 3, 7, 64, 65, 1000, len(text)):
        parser = Parser(TOOLS)
        for at in range(0, len(text), size):
            parser.feed(text[at : at + size])
        parser.close()
        counts.add(parser.tried)
    assert len(counts) == 1
    assert counts.pop() > 19


@pytest.mark.parametrize("letter", ["é", "中", "٣", "\u2003", "☃", "｜", "▁", "ꙮ", "\ud800"])
def test_a_head_rules_nothing_out_that_a_row_may_begin(letter: str) -> None:
    """Characters beyond ASCII stand for their class, so the short way must see what the long one sees."""
    openers = [f"<{letter}", f"<{letter}:invoke name=", f"<｜{letter}", f"[{letter}", f"<tool_call>{letter}\n{{"]
    for table in (OPENERS.marked, OPENERS.rest, OPENERS.last, OPENERS.tokens, OPENERS.shapes, OPENERS.lines):
        for opener in openers:
            slowly = any(compiled(opens).match(opener, partial=True) for opens, _ in table.rows)
            assert table.may_begin(opener) == slowly
            assert not slowly or table.begun(opener[:HEAD]), "the head leaves the row"
