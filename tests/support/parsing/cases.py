"""The recorded cases of dialects and policies, and what a parser makes of them."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from parsing import CallDelta, ParseEvent, Parser, Text, Thought
from parsing.openers import OPENERS, Openers
from parsing.parser import gather
from tests import ROOT

FIXTURES = ROOT / "fixtures/dialects"


def cases_in(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text("utf-8").splitlines()]


CASES = cases_in(FIXTURES / "cases.jsonl")
POLICIES = {file.stem: cases_in(file) for file in sorted((FIXTURES / "policies").glob("*.jsonl"))}
BY_DIALECT = {
    name: [case for case in CASES if case["dialect"] == name]
    for name in dict.fromkeys(case["dialect"] for case in CASES)
}
# Few tests with many cases each: a dialect's, or a policy's of every dialect that it touches.
GROUPS = BY_DIALECT | POLICIES
TOOLS: dict[str, dict[str, Any]] = {
    tool["name"]: tool["parameters"] for case in CASES for tool in case["tools"] if "." not in tool["name"]
}
# What opens a thought, and what closes it.
PAIRS = {
    "<think>": "</think>",
    "<think:o>": "</think:o>",
    "<seed:think>": "</seed:think>",
    "<mm:think>": "</mm:think>",
    "<longcat_think>": "</longcat_think>",
    "<ifm|think_fast>": "</ifm|think_fast>",
    "[THINK]": "[/THINK]",
    "<|channel>thought\n": "<channel|>",
    "<|channel>": "<channel|>",
    "<|channel|>analysis<|message|>": "<|end|><|start|>assistant<|channel|>commentary<|message|>",
    "<|start|>assistant to=self<|message|>": "<|eom|>",
    "<|message_model|><|content_thinking|>": "<|end_message|>",
    "<|open|>think<|sep|>": "<|close|>think<|sep|>",
    "◁think▷": "◁/think▷",
    "<|START_THINKING|>": "<|END_THINKING|>",
    "<|inner_prefix|>": "<|inner_suffix|>",
    "<|think|>": "<|end|>",
    "<|plamo:begin_think:plamo|>": "<|plamo:end_think:plamo|>",
    "<|thought_start|>": "<|thought_end|>",
    "[unused16]": "[unused17]",
    "<|think:start|>": "<|think:end|>",
    "<|im_start|>assistant/think\n": "<|im_end|>",
}


def parser_for(case: dict[str, Any], openers: Openers = OPENERS) -> Parser:
    hint = case.get("hint") or {}
    return Parser(
        {tool["name"]: tool["parameters"] for tool in case["tools"]},
        fences=bool(hint.get("fenced_tools")),
        starts_in_thought=bool(hint.get("starts_in_reasoning")),
        stop_cut=bool(hint.get("stop_cut")),
        prompt_suffix=hint.get("prompt_suffix", ""),
        openers=openers,
    )


def parsed_case(case: dict[str, Any], pieces: Iterable[str], openers: Openers = OPENERS) -> list[ParseEvent]:
    parser = parser_for(case, openers)
    events = [event for piece in pieces for event in parser.feed(piece)]
    return with_joined_text([*events, *parser.close()])


def with_joined_text(events: Iterable[ParseEvent]) -> list[ParseEvent]:
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


def as_fields(events: Sequence[ParseEvent]) -> dict[str, Any]:
    parsed = gather(events)
    return {
        "content": words(parsed.content),
        "reasoning": words(parsed.reasoning),
        "calls": [(call.name, by_value(call.arguments)) for call in parsed.calls],
    }


def expected_fields(case: dict[str, Any]) -> dict[str, Any]:
    wanted = case["expected"]
    return {
        "content": words(wanted["content"]),
        "reasoning": words(wanted["reasoning"]),
        "calls": [(call["name"], by_value(call["arguments"])) for call in wanted["calls"]],
    }


def sliced(text: str, seed: int) -> list[str]:
    chance = random.Random(seed)
    pieces = []
    while text:
        size = chance.choice((1, 1, 2, 3, 5, 11, 40))
        pieces.append(text[:size])
        text = text[size:]
    return pieces
