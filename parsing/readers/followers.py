"""Text that may follow a call whose end is doubtful.

Where a string holds unescaped quotes, the quote that seems to close it may be one of those, and the call that
seems to end may go on. It has ended only if what follows can follow a call: a closer, a token that ends the message,
a further call of the block, or nothing.
"""

from __future__ import annotations

from functools import lru_cache

import regex

from parsing.framing import FINAL_STOPS
from parsing.matching import compiled

NAME = r"(?:default_api\.)?(?P<name>[^\W\d][\w.:-]{0,127}?)(?:\.call)?\s{0,20}\("
_MARK = rf"\s{{0,200}}(?:{FINAL_STOPS}|</s>|,?\s{{0,20}}<<function>>)"  # the last begins a call
_ARGUMENT = r"\s{0,20}(?:\)|[^\W\d]\w{0,127}\s{0,20}=)"


@lru_cache(maxsize=256)
def after_json(closer: str, depth: int, *, doubtful: bool) -> regex.Pattern[str]:
    """After an object that is a call, or (at depth 1) an element of the array of calls.

    Where no quote was doubtful, words may follow too, if they are not such that a quote and a brace of theirs may be
    those that really close the object.
    """
    ends = rf"(?:{closer})|{_MARK}"
    if not doubtful:
        following = r"\s{0,200}[,\]}]" if depth else r"[ \t]{0,200}(?:[<\[{}\]);`✿]|,\s{0,100}\{)"
        return compiled(rf"{ends}|{following}|\s{{0,200}}\n|[^\n\"]{{0,1000}}\n|[^\n}}]{{0,1000}}\n")
    if depth:
        return compiled(rf"\s{{0,200}},\s{{0,200}}\{{|\s{{0,200}}\](?:{ends})|{ends}")
    return compiled(rf"{ends}|\s{{0,200}}[;,]?\s{{0,200}}\{{\s{{0,200}}[\"']")


@lru_cache(maxsize=256)
def after_literal(closer: str) -> regex.Pattern[str]:
    """After an object literal."""
    return compiled(rf"(?:{closer})|{_MARK}|\s{{0,200}}[;,]?\s{{0,200}}(?:call)?:[^\s{{}}:]{{1,128}}\{{")


@lru_cache(maxsize=256)
def after_python(closer: str, brackets: str, *, doubtful: bool) -> regex.Pattern[str]:
    """After a Python call inside `brackets`: `)` of a print, `]` of a list, a back-tick of a fence."""
    ends = rf"(?:{closer})|{_MARK}"
    inside = r"\s{0,200}".join(regex.escape("```" if each == "`" else each) for each in brackets)
    following = rf"\s{{0,200}}[,;]?\s{{0,200}}{NAME}"
    if doubtful:
        return compiled(rf"{ends}|{following}{_ARGUMENT}" + (rf"|\s{{0,200}}{inside}(?:{ends})" if inside else ""))
    if not brackets:
        return compiled(rf"{ends}|[ \t]{{0,200}}\r?\n|{following}")
    either = "|".join(regex.escape("```" if each == "`" else each) for each in brackets)
    return compiled(rf"{ends}|\s{{0,200}}(?:{either})|{following}")
