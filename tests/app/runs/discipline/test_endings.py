"""The end of a reply: announcements that are missed and nudged falsely, and what no end may do to the judgement."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.runs.discipline.ending_weights import DIGEST
from app.runs.discipline.endings import SHORT, End, end_of
from benchmarks.replies.endings import held_out, of_replies
from tests.tasks.train_endings import digest, examples

MOST_MISSED, MOST_NUDGED = 0.05, 0.02
FILE = "What is in notes.txt?"


def test_few_announcements_are_missed_and_few_answers_nudged() -> None:
    replies = held_out()
    languages = Counter(one.lang for one in replies)
    assert len(replies) >= 900 and len(languages) == 15 and min(languages.values()) >= 26
    found = of_replies(replies)
    print(f"missed {found.missed_share:.1%}, nudged falsely {found.nudged_share:.1%}")
    assert found.missed_share <= MOST_MISSED and found.nudged_share <= MOST_NUDGED, str(found)


def test_the_weights_are_those_of_the_examples_and_no_test_is_among_these() -> None:
    assert digest() == DIGEST, "run `python -m tests.tasks.train_endings`"
    learnt = {one.places for one in examples()}
    assert len(learnt) > 3000 and not {one.text for one in held_out()} & {one.text for one in examples()}


@pytest.mark.parametrize(
    ("text", "request_", "worked", "end"),
    [
        ("Now let me read the file to check its content:", FILE, True, End.ANNOUNCEMENT),
        ("Now let me read the file to check its content:", "Hello", False, End.ANNOUNCEMENT),
        ("**Ich lese nun die Datei:**\n", FILE, False, End.ANNOUNCEMENT),
        ("現在の設定を確認します…", FILE, True, End.ANNOUNCEMENT),
        ("Let me read the file first.", FILE, False, End.ANNOUNCEMENT),
        ("I will be more polite.", "Be polite!", False, End.ANSWER),
        ("Done.", FILE, True, End.ANSWER),
        ("Shall I read it?", FILE, True, End.ANSWER),
        ("Soll ich sie lesen? (ja/nein)", FILE, True, End.ANSWER),
        ("Run this:\n```bash\nls\n```", FILE, True, End.ANSWER),
        ("To build it, run this:\n\n`docker build .`", FILE, True, End.ANSWER),
        ("There are:\n- one\n- two:", FILE, True, End.ANNOUNCEMENT),
        ("There are:\n1. one\n2. I will read two", FILE, True, End.ANSWER),
        ("Note:", "Say exactly: Note:", False, End.ANSWER),
        ("x" * SHORT + ":", FILE, True, End.ANSWER),
        ('{"error": ""}', FILE, True, End.ANSWER),
        ('["Now let me read the file:"]', FILE, True, End.ANSWER),
        ("", FILE, True, End.ANSWER),
    ],
)
def test_an_end_is_judged_by_its_shape(text: str, request_: str, worked: bool, end: End) -> None:
    assert end_of(text, request_, worked=worked) is end


@given(st.text(max_size=SHORT), st.text(max_size=50), st.booleans())
def test_any_text_has_an_end(text: str, request_: str, worked: bool) -> None:
    assert end_of(text, request_, worked=worked) in End


def test_a_long_request_is_read_in_linear_time() -> None:
    assert end_of("I will look.", "a" * 2_000_000 + "/" * 2_000_000, worked=False) in End
    assert end_of("a." * (SHORT // 2 - 1), "", worked=True) in End
