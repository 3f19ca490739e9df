"""Dialects that are held out of the table, and derived from what their templates make of known calls."""

from __future__ import annotations

import json
import random
import time

import pytest

from parsing import BadCall, Call, Parser, parse
from parsing.openers import Openers
from parsing.parser import gather
from parsing.templates.derive import Underivable, derive, dialect_of, joined
from parsing.templates.probes import HARD, PARALLEL, SINGLE, TOOLS, Calls, Probe
from parsing.templates.response_template import example, response_probe
from tests import ROOT
from tests.support.parsing.cases import BY_DIALECT, by_value, expected_fields
from tests.support.parsing.held_out import TEMPLATES, held_out_table, measured, rows_without

SHARE = 0.95
MARKS = [*"<|>[]｜▁{}()=:@#*\\✿1$^?+.,;-`\"' \n", "```", "</", "call", "tool", "zz", "string", "</s>", "</think>"]
NOT_DERIVED = {"minimax_m3"}  # tags nested in tags of a name space of their own: no other model has such


def test_what_is_derived_reads_the_cases_of_a_dialect_that_the_table_lacks() -> None:
    found = [measured(dialect) for dialect in TEMPLATES]
    assert {each.dialect for each in found if each.grammar is None} == NOT_DERIVED
    cases = [right for each in found for right in each.right.values()]
    assert sum(cases) >= SHARE * len(cases)
    assert [each.extra for each in found if each.extra] == []
    table = "\n".join(held_out_table())
    assert table in (ROOT / "docs/dialects.md").read_text("utf-8"), f"docs/dialects.md needs this table:\n{table}"


def held_out(dialect: str) -> Openers:
    grammar = measured(dialect).grammar
    assert grammar is not None
    return Openers(joined(grammar.rows, rows_without(dialect)))


def test_a_quoted_call_of_a_derived_dialect_is_never_run() -> None:
    for dialect in TEMPLATES.keys() - NOT_DERIVED:
        openers = held_out(dialect)
        for case in BY_DIALECT[dialect]:
            if "/single" not in case["id"]:
                continue
            text, tools = case["text"], {tool["name"]: tool["parameters"] for tool in case["tools"]}
            one_line = " ".join(text.replace("`", "'").split())
            for quoted in (
                f"Write this:\n``````text\n{text}\n``````\nDone.",
                f"Write `{one_line}` for it.",
                f"<think>\n{text}\n</think>\nNo.",
            ):
                parser = Parser(tools, openers=openers, fences=False)
                events = [*parser.feed(quoted), *parser.close()]
                assert not [each for each in events if isinstance(each, Call)], (dialect, quoted)


def test_a_call_of_a_derived_dialect_that_is_cut_is_not_run() -> None:
    for dialect in TEMPLATES.keys() - NOT_DERIVED:
        openers = held_out(dialect)
        for case in BY_DIALECT[dialect]:
            if not case["id"].endswith(("/single", "/parallel")):
                continue
            wanted = expected_fields(case)["calls"]
            for end in range(0, len(case["text"]), 5):
                parser = Parser({tool["name"]: tool["parameters"] for tool in case["tools"]}, openers=openers)
                events = [*parser.feed(case["text"][:end]), *parser.close()]
                calls = [(each.name, by_value(each.arguments)) for each in events if isinstance(each, Call)]
                assert all(call in wanted for call in calls), (dialect, case["text"][:end])


def probes(write: str, separator: str = "", outer: tuple[str, str] = ("", "")) -> list[Probe]:
    """The calls, each with its name and its arguments as JSON in this form."""

    def text(calls: Calls) -> str:
        made = (write.replace("NAME", name).replace("JSON", json.dumps(arguments)) for name, arguments in calls)
        return outer[0] + separator.join(made) + outer[1]

    return [Probe(calls, text(calls)) for calls in (SINGLE, PARALLEL, HARD)]


@pytest.mark.parametrize(
    ("write", "separator", "outer"),
    [
        ('<|zz_call|>{"fn": "NAME", "kw": JSON}<|zz_end|>', "\n", ("", "")),
        ('<|zz_call|>{"kw": JSON, "fn": "NAME"}<|zz_end|>', "", ("", "")),
        ("⟦NAME⟧ JSON ⟦end⟧", "\n", ("⟦all⟧\n", "\n⟦/all⟧")),
        ("@@tool NAME\nJSON\n@@", "\n", ("", "")),
    ],
)
def test_a_form_that_no_row_knows(write: str, separator: str, outer: tuple[str, str]) -> None:
    found = probes(write, separator, outer)
    assert not dialect_of(found)
    grammar = derive(found)
    assert "NAME" in grammar.begin or '"fn"' in write
    text = f"Let me look.\n\n{found[1].text}\nDone."
    parser = Parser(TOOLS, openers=grammar.openers)
    events = [*parser.feed(text), *parser.close()]
    assert [(call.name, call.arguments) for call in events if isinstance(call, Call)] == list(PARALLEL)


def test_the_repairs_of_the_readers_hold_for_derived_rows() -> None:
    grammar = derive(probes("<|zz|>NAME<|args|>JSON<|zz_end|>"))
    text = "<|zz|>zq_lookup<|args|>{'zk_place': 'Ulm', zk_count: \"3\",}<|zz_end|>"
    parser = Parser(TOOLS, openers=grammar.openers)
    [call] = [each for each in [*parser.feed(text), *parser.close()] if isinstance(each, Call)]
    assert call.arguments == {"zk_place": "Ulm", "zk_count": 3} and call.dialect == "template"


def test_the_table_goes_on_beside_derived_rows() -> None:
    grammar = derive(probes("<|zz|>NAME<|args|>JSON<|zz_end|>"))
    text = '<tool_call>\n{"name": "zq_lookup", "arguments": {}}\n</tool_call>'
    parser = Parser(TOOLS, openers=grammar.openers)
    [call] = [each for each in [*parser.feed(text), *parser.close()] if isinstance(each, Call)]
    assert call.dialect == "hermes"
    assert not parse("<|zz|>zq_lookup<|args|>{}<|zz_end|>", TOOLS).calls  # other models are read as before


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("I will look it up.", "in none of the known forms"),
        ("zq_lookup " * 4000, "longer than"),
        ('<|zz|>{"fn": "zq_lookup", "kw": "zk_place zv Kassel zk_count 4711"}', "in none of the known forms"),
    ],
)
def test_nothing_is_derived_and_the_reason_is_stated(text: str, reason: str) -> None:
    with pytest.raises(Underivable, match=reason):
        derive([Probe(SINGLE, text)])


def test_what_is_not_read_back_is_not_used() -> None:
    single, parallel, hard = probes("<|zz|>NAME<|args|>JSON<|zz_end|>")
    broken = Probe(hard.calls, hard.text.replace("zv a", "zv b"))
    with pytest.raises(Underivable, match="not read back"):
        derive([single, parallel, broken])


PROSE = 'Use `a` or <b>b</b> [c](d) {"e": 1}: zq_lookup {f} or zq_lookup(g).\n\n- item (1)\n```py\nprint(1)\n```\nDone.'


def test_marks_of_all_calls_are_needed_where_those_of_one_tell_nothing() -> None:
    grammar = derive(probes("NAME JSON", "\n", ("⟦all⟧\n", "\n⟦/all⟧")))
    for text, calls in ((PROSE, 0), (f"NAME {PROSE}", 0), (f"⟦all⟧ {PROSE}", 0)):
        parser = Parser(TOOLS, openers=grammar.openers)
        events = [*parser.feed(text), *parser.close()]
        assert len([each for each in events if isinstance(each, Call)]) == calls, text


@pytest.mark.parametrize("fences", [2, 20])
def test_marks_with_many_fences_are_matched_in_linear_time(fences: int) -> None:
    grammar = derive(probes("<|zz|>\n" + "```\n" * fences + "NAME<|args|>JSON<|zz_end|>"))
    for text in ("<|zz|>" + "\n" * 3900 + "x", "<|zz|>" + ("\n" * 50 + "```") * 70, "<|zz|>" + "\n```" * 300):
        parser = Parser(TOOLS, openers=grammar.openers)
        began = time.thread_time()
        assert gather([*parser.feed(text), *parser.close()]).calls == []
        assert time.thread_time() - began < 1.0


@pytest.mark.parametrize(
    ("write", "reason"),
    [("<|zz|>" + "NAME:" * 12 + "<|args|>JSON<|e|>", "more than"), ("<|zz|>" + "a b " * 200 + "NAME JSON", "longer")],
)
def test_marks_that_would_take_long_to_match_are_refused(write: str, reason: str) -> None:
    with pytest.raises(Underivable, match=reason):
        derive(probes(write))


@pytest.mark.parametrize("mark", ["* ", "- ", "1. ", "2) ", "# ", "> "])
def test_what_begins_a_line_of_markdown_begins_no_call(mark: str) -> None:
    for write in ("NAME JSON", '{"name": "NAME", "arguments": JSON}'):
        with pytest.raises(Underivable, match="Markdown"):
            derive(probes(mark + write, "\n"))


def test_a_closer_of_two_like_marks_is_read_the_same_in_any_pieces() -> None:
    found = probes('$${"name": "NAME", "arguments": JSON}<|zz|><|zz|>', "\n")
    grammar = derive(found)
    text = f"Ok.\n{found[0].text}\n\nDone."
    whole = Parser(TOOLS, openers=grammar.openers)
    pieces = Parser(TOOLS, openers=grammar.openers)
    events = [event for each in text for event in pieces.feed(each)]
    assert gather([*events, *pieces.close()]) == gather([*whole.feed(text), *whole.close()])


def test_an_element_of_html_names_offered_tools_only() -> None:
    grammar = derive(probes("<strong>NAME</strong> JSON", "\n"))
    for name, calls in (("zq_lookup", 1), ("zq_other", 0)):
        parser = Parser(TOOLS, openers=grammar.openers)
        events = [*parser.feed(f"<strong>{name}</strong> {{}}"), *parser.close()]
        assert len([each for each in events if isinstance(each, Call)]) == calls


def test_a_mark_of_reasoning_begins_no_call() -> None:
    with pytest.raises(Underivable, match="reasoning"):
        derive(probes("<think>NAME JSON"))


@pytest.mark.parametrize("seed", range(80))
def test_whatever_the_marks_are_prose_stays_prose(seed: int) -> None:
    """Derived or not: nothing else is raised, and no text that the table leaves alone is a call."""
    chance = random.Random(seed)

    def mark() -> str:
        return "".join(chance.choice(MARKS) for _ in range(chance.randint(0, 7)))

    write = (
        f"{mark()}NAME{mark()}JSON{mark()}" if seed % 2 else f'{mark()}{{"name": "NAME", "arguments": JSON}}{mark()}'
    )
    try:
        openers = derive(probes(write, mark(), (mark(), mark()))).openers
    except Underivable:
        return
    parser = Parser(TOOLS, openers=openers)
    events = [*parser.feed(PROSE), *parser.close()]
    assert not [each for each in events if isinstance(each, Call | BadCall)]


# --- response templates ---

XML = {
    "open_pattern": r"\s*<zz_call>\s*<fn=(?P<name>[^>\n]+)>",
    "close_pattern": r"</fn>\s*</zz_call>",
    "repeats": True,
    "content": "xml-inline",
    "content_args": {"tag_pattern": r"<p=(?P<key>[^>\n]+)>\s*(?P<value>.*?)\s*</p>"},
    "transform": {"type": "function", "function": {"name": "{name}", "arguments": "{content}"}},
}
JSON = {
    "open": "<|zz_call|>",
    "close": "<|zz_end|>",
    "repeats": True,
    "content": "json",
    "transform": {"type": "function", "function": {"name": "{content.tool}", "arguments": "{content.args}"}},
}
LITERAL = {
    "open_pattern": r"<\|zz_call>call:(?P<name>\w+)",
    "close": "<zz_call|>",
    "repeats": True,
    "content": "json",
    "content_args": {"unquoted_keys": True, "string_delims": [['<|"|>', '<|"|>']]},
    "transform": {"type": "function", "function": {"name": "{name}", "arguments": "{content}"}},
}
PYTHON = {"open": "<|zz_call|>", "close": "<|zz_end|>", "content": "python-call-list"}
WHOLE = {"open_pattern": r"\s*<zz_call>", "close": ["</zz_call>", "<|eot|>"], "repeats": True, "content": "json"}


@pytest.mark.parametrize(
    "field", [XML, JSON, LITERAL, PYTHON, WHOLE], ids=["xml", "json", "literal", "python", "whole"]
)
def test_a_grammar_is_derived_from_a_response_template(field: dict[str, object]) -> None:
    template = {"start_anchor": "<|assistant|>", "fields": {"tool_calls": field}}
    grammar = derive([response_probe(template, calls) for calls in (SINGLE, PARALLEL, HARD)])
    assert "zz_call" in grammar.begin
    probe = response_probe(template, PARALLEL)
    assert dialect_of([probe], grammar.openers) and not dialect_of([probe])


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        (r"<\|a\|>\s*b+(?:c|d)?e{2}", "<|a|>be"),
        (r"(?:x|y)(?P<name>\w+)\.(?=z)", "xping."),
        (r"\[(?P<name>[^\]\n]+)\]\n", "[ping]\n"),
        (r"^a.*?$", "a"),
    ],
)
def test_the_shortest_text_of_a_pattern(pattern: str, text: str) -> None:
    assert example(pattern, {"name": "ping"}) == text


@pytest.mark.parametrize(
    ("template", "reason"),
    [
        ({}, "no field"),
        ({"fields": {"tool_calls": {"open": "<a>", "content": "int"}}}, "'int'"),
        ({"fields": {"tool_calls": {"open_pattern": "(" * 40, "content": "json"}}}, "nested|not closed"),
        ({"fields": {"tool_calls": {"open_pattern": "a" * 3000}}}, "characters"),
        ({"fields": {"tool_calls": {"open": "<a>", "content": "xml-inline"}}}, "cannot be read"),
        ({"fields": {"tool_calls": {"open": "<a>", "content": "json", "transform": "x{content}"}}}, "placeholder"),
    ],
)
def test_a_response_template_that_cannot_be_read(template: dict[str, object], reason: str) -> None:
    with pytest.raises(Underivable, match=reason):
        response_probe(template, SINGLE)
