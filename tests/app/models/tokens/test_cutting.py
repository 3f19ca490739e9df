"""Shortened texts: head and tail stay, and what is missing is told."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from app.models.tokens.cutting import shortened
from tests.support.trimming import HALVES, QUICK, UNITS, texts

MARKER = re.compile(r"\n\[\.+ ([\d,]+) characters left out \.+\]\n")


def told(number: int) -> str:
    return f"\n[... {number:,} characters left out ...]\n"


def own(text: str) -> int:
    return len(MARKER.sub("", text))


def missing(text: str) -> int:
    return sum(int(number.replace(",", "")) for number in MARKER.findall(text))


marked = st.lists(st.sampled_from([*UNITS, "word " * 30, told(7), told(12_345), told(999_999)]), max_size=30).map(
    "".join
)


@QUICK
@given(st.one_of(texts, marked), st.integers(100, 500))
def test_a_shortened_text_tells_what_is_missing(text: str, size: int) -> None:
    cut = shortened(text, size)
    if len(text) <= size:
        assert cut == text
        return
    assert len(cut) <= size
    assert own(cut) + missing(cut) == own(text) + missing(text)
    assert "left out" not in MARKER.sub("", cut), "a marker is cut in two"


@QUICK
@given(texts, st.integers(100, 500), st.integers(0, 500))
def test_a_shortened_text_begins_and_ends_as_it_did(text: str, size: int, more: int) -> None:
    cut = shortened(text, size)
    assert shortened(shortened(text, size + more), size) == cut, "twice is not once"
    head, *behind = MARKER.split(cut)
    if behind:
        tail = behind[-1]
        assert text.startswith(head)
        assert text.endswith(tail)
        assert 0.6 < len(head) / (len(head) + len(tail)) < 0.8
        assert text[: len(head) + 1][-2:] != HALVES != text[-len(tail) - 1 :][:2]
