"""Shorten a text to its head and tail, with a marker between them that gives the number of characters left out."""

from __future__ import annotations

from tools.base.patterns import lazy_pattern

_MOST = 999_999_999  # the largest number in a marker
# Of constant length, so that a larger size never keeps less of the text.
_MARKER = "\n[{:.>15} characters left out ...]\n"
_ROOM = len(_MARKER.format(""))
# Tools put markers into their results as well: their numbers are added.
_MARKED = lazy_pattern(
    r"\n\[\.{3,15} (?:[0-9,]{1,15} lines, )?([0-9]{1,3}(?:,[0-9]{3}){0,2}) characters left out \.\.\.\]\n"
)


def shortened(text: str, size: int) -> str:
    """Return at most `size` characters of the text (at least 100): 70 % head, 30 % tail.

    Cutting is idempotent: markers are not cut in two, and the numbers of removed markers are added up.
    """
    if len(text) <= size:
        return text
    head = (size - _ROOM) * 7 // 10
    start, end = head, len(text) - (size - _ROOM - head)
    start -= _in_a_pair(text, start)
    end += _in_a_pair(text, end)
    omitted = 0
    for marker in _MARKED.finditer(text):
        first, behind = marker.span()
        start = first if first < start < behind else start
        end = behind if first < end < behind else end
        if start <= first and behind <= end:
            omitted += int(marker[1].replace(",", "")) - (behind - first)
    missing = min(end - start + omitted, _MOST)
    return f"{text[:start]}{_MARKER.format(f' {missing:,}')}{text[end:]}"


def head_and_tail(text: str, half: int) -> str:
    """Return the first and last `half` characters, with a marker between them."""
    return f"{text[:half]}\n[... {len(text) - 2 * half:,} characters left out ...]\n{text[-half:]}"


def _in_a_pair(text: str, at: int) -> bool:
    """Return whether a cut here would separate a surrogate pair; models may emit the two halves separately."""
    return "\ud800" <= text[at - 1] <= "\udbff" and "\udc00" <= text[at] <= "\udfff"
