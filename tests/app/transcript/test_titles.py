from __future__ import annotations

import pytest

from app.transcript.run_request import RunRequest
from app.transcript.titles import LONGEST_TITLE, SNIPPET, TITLE, one_line, snippet, title_of

WORDS = "word " * 100


@pytest.mark.parametrize(
    ("said", "title"),
    [
        ("Hello", "Hello"),
        ("\n\n  Fix   the\ttests  \nand more", "Fix the tests"),
        ("a\u202eb\x1b[31m\x00 c", "ab[31m c"),
        ("\u200b\u202e\n\x07\nwords", "words"),
        ("مرحبا بالعالم", "مرحبا بالعالم"),
        ("x" * 500, "x" * (TITLE - 1) + "…"),
        (WORDS, "word " * 14 + "word…"),
        ("", ""),
    ],
)
def test_the_first_line_that_says_something_is_the_title(said: str, title: str) -> None:
    assert title_of(said) == title and len(title) <= TITLE < LONGEST_TITLE


def test_what_says_nothing_has_a_title_all_the_same() -> None:
    assert RunRequest("\u200b").title == "No words"


@pytest.mark.parametrize(
    ("text", "words", "part"),
    [
        ("Plan the trip.", ["trip"], "Plan the trip."),
        (f"{WORDS}needle {WORDS}", ["nothing", "NEEDLE"], "needle"),
        (f"{WORDS}nëedle {WORDS}", ["needle"], "nëedle"),
        (f"{'İ' * 300} needle {WORDS}", ["needle"], "needle"),
        (f"{WORDS}東京に行く", ["東京"], "東京に行く"),
        ("a\u202eb\n\nc", ["c"], "ab c"),
    ],
)
def test_a_snippet_shows_the_word(text: str, words: list[str], part: str) -> None:
    told = snippet(text, words)
    assert part in told and told == one_line(told) and len(told) <= SNIPPET + 4
