"""A text shortened to its head and its tail, with a marker between them that tells how much is missing."""

from __future__ import annotations

import re

_MOST = 999_999_999  # that a marker can tell of
# As long whatever it tells: a text that may be longer is never left with less of its own.
_MARKER = "\n[{:.>15} characters left out ...]\n"
_ROOM = len(_MARKER.format(""))
# Markers that tools leave in their results as well: what is missing there is missing here.
_MARKED = re.compile(r"\n\[\.{3,15} ([0-9]{1,3}(?:,[0-9]{3}){0,2}) characters left out \.\.\.\]\n")


def shortened(text: str, size: int) -> str:
    """At most `size` characters of the text (at least 100): 70 % of them its head, 30 % its tail.

    Cutting a text again is like cutting it once: markers are not cut in two, and those that go are counted in.
    """
    if len(text) <= size:
        return text
    head = (size - _ROOM) * 7 // 10
    start, end = head, len(text) - (size - _ROOM - head)
    start -= _in_a_pair(text, start)
    end += _in_a_pair(text, end)
    told = 0
    for marker in _MARKED.finditer(text):
        first, behind = marker.span()
        start = first if first < start < behind else start
        end = behind if first < end < behind else end
        if start <= first and behind <= end:
            told += int(marker[1].replace(",", "")) - (behind - first)
    missing = min(end - start + told, _MOST)
    return f"{text[:start]}{_MARKER.format(f' {missing:,}')}{text[end:]}"


def head_and_tail(text: str, half: int) -> str:
    """That much of the beginning and of the end, and between them how many characters are missing."""
    return f"{text[:half]}\n[... {len(text) - 2 * half:,} characters left out ...]\n{text[-half:]}"


def _in_a_pair(text: str, at: int) -> bool:
    """Whether a cut here parts the two surrogates of one character; a model may have written them one by one."""
    return "\ud800" <= text[at - 1] <= "\udbff" and "\udc00" <= text[at] <= "\udfff"
