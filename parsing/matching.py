"""Patterns that may be cut by the end of a piece: matched, ruled out, or to be seen with what comes next.

A pattern must end in something that is there: an optional or repeated end, `\\b`, `\\Z` or a negative look-ahead would
match less at the end of a piece than with more text.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache

import regex

HOLD = 4000  # characters: no pattern here can match as many, spaces included
NEED_MORE = -1
NO_MATCH = -2
BRIEF = 64  # characters: a beginning that comes again and again, in pieces as small as a token

Groups = Mapping[str, str | None]


@lru_cache(maxsize=1024)
def compiled(pattern: str) -> regex.Pattern[str]:
    return regex.compile(pattern)


def match_at(pattern: regex.Pattern[str], buf: str, pos: int, last: bool) -> tuple[int, regex.Match[str] | None]:
    """The end of the match at `pos`, and the match; or NEED_MORE if more text may make one, or another; or NO_MATCH.

    The end of the message counts as the end of a line.
    """
    end, _ = _known(pattern, buf[pos : pos + BRIEF])
    if end == NO_MATCH or (end == NEED_MORE and not last and len(buf) - pos <= BRIEF):
        return end, None
    return match_anew(pattern, buf, pos, last)


def groups_at(pattern: regex.Pattern[str], buf: str, pos: int, last: bool) -> tuple[int, Groups | None]:
    """The same, with the groups of the match alone."""
    end, groups = _known(pattern, buf[pos : pos + BRIEF])
    if end == NO_MATCH or (not last and len(buf) - pos <= BRIEF):
        return end if groups is None else pos + end, groups
    end, match = match_anew(pattern, buf, pos, last)
    return end, match.groupdict() if match else None


def match_anew(pattern: regex.Pattern[str], buf: str, pos: int, last: bool) -> tuple[int, regex.Match[str] | None]:
    """The same, without a look at what is known from the last time."""
    full = len(buf) - pos >= HOLD  # however much comes with it, no more is looked at
    match = pattern.match(buf, pos, pos + HOLD, partial=True)
    if match is None:
        return NO_MATCH, None
    if not match.partial:
        return match.end(), match
    if not last and not full:
        return NEED_MORE, None
    match = pattern.match(buf, pos, pos + HOLD) if full else pattern.match(buf + "\n", pos)
    return (min(match.end(), len(buf)), match) if match else (NO_MATCH, None)


@lru_cache(maxsize=4096)
def _known(pattern: regex.Pattern[str], text: str) -> tuple[int, Groups | None]:
    """A brief text, matched once for all replies: models write the same tags in the same tokens."""
    end, match = match_anew(pattern, text, 0, last=False)
    return end, match.groupdict() if match else None


_WRITTEN_AS_CODE = re.compile(r"\\u([0-9a-fA-F]{4})|\\x([0-9a-fA-F]{2})|\\U([0-9a-fA-F]{8})")


def named_characters(pattern: str) -> set[str]:
    """The characters that a pattern is written with, as themselves or as codes."""
    return {*pattern, *(chr(int("".join(code), 16)) for code in _WRITTEN_AS_CODE.findall(pattern))}


@lru_cache(maxsize=512)
def first_characters(pattern: str) -> frozenset[str]:
    """The characters that a match of `pattern` can begin with, among ASCII and those that the pattern itself names."""
    candidates = {*map(chr, range(128)), *named_characters(pattern)}
    matcher = compiled(pattern)
    return frozenset(each for each in candidates if matcher.match(each, partial=True))


def first_mark(pattern: str) -> str:
    """The one character that a match of `pattern` begins with. Raises ValueError when there are several."""
    found = first_characters(pattern)
    if len(found) != 1:
        raise ValueError(f"{pattern!r} must begin with one character, and it may begin with {len(found)}")
    return next(iter(found))


# The closers of a call or of its wrapper, in any dialect: dropped directly after a call, and the proof of its end.
_BAR = "[｜|]+"
_BLANK = r"(?:▁|_| |\\_)"
_TAGS = (
    "tool_calls?|toolcalls?|function_calls?|function-calls?|tool-calls?|functions?|functioncall|tools?|tool_use|calls?|"
    "invoke|TOOLCALL|longcat_tool_call|iquest_tool_call|iquestcoder_tool_call|dots_function_call|tool_code|"
    "tool_call_args|tool_call_name|function_model|tool_input|parameters|arguments|input|use_tool|use_mcp_tool|call_tool|invoke_tool"
)
CLOSERS = (
    rf"</(?:[\w.-]+[:|])?(?:{_TAGS})(?::[\w-]+)?\s*>",
    rf"</{_BAR}(?:[A-Z]+{_BAR})?\s?(?:{_TAGS})\s*>",
    rf"<{_BAR}tool{_BLANK}(?:calls|call){_BLANK}end{_BAR}>",
    r"<\|tool_calls?_section_end\|>|<\|tool_call(?:_end|:end)\|>|<\|/tool_call\|>|<tool_call\|>|<end_function_call>",
    r"<\|(?:action_end|tools_suffix|END_ACTION|python_end|calls?|end_message|stop|eom|eot|end|calls\|)\|>",
    r"<\|plamo:end_tool_(?:arguments|requests?|name):plamo\|>|<\|close\|>(?:call|tools)<\|sep\|>",
    r"\[unused12\]|\[END_TOOL_REQUEST\]|\[/TOOL_CALLS?\]|\[/TOOL_REQUEST\]|<bot_end>",
    r"\]<\]minimax\[>\[\s*</(?:tool_call|invoke)>",
)
CLOSER = rf"\s{{0,200}}(?:{'|'.join(CLOSERS)})"
