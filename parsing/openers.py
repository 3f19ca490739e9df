"""What begins at a place in the text: one compiled alternation per table, made when first needed."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

import regex

from parsing.dialects import LINES, MARKED, REST, WHOLE, Dialect
from parsing.framing import (
    ANSWERS,
    ECHO_LINES,
    ECHOES,
    FIRST_REASONING,
    LINE_TOKENS,
    REASONING,
    STOPS,
    TOKENS,
    Reasoning,
)

Kind = Dialect | Reasoning | str
ECHO = "echo"
TOKEN = "token"


@dataclass(frozen=True)
class Table:
    """Patterns in the order in which they are tried, and what each of them means."""

    pattern: regex.Pattern[str]
    kinds: tuple[Kind, ...]
    ends: tuple[int, ...]  # the empty group at the end of each alternative

    def kind(self, match: regex.Match[str]) -> Kind:
        """What the alternative that matched means."""
        found = match.group(0, *self.ends)
        return self.kinds[found.index("", 1) - 1]


def _table(rows: Iterable[tuple[str, Kind]]) -> Table:
    numbered = list(rows)
    pattern = "|".join(rf"(?:{opens})(?P<row_{number}>)" for number, (opens, _) in enumerate(numbered))
    compiled = regex.compile(pattern)
    ends = tuple(compiled.groupindex[f"row_{number}"] for number in range(len(numbered)))
    return Table(compiled, tuple(kind for _, kind in numbered), ends)


def _rows(dialects: Iterable[Dialect]) -> list[tuple[str, Kind]]:
    return [(each.opens, each) for each in dialects]


def _marks(reasoning: Iterable[Reasoning]) -> list[tuple[str, Kind]]:
    return [(each.opens, each) for each in reasoning]


@lru_cache(maxsize=1)
def marked() -> Table:
    """What begins anywhere outside code."""
    return _table([*_rows(MARKED), *_marks(REASONING), *_marks(ANSWERS)])


@lru_cache(maxsize=1)
def not_calls() -> Table:
    """Marks and stop tokens: what begins like a call and is none."""
    return _table([*_marks(REASONING), *_marks(ANSWERS), (STOPS, TOKEN)])


@lru_cache(maxsize=1)
def rest() -> Table:
    """What begins where nothing in `marked` can."""
    return _table(_rows(REST))


@lru_cache(maxsize=1)
def tokens() -> Table:
    """Tokens that are never shown, and closers that close nothing."""
    orphans = [each.shuts for each in REASONING if "(?=" not in each.shuts]
    return _table([(each, ECHO) for each in ECHOES] + [(each, TOKEN) for each in (*TOKENS, *orphans)])


@lru_cache(maxsize=1)
def lines() -> Table:
    """What begins at the beginning of a line."""
    return _table([*_rows(LINES), *((each, TOKEN) for each in LINE_TOKENS)])


@lru_cache(maxsize=1)
def echo_lines() -> Table:
    return _table([(each, ECHO) for each in ECHO_LINES])


@lru_cache(maxsize=1)
def first() -> Table:
    """What begins at the beginning of the message only."""
    return _table([*_marks(FIRST_REASONING), *_rows(WHOLE)])


AHEAD = 4


@lru_cache(maxsize=4096)
def may_begin(ahead: str) -> bool:
    """Whether anything begins with these AHEAD characters: most brackets of ordinary text are ruled out by them."""
    return any(table.pattern.match(ahead, partial=True) for table in (marked(), rest(), tokens()))


@lru_cache(maxsize=64)
def tool_elements(names: tuple[str, ...]) -> regex.Pattern[str] | None:
    """The opening tag of a tool's own element, with its first child, its end or its attributes."""
    if not names:
        return None
    tools = "|".join(re.escape(name) for name in sorted(names, key=len, reverse=True))
    attributes = r"(?:\s{1,20}[\w.-]{1,64}=(?:\"[^\"]{0,400}\"|'[^']{0,400}')){1,9}"
    children = r"\s{0,100}(?=<(?P<child>[\w.-]{1,128})>|</(?P=offered)>)"
    return regex.compile(
        rf"(?:<tool_call>\s{{0,100}})?<(?P<offered>{tools})(?:>{children}|(?P<attributes>{attributes})\s{{0,20}}/>)"
    )
