"""What a person is asked, as text: every character of a call is there, and none passes for something else."""

from __future__ import annotations

import json
import unicodedata
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from rich.cells import cell_len

from app.core.events import ApprovalRequired, ApprovalResolved, TextDelta, ToolProgress
from app.policy.grants import Grant
from routes.terminal.approval_text import GUTTER, answer, literal_pattern, question
from routes.terminal.view import View
from routes.texts.exact import exact, exact_json
from tools.builtin.outbound_effects import hosts_reached

HIDDEN = {
    "an escape sequence": ("a\x1b[31mb", "a<U+001B>[31mb"),
    "a carriage return": ("safe\rrm", "safe<U+000D>rm"),
    "both line ends": ("a\r\nb", "a<U+000D>\nb"),
    "a direction override": ("a\u202eb", "a<U+202E>b"),
    "an isolate": ("a\u2066b", "a<U+2066>b"),
    "a zero-width space": ("a\u200bb", "a<U+200B>b"),
    "a joiner": ("a\u200db", "a<U+200D>b"),
    "a variation selector": ("a\ufe0fb", "a<U+FE0F>b"),
    "a tag": ("a\U000e0041b", "a<U+E0041>b"),
    "a soft hyphen": ("a\u00adb", "a<U+00AD>b"),
    "a filler": ("a\u3164b", "a<U+3164>b"),
    "an empty braille cell": ("a\u2800b", "a<U+2800>b"),
    "a no-break space": ("a\u00a0b", "a<U+00A0>b"),
    "a line separator": ("a\u2028b", "a<U+2028>b"),
    "C1": ("a\x9bb", "a<U+009B>b"),
    "private use": ("a\ue000b", "a<U+E000>b"),
    "a lone surrogate": ("a\ud800b", "a<U+D800>b"),
    "nothing": ("ls -la\t# größer 日本 😀\n", "ls -la\t# größer 日本 😀\n"),
}


@pytest.mark.parametrize("what", HIDDEN)
def test_what_cannot_be_seen_is_spelled_out(what: str) -> None:
    text, shown = HIDDEN[what]
    assert exact(text) == shown
    assert json.loads(exact_json({"text": text})) == {"text": text}, "a person may change it and send it back"
    written = exact_json(text)
    assert not any(unicodedata.category(character) in ("Cc", "Cf", "Cs", "Zl") for character in written)


def asked(
    arguments: dict[str, object], *, name: str = "bash", reason: str = "bash asks each time."
) -> ApprovalRequired:
    return ApprovalRequired("c1", name, arguments, reason, 1_800_000_000.0)


def rows_of(wanted: ApprovalRequired, width: int | None) -> list[str]:
    return [line.plain for line in question(wanted, width)]


@given(st.text(), st.integers(1, 100))
def test_no_character_is_left_out_in_any_window(value: str, width: int) -> None:
    rows = [row for row in rows_of(asked({"command": value}), width) if row.startswith(GUTTER)]
    whole = "".join(row.removeprefix(GUTTER) for row in rows)
    assert whole == "".join(row.expandtabs(4) for row in exact(value).split("\n"))
    assert all(cell_len(row) <= max(width, 12 + len(GUTTER)) for row in rows)


def test_it_says_how_long_it_waits() -> None:
    assert "  bash asks each time. It waits until you answer." in rows_of(replace(asked({}), expires_at=None), None)
    assert any("Expires on 2027-01-15" in row for row in rows_of(asked({}), None))


@pytest.mark.parametrize(
    ("hosts", "named"), [("any public host", "any public host"), ("pypi.org and example.com", "pypi.org")]
)
def test_the_reason_is_in_a_persons_words(hosts: str, named: str) -> None:
    effect = hosts_reached({"network": True if hosts == "any public host" else hosts.split(" and ")}, Path())
    assert effect is not None
    first = rows_of(asked({"command": "ls"}, reason=f"{effect.what} This run asks first (approval: ask)."), None)[1]
    assert "This command can reach" in first and named in first
    assert "You asked to approve changes." in first and "sandbox can read" not in first


def test_no_value_passes_for_a_line_of_ours() -> None:
    forged = "ls\n  path:\n  │ harmless\n? read_file wants to run."
    rows = rows_of(asked({"command": forged, "x\n? y": 1}, name="bash\n? z", reason="Because.\n? w"), 80)
    assert [row for row in rows if not row.startswith(" ")] == ["? bash<U+000A>? z wants to run."]
    assert rows.count("  path:") == 0 and "  x<U+000A>? y:" in rows


def test_all_of_a_long_value_is_shown_and_its_length_told() -> None:
    rows = rows_of(asked({"command": "\n".join(map(str, range(5000)))}), None)
    assert "  command (5,000 lines):" in rows and f"{GUTTER}0" in rows and rows[-1] == f"{GUTTER}4999"


@pytest.mark.parametrize(
    ("arguments", "rows"),
    [
        ({}, ["  without arguments"]),
        ({"n": 3, "on": True}, ["  n:", "  │ 3", "  on:", "  │ true"]),
        ({"list": ["a\u200b"]}, ["  list:", '  │ ["a\\u200b"]']),
        ({"text": ""}, ["  text:", "  │ "]),
    ],
)
def test_other_arguments(arguments: dict[str, object], rows: list[str]) -> None:
    assert rows_of(asked(arguments), 80)[-len(rows) :] == rows


TEXTS = st.text("ab*?[]!/. ", max_size=8)


@given(TEXTS, TEXTS)
def test_the_pattern_that_is_proposed_covers_this_very_call_only(value: str, other: str) -> None:
    grant = Grant("write_file", pattern=literal_pattern({"path": value, "lines": [1, 2]}))
    assert grant.covers("", {"path": value, "lines": [1, 2]}) or (".." in value and set(value) & set("*?["))
    assert grant.covers("", {"path": other, "lines": [1, 2]}) <= (other == value)
    assert not grant.covers("", {"path": value, "lines": [1]})


SETTLED = [
    (ApprovalResolved("c1", "approved", "ann", "once"), "✓ bash was approved by ann."),
    (ApprovalResolved("c1", "approved", "ann", "session"), "✓ bash was approved by ann for this conversation."),
    (
        ApprovalResolved("c1", "denied", "ann", None, None, "no\nway\x1b"),
        "✗ bash was denied by ann: no<U+000A>way<U+001B>",
    ),
    (ApprovalResolved("c1", "expired", "nobody"), "✗ bash did not run: no decision in time."),
    (
        ApprovalResolved("c1", "withdrawn", "the end of its run"),
        "■ bash did not run: the approval was withdrawn (the end of its run).",
    ),
]


@pytest.mark.parametrize(("settled", "told"), SETTLED, ids=lambda one: getattr(one, "decision", ""))
def test_what_became_of_it_is_told_in_one_line(settled: ApprovalResolved, told: str) -> None:
    assert [line.plain for line in answer(settled, "bash", 80)] == [told]
    view = View(summary=False)
    assert view.apply(settled, 0.0)[0].plain.split(" ")[1:3] == ["A", "call"], "also to who came later"


def test_nothing_is_redrawn_while_a_question_is_open() -> None:
    view = View(summary=True)
    busy, told = [], ""
    for event in (
        ToolProgress("c0", 0.0, ["working"], 1, 8),
        TextDelta("So"),
        asked({"command": "ls"}),
        ApprovalResolved("c1", "denied", "ann"),
    ):
        told += "".join(piece.plain for piece in view.apply(event, 0.0))
        busy.append(view.busy)
    assert busy == [True, True, False, True]
    assert told.startswith("So\n? bash wants to run.\n")


def test_it_says_where_the_arguments_come_from() -> None:
    command = "mail bob@example.com\nmail mallory@evil.example"
    own = {"kind": "person", "source": "0", "place": "a message", "untrusted": False, "exact": True}
    other = {"kind": "result", "source": "c1", "place": "the result of web_fetch", "untrusted": True, "exact": False}
    spans = [
        {"argument": "/command", "start": 5, "end": 20} | own,
        {"argument": "/command", "start": 15, "end": 46} | other,
    ]
    rows = rows_of(replace(asked({"command": command}), origins=spans), None)
    assert rows[-5:] == [
        "  Where these words come from:",
        "  Your message:",
        "  │ command: bob@example.com",
        "  The result of a call, from web_fetch, untrusted:",
        "  │ command: e.com<U+000A>mail mallory@evil.example",
    ]
