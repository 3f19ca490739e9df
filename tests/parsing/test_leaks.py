"""No framing is ever shown as the answer, wherever it stands and however the text is cut."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parsing import Parser, parse
from parsing.parser import gather
from tests.support.nightly import at_night
from tests.support.parsing.cases import CASES, POLICIES
from tests.support.parsing.forms import WEAK, WRITERS

TOOLS: dict[str, dict[str, Any]] = {
    "ping": {"type": "object", "properties": {}},
    "note": {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]},
}
TEXTS = [case["text"] for case in [*CASES, *(case for cases in POLICIES.values() for case in cases)]]
# Words between bars: what no row knows but in a line of prose is framing too.
SHAPED = re.compile(r"<\|[\w:/.-]{1,40}\|>|<｜[\w▁ ]{1,40}｜>|<\w{1,20}\|>")
TOKENS = sorted({token for text in TEXTS for token in SHAPED.findall(text)})
# They begin a message that is shown as it is, or a call of whatever follows.
OPENING = (
    "<|channel|>",
    "<|start|>",
    "<|message|>",
    "<|python_tag|>",
    "<|constrain|>",
    "<|plugin|>",
    "<|open|>",
    "<|sep|>",
)
LONE = [token for token in TOKENS if not token.startswith(OPENING)]
CLOSERS = ["</think>", "[/THINK]", "</seed:think>", "</longcat_think>", "◁/think▷", "</ifm|think>", "<channel|>"]
THOUGHTS = [
    "<think>a plan</think>",
    "[THINK]a plan[/THINK]",
    "◁think▷a plan◁/think▷",
    "<|channel>thought\na plan<channel|>",
]
PROSE = ["Good morning.", "So a < b, and List<String> too.", "1. one\n2. two", "The port is Oban."]
CALLS = [write([("ping", {})]) for dialect, write in sorted(WRITERS.items()) if dialect not in WEAK]
# An explicit opener round a tool's name, in forms that are a call and in forms that are none.
ROUND = [
    '<tool_call name="note">{"text": "x"}</tool_call>', "<tool_call>note\n{}</tool_call>",
    "<tool_call>note a=1</tool_call>",
    '<tool_call_name="note">', "<tool_use><tool_name>note</tool_name></tool_use>", '<use_tool name="note">x</use_tool>',
    "<tool_call><tool>note</tool><parameters>x</parameters></tool_call>", "<tool_call>note: x</tool_call>",
    "<user>note<arg_key>text</arg_key></user>", "[TOOL_CALLS]note x", "<|tool_call|>note, please",
]  # fmt: skip
QUICK = settings(deadline=None, max_examples=at_night(3000, 80))


def shown(text: str, size: int) -> str:
    parser = Parser(TOOLS, fences=False)
    pieces = [text[at : at + size] for at in range(0, len(text), size)]
    return gather([*(event for piece in pieces for event in parser.feed(piece)), *parser.close()]).content


@QUICK
@given(
    st.lists(st.sampled_from([*PROSE, *THOUGHTS, *CALLS]), max_size=3),
    st.sampled_from([*LONE, *CLOSERS]),
    st.lists(st.sampled_from([*PROSE, *THOUGHTS]), max_size=2),
    st.sampled_from([1, 3, 7, 1000]),
)
def test_no_token_on_a_line_of_its_own_is_shown(before: list[str], token: str, after: list[str], size: int) -> None:
    content = shown("\n".join([*before, token, *after]), size)
    assert token not in content, (before, token, after)


@QUICK
@given(
    st.lists(st.sampled_from([*PROSE, *THOUGHTS, *CALLS]), max_size=3),
    st.sampled_from(ROUND),
    st.lists(st.sampled_from(PROSE), max_size=2),
    st.sampled_from([1, 3, 7, 1000]),
)
def test_no_explicit_opener_round_a_tool_is_shown(before: list[str], form: str, after: list[str], size: int) -> None:
    content = shown("\n".join([*before, form, *after]), size)
    assert not re.search(r"<\|?/?(?:tool_call|tool_use|use_tool|user)|\[TOOL_CALLS", content), (before, form, after)


@pytest.mark.parametrize("form", ROUND)
def test_an_explicit_opener_round_a_tool_is_a_call_or_rejected(form: str) -> None:
    parsed = parse(f"So.\n{form}", TOOLS)
    assert parsed.content.strip() == "So." and len(parsed.calls) + len(parsed.rejected) == 1


@pytest.mark.parametrize(
    "prose",
    [
        "<p>One</p> <b>two</b> <a href='x'>y</a> <br/> <div class=\"c\">z</div>",
        "List<String> m = new HashMap<Integer, List<String>>(); a < b && c > d; x << 2",
        "Write to me@example.org or <me@example.org>; see <https://example.org>.",
        "f <| x |> g, a <- b, <|> is a parser, 1 <| 2, <%= name %>",
        "# Title\n\n- [ ] open\n- [x] done\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n> quoted",
        "<tool> and <call> are tags, <invoke> too; <tool_call> holds JSON.",
        "if (a<b) { return x[1]; } // }]\n\\[ x = \\frac{1}{2} \\]",
    ],
)
def test_markup_in_prose_is_shown_as_it_is(prose: str) -> None:
    assert parse(prose, TOOLS).content == prose
    assert shown(prose, 1) == prose


@pytest.mark.parametrize(
    "prose", ["<p>One</p> ", "List<String> m ", "a < b ", "me@example.org ", "<b>x</b> ", "f <| x "]
)
def test_markup_in_prose_does_not_wait(prose: str) -> None:
    parser = Parser(TOOLS)
    parser.feed("So: ")
    assert "".join(str(event) for event in parser.feed(prose)) == prose
