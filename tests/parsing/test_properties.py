"""The parser's promises, for texts that nobody wrote down."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parsing import BadCall, Call, CallDelta, CallOpened, ParseEvent, Parser, Text, Thought, parse
from parsing.parser import gather
from tests.support.nightly import at_night
from tests.support.parsing.cases import CASES, TOOLS, sliced, with_joined_text
from tests.support.parsing.forms import SINGLE, WEAK, WRITERS
from tests.support.parsing.writers import Call as Written

NOTE = "write_note"
QUICK = settings(deadline=None, max_examples=at_night(2000, 30))
# Their values are raw text between tags, without escapes: what a tag is made of may not be tried against them.
VALUES = st.text(st.characters(codec="utf-8", exclude_characters="\r<>[]{}|`✿\x00"), min_size=1, max_size=60)
FRAGMENTS = sorted(
    {case["text"][start:end] for case in CASES[::7] for start, end in pairwise(range(0, len(case["text"]), 9))}
)
WILD = st.lists(st.sampled_from(FRAGMENTS) | st.text(max_size=8), max_size=14).map("".join)


def read(pieces: list[str], **hints: Any) -> list[ParseEvent]:
    parser = Parser(TOOLS, **hints)
    events = [event for piece in pieces for event in parser.feed(piece)]
    return with_joined_text([*events, *parser.close()])


def trimmed(value: str) -> str:
    """A value that keeps its ends in every dialect: one newline on each side may belong to the tags."""
    return value.strip("\n") or "x"


@QUICK
@given(WILD, st.integers(0, 1000), st.booleans())
def test_any_slicing_gives_the_same_events(text: str, seed: int, thinking: bool) -> None:
    assert read(sliced(text, seed), starts_in_thought=thinking) == read([text], starts_in_thought=thinking)


@QUICK
@given(st.binary(max_size=200).map(lambda raw: raw.decode("utf-8", "surrogateescape")) | WILD)
def test_nothing_raises_and_events_are_in_order(text: str) -> None:
    check_order(read([text]))


def check_order(events: list[ParseEvent]) -> None:
    """Indexes count up from 0; each call is opened once, ends once, and streams in between."""
    index, opened = 0, False
    for event in events:
        match event:
            case CallOpened(at, _):
                assert at == index and not opened
                opened = True
            case CallDelta(at, _):
                assert at == index and opened
            case Call(at, _, _, _):
                assert at == index and opened
                index, opened = index + 1, False
            case BadCall(at, _, reason):
                assert at == index and reason
                index, opened = index + 1, False
    assert not opened


@QUICK
@given(st.text(st.characters(exclude_characters="<[]{}(`~✿◁|"), max_size=300))
def test_prose_is_shown_verbatim(text: str) -> None:
    if ":" in text or text.startswith("analysis"):
        return  # words that begin a line of a dialect
    parsed = parse(text, TOOLS)
    assert (parsed.content, parsed.calls, parsed.rejected) == (text, [], [])


@QUICK
@given(
    st.text(st.characters(exclude_characters="<[]{}(`~✿◁|"), max_size=300),
    st.sampled_from(["<|im_start|>assistant\n", "<|im_start|>assistant", "<think>\n\n</think>\n\n", "[/INST]", " "]),
    st.integers(0, 1000),
)
def test_what_a_prompt_ends_with_hides_nothing_of_the_answer(text: str, suffix: str, seed: int) -> None:
    if ":" in text or text.startswith(("analysis", "/think")):
        return
    assert gather(read(sliced(text, seed), prompt_suffix=suffix)).content == text


@QUICK
@given(WILD)
def test_shown_text_is_the_models_own(text: str) -> None:
    """What is shown and thought stands in the input, in that order: nothing is invented, doubled or moved."""
    parsed = gather(read([text]))
    for said in (parsed.content, parsed.reasoning):
        rest = iter(text)
        assert all(char in rest for char in said)


@pytest.mark.parametrize("dialect", sorted(WRITERS))
@settings(deadline=None, max_examples=at_night(100, 12))
@given(VALUES.map(trimmed), VALUES.map(trimmed), st.integers(0, 99))
def test_what_a_dialect_writes_is_read_back(dialect: str, path: str, body: str, seed: int) -> None:
    text = WRITERS[dialect]([(NOTE, {"path": path, "body": body})])
    events = read(sliced(text, seed), fences=False)
    parsed = gather(events)
    assert [(call.name, call.arguments) for call in parsed.calls] == [(NOTE, {"path": path, "body": body})]
    assert not parsed.content.strip() and not parsed.rejected
    check_order(events)


@pytest.mark.parametrize("dialect", sorted(WRITERS))
def test_a_call_cut_short_never_runs(dialect: str) -> None:
    first: Written = ("set_lamp", {"room": "attic", "level": 2})
    second: Written = (NOTE, {"path": "log.txt", "body": "the quick brown heron"})
    calls = [second] if dialect in SINGLE | WEAK else [first, second]
    text = WRITERS[dialect](calls)
    for end in range(text.index("brown") + 6):
        made = [(call.name, call.arguments) for call in parse(text[:end], TOOLS, fences=False).calls]
        assert made == [] or (made == [first] and calls[0] == first)


# What these dialects begin with may also be a token that is never shown: the end of a message there tells nothing.
SILENT_BEGINNINGS = {
    "apertus", "beam", "cohere_action", "deepseek_v3", "deepseek_v31", "functionary_v2", "gemma4", "gigachat3",
    "gigachat31", "granite3", "harmony", "hyperclova14b", "inkling", "internlm2", "k2_horizon_json", "k2_horizon_typed",
    "k2_horizon_xml", "kimi_k2", "kimi_k3", "lfm2", "lfm2_json", "llama31_builtin", "llama4_python_start",
    "llama_python_tag", "longcat", "longcat2", "minicpm4", "muse_glimmer", "phi4mini", "plamo3", "seed_oss",
    "solar_open", "solar_open2", "step3",
}  # fmt: skip


@pytest.mark.parametrize("dialect", sorted(WRITERS.keys() - WEAK - SILENT_BEGINNINGS))
def test_what_a_cut_opener_hides_is_told(dialect: str) -> None:
    """Wherever a message ends: its text is shown, or a call was made of it, or one was refused."""
    text = WRITERS[dialect]([(NOTE, {"path": "log.txt", "body": "heron"})])
    for end in range(len(text)):
        parsed = parse(text[:end], TOOLS, fences=False)
        shown = "".join(parsed.content.split()) == "".join(text[:end].split())
        assert shown or parsed.rejected or parsed.calls, text[:end]


@pytest.mark.parametrize("dialect", sorted(WRITERS.keys() - WEAK))
def test_calls_in_reasoning_wait_for_its_end(dialect: str) -> None:
    call = ("set_lamp", {"room": "attic", "level": 2})
    text = WRITERS[dialect]([call])
    draft = parse(f"<think>\nperhaps {text}\n</think>\nWhich room?", TOOLS, fences=False)
    assert (draft.content.strip(), draft.calls) == ("Which room?", [])
    made = parse(f"<think>plan</think>\n{text}", TOOLS, fences=False)
    assert (made.reasoning, [(each.name, each.arguments) for each in made.calls]) == ("plan", [call])


@pytest.mark.parametrize("dialect", sorted(WRITERS))
def test_a_sample_in_a_fence_is_text(dialect: str) -> None:
    sample = WRITERS[dialect]([("set_lamp", {"room": "attic", "level": 2})])
    text = f"It looks like this:\n\n````text\n{sample}\n````\n\nI sent nothing."
    parsed = parse(text, TOOLS)
    assert (parsed.content, parsed.calls, parsed.rejected) == (text, [], [])


@pytest.mark.parametrize("dialect", sorted(WEAK))
def test_a_form_without_a_marker_is_a_call_only_alone(dialect: str) -> None:
    sample = WRITERS[dialect]([("set_lamp", {"room": "attic", "level": 2})])
    assert parse(sample, TOOLS, fences=False).calls
    for text in (f"So: it is\n\n{sample}", f"{sample}\n\nis how it looks."):
        parsed = parse(text, TOOLS, fences=False)
        assert (parsed.content, parsed.calls) == (text, [])
    unknown = WRITERS[dialect]([("sell_house", {"price": 1})])
    assert parse(unknown, TOOLS, fences=False).content == unknown


def test_neighbouring_events_of_two_kinds_are_unequal() -> None:
    assert Text("a") != Thought("a")
    assert Text("a") == Text("a")
    assert Text("a") != "a"


BASH = {"bash": {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]}}


@pytest.mark.parametrize("words", ["One. ", "Hello ", "Hello, ", "I ", "1. ", "To ", "Ok\n", "x.y ", "basic "])
def test_ordinary_first_words_are_shown_at_once(words: str) -> None:
    assert "".join(event.text for event in Parser(BASH).feed(words) if isinstance(event, Text)) == words


@pytest.mark.parametrize("prefix", ["", "functions.", "default_api.", "functions:", "tools."])
@pytest.mark.parametrize("form", ['bash(command="ls")', 'bash\n{"command": "ls"}'])
def test_a_prefixed_first_name_means_the_same_in_any_slices(prefix: str, form: str) -> None:
    whole = parse(prefix + form, BASH)
    parser = Parser(BASH)
    events = [event for character in prefix + form for event in parser.feed(character)] + parser.close()
    assert [event for event in events if isinstance(event, Call)] == whole.calls


CODE_TOOLS = {
    "python": {"type": "object", "properties": {"code": {"type": "string"}}, "required": ["code"]},
    "look": {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]},
}


@pytest.mark.parametrize(
    "text",
    [
        "<|channel|>commentary to=python<|channel|>commentary code<|message|>remove(old)\nkeep(new",
        "<|start|>assistant to=python<|channel|>commentary code<|message|>remove(old)\nkeep(new",
        "<|python_tag|>remove(old)\nkeep(new)",
        ">>>python\nremove(old)\nkeep(new)",
        "Action: look\nAction Input: tides of Ob",
    ],
)
def test_a_call_without_a_closer_runs_only_if_the_reply_did_not_break_off(text: str) -> None:
    for cut in (False, True):
        parser = Parser(CODE_TOOLS)
        parsed = gather([*parser.feed(text), *parser.close(cut=cut)])
        assert (len(parsed.calls), len(parsed.rejected)) == ((0, 1) if cut else (1, 0))


@pytest.mark.parametrize("dialect", sorted(WRITERS.keys() - WEAK))
def test_reasoning_that_broke_off_calls_nothing(dialect: str) -> None:
    text = f"<think>\nperhaps\n{WRITERS[dialect]([('set_lamp', {'room': 'attic', 'level': 2})])}\n"
    for cut in (False, True):
        parser = Parser(TOOLS, fences=False)
        parsed = gather([*parser.feed(text), *parser.close(cut=cut)])
        assert len(parsed.calls) == (0 if cut else 1)
