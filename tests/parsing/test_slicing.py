"""Slicing never changes what a message means: for fragments of every dialect, mark and token, in any order."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parsing import Call, ParseEvent, Parser
from parsing.matching import HOLD
from tests.support.nightly import at_night
from tests.support.parsing.cases import GROUPS, PAIRS, TOOLS, sliced, with_joined_text
from tests.support.parsing.forms import WRITERS
from tests.support.parsing.writers import Call as Written

CALLS: list[Written] = [
    ("set_lamp", {"room": "attic", "level": 2}),
    ("write_note", {"path": "a.txt", "body": 'x < y\n"so" </b>'}),
]
WHOLE = [
    *(write([call]) for _, write in sorted(WRITERS.items()) for call in CALLS),
    *(case["text"] for cases in GROUPS.values() for case in cases if case["text"]),
]
MARKS = [
    *PAIRS, *PAIRS.values(), " to=self<|message|>", " to=user<|message|>", "<|start|>assistant",
    "<|channel|>final<|message|>", "<|start|>assistant to=user<|message|>", "<|channel|>commentary<|message|>",
    "<|channel|>analysis", "<|message|>",
    "<|open|>response<|sep|>", "<|content_text|>", "<|im_end|>", "<|end|>", "<|return|>", "<|call|>", "<|eom|>", "</s>",
    "<tool_response>", "Observation:", "Thought:", "Action:", "<thinking>", "</thinking>", "<answer>", "</tool_call>",
    "</function>", "```", "```\n", "```bash\n", "```json\n", "~~~~\n", "`", "``", ">>>", "{", "}", "[", "]", "(", ")",
    '"', "\\", "\\n", "'", ",", ";", ":",
]  # fmt: skip
PROSE = [
    "So ", "it is.", " a < b ", "ping", "set_lamp", "bash", "\n", "\n\n", " ", "  ", "     ", "\t", "\r\n", "1. ",
    "é😀", "x" * 70,
]  # fmt: skip
HINTS: list[dict[str, Any]] = [
    {},
    {"starts_in_thought": True},
    {"fences": False},
    {"calls": False},
    *(
        {"prompt_suffix": suffix}
        for suffix in (*PAIRS, ">>>", "<|im_start|>assistant", "<|start|>assistant to=user<|message|>")
    ),
]


CALL = '<tool_call>{"name": "set_lamp", "arguments": {"room": "a"}}</tool_call>'
# What stands in front of something long, what is long, and what follows.
LONG = {
    "spaces in front": ("", " ", CALL),
    "inline code": ("So `", "y", f"` {CALL}"),
    "inline code of short words": ("So `", "y z", f"\n{CALL}` "),
    "back-ticks": ("So ", "`", CALL),
    "spaces in an opener": ("<tool_call>", " ", CALL[11:]),
    "an attribute": ('<invoke name="', "n", f'">{CALL}'),
    "an attribute in a thought": ('<think><invoke name="', "n", f"</think>{CALL}"),
    "a string of a draft": (f"<think>{CALL[:-16]}</think>", "v", CALL[-16:]),
    "spaces after a call": (CALL, " ", "</tool_call>so"),
    "spaces before a closer": (CALL[:-12], "\n", CALL[-12:]),
    "a name": ('<tool_call>{"name": "', "n", CALL[-20:]),
    "a value": ("<function=write_note><parameter=body>", "</parameter>\n ", "</parameter></function>"),
    "a fence's line": ("```", "i", f"\n{CALL}\n```\n"),
    "a plan": ("Plan:", "p", "\nAction: x"),
    "a first word": ("set_lamp", "x", "()"),
}


def fragments(chance: random.Random) -> list[str]:
    """Some texts one after the other; a whole one may be cut."""
    found = []
    for _ in range(chance.randint(1, 7)):
        kind = chance.random()
        if kind < 0.45:
            text = chance.choice(WHOLE)
            start = chance.randrange(len(text)) if chance.random() < 0.3 else 0
            end = chance.randrange(start, len(text)) + 1 if chance.random() < 0.6 else len(text)
            found.append(text[start:end])
        else:
            found.append(chance.choice(MARKS if kind < 0.8 else PROSE))
    return found


def read(pieces: list[str], hints: dict[str, Any]) -> tuple[list[ParseEvent], dict[int, str]]:
    parser = Parser(TOOLS, **hints)
    events = [event for piece in pieces for event in parser.feed(piece)]
    events += parser.close()
    kept = {event.index: parser.raw.get(event.index, "") for event in events if isinstance(event, Call)}
    return with_joined_text(events), kept


@settings(deadline=None, max_examples=at_night(20_000, 300))
@given(st.integers(0, 1 << 40), st.sampled_from(HINTS))
def test_slicing_changes_nothing(seed: int, hints: dict[str, Any]) -> None:
    text = "".join(fragments(random.Random(seed)))
    whole = read([text], hints)
    for pieces in (list(text), sliced(text, seed), sliced(text, seed + 1)):
        assert read(pieces, hints) == whole, (text, pieces)


@pytest.mark.parametrize("size", [HOLD - 1, HOLD, HOLD + 1, 2 * HOLD, 40_000])
@pytest.mark.parametrize("long", LONG)
def test_what_is_looked_at_is_bounded_by_characters_not_by_pieces(long: str, size: int) -> None:
    before, again, behind = LONG[long]
    text = before + (again * size)[:size] + behind
    whole = read([text], {})
    for step in (7, 999, HOLD, 20_011):
        assert read([text[at : at + step] for at in range(0, len(text), step)], {}) == whole, step


FOUND = {
    "an indented fence in a fence": "```]\n\t```\n<|channe",
    "an indented header in a thought": "<think>\n    to=self<|message|>",
    "a fence that grows": "```tool\nTOOL_NAME:e\n````",
    "a header before markup": f"So\n to=self<|message|>{CALL}",
    "a mark that waits for its end": "[THINK]<|channel>thought",
    "an opener behind a call": "<｜invokename=k><｜function_call>\n",
}


@pytest.mark.parametrize("name", FOUND)
def test_what_depended_on_the_pieces(name: str) -> None:
    assert read(list(FOUND[name]), {}) == read([FOUND[name]], {})
