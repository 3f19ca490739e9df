"""Everything that may begin at a place in the text: one compiled alternation per table, made when first needed.

The gates, the characters at which each alternation is worth trying, are derived from it: a row that begins with a
character that no other row begins with needs nothing but itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property, lru_cache

import regex

from parsing.dialects import ROWS, Dialect, Rows
from parsing.framing import (
    ANSWERS,
    ECHO_LINES,
    ECHOES,
    FIRST_REASONING,
    HEADERS,
    ITEMS,
    LINE_ANSWERS,
    LINE_TOKENS,
    ORPHANS,
    REASONING,
    SHAPES,
    STOPS,
    TOKENS,
    WRAPPERS,
    Reasoning,
)
from parsing.framing import FOREIGN as FOREIGN_HEADER
from parsing.matching import BRIEF, HOLD, NEED_MORE, Groups, compiled, first_characters, group_in, match_anew

Kind = Dialect | Reasoning | str
# The groups of an opener that its body, or its block, may need.
GROUPS = ("name", "offered", "void", "bracket", "attributes", "label", "lead", "wrap")
ECHO = "echo"
TOKEN = "token"
ANSWER = "answer"
ORPHAN = "orphan"
FOREIGN = "foreign"
WRAPPER = "wrapper"
ITEM = "item"
AHEAD = 4
_FENCES = "`~ "  # a fence may be indented
_ANY_WORD = "ꙮ"  # a letter that no pattern names


@dataclass(frozen=True, slots=True)
class Opening:
    """The beginning of something: its kind, how many characters it has, and the groups that its body may need."""

    kind: Kind
    length: int
    groups: Groups


@dataclass(frozen=True, eq=False)
class Table:
    """Patterns in the order in which they are tried, and the kind of each."""

    pattern: regex.Pattern[str]
    rows: tuple[tuple[str, Kind], ...]
    ends: tuple[int, ...]  # the empty group at the end of each alternative

    def match_at(self, buf: str, pos: int, last: bool) -> tuple[int, Opening | None]:
        """Match as `matching.match_at` does, row by row: a row that more text may complete goes before later ones."""
        if last or len(buf) - pos > BRIEF:
            return self.match_anew(buf, pos, last)
        end, opening = _known(self, buf[pos:])
        return (pos + end if opening else end), opening

    def match_anew(self, buf: str, pos: int, last: bool) -> tuple[int, Opening | None]:
        """The same, without a look at what is known from the last time."""
        end, match = match_anew(self.pattern, buf, pos, last)
        if match is None:
            return end, None
        number = match.group(0, *self.ends).index("", 1) - 1
        if not last and len(buf) - pos < HOLD:
            rivals = _rivals(self, number, buf[pos : pos + AHEAD])
            if any(compiled(opens).match(buf, pos, partial=True) for opens in rivals):
                return NEED_MORE, None
        return end, Opening(self.rows[number][1], end - pos, groups_of(match))

    @property
    def first(self) -> frozenset[str]:
        """The characters that its rows begin with."""
        return first_characters(self.pattern.pattern)


def _table(rows: Iterable[tuple[str, Kind]]) -> Table:
    numbered = list(rows)
    pattern = "|".join(rf"(?:{opens})(?P<row_{number}>)" for number, (opens, _) in enumerate(numbered)) or "(?!)"
    compiled = regex.compile(pattern)
    ends = tuple(compiled.groupindex[f"row_{number}"] for number in range(len(numbered)))
    return Table(compiled, tuple(numbered), ends)


@lru_cache(maxsize=4096)
def _known(table: Table, text: str) -> tuple[int, Opening | None]:
    """The beginning of a brief text, found once for all replies: models write the same openers in the same tokens."""
    return table.match_anew(text, 0, last=False)


@lru_cache(maxsize=1024)
def _rivals(table: Table, number: int, ahead: str) -> tuple[str, ...]:
    """The rows before this one that may begin with `ahead` as well."""
    return tuple(opens for opens, _ in table.rows[:number] if compiled(opens).match(ahead, partial=True))


def groups_of(match: regex.Match[str]) -> Groups:
    """The groups of an opener that its body may need."""
    return {group: group_in(match, group) for group in GROUPS}


def _rows(rows: Iterable[Dialect | Reasoning]) -> list[tuple[str, Kind]]:
    return [(each.opens, each) for each in rows]


class Openers:
    """The tables of one set of dialects, with the marks and tokens that are the same for every set."""

    def __init__(self, rows: Rows) -> None:
        self._all = rows
        self.may_begin = lru_cache(maxsize=4096)(self._may_begin)

    @cached_property
    def marked(self) -> Table:
        """Openers anywhere outside code."""
        return _table([*_rows(self._all.marked), *_rows(REASONING)])

    @cached_property
    def rest(self) -> Table:
        """Openers where nothing in `marked` matches."""
        return _table(_rows(self._all.rest))

    @cached_property
    def last(self) -> Table:
        """Openers where nothing else has begun."""
        return _table(_rows(self._all.last))

    @cached_property
    def not_calls(self) -> Table:
        """Marks and stop tokens: they begin like a call and are none."""
        return _table([*_rows(REASONING), (STOPS, TOKEN)])

    @cached_property
    def tokens(self) -> Table:
        """Tokens that are never shown, and closers that close nothing."""
        kinds = (
            (FOREIGN, (FOREIGN_HEADER,)),
            (WRAPPER, WRAPPERS),
            (ITEM, ITEMS),
            (ECHO, ECHOES),
            (ANSWER, ANSWERS),
            (ORPHAN, ORPHANS),
            (TOKEN, TOKENS),
        )
        return _table((each, kind) for kind, rows in kinds for each in rows)

    @cached_property
    def shapes(self) -> Table:
        """Lines of what is shaped like tokens, where nothing else has begun."""
        return _table((each, TOKEN) for each in SHAPES)

    @cached_property
    def lines(self) -> Table:
        """Openers at the beginning of a line."""
        return _table(
            [
                *_rows(HEADERS),
                *_rows(self._all.lines),
                *((each, TOKEN) for each in LINE_TOKENS),
                *((each, ANSWER) for each in LINE_ANSWERS),
            ]
        )

    @cached_property
    def echo_lines(self) -> Table:
        return _table([(each, ECHO) for each in ECHO_LINES])

    @cached_property
    def headers(self) -> Table:
        """Openers at the beginning of the message, tried before all others."""
        return _table([*_rows(HEADERS), *_rows(self._all.headers)])

    @cached_property
    def first(self) -> Table:
        """Openers at the beginning of the message only."""
        return _table([*_rows(FIRST_REASONING), *_rows(self._all.whole)])

    @cached_property
    def _first_words(self) -> Table:
        """The rows of `first` that begin with a mark or a word of their own, not with the name of a tool."""
        rows = _rows([*FIRST_REASONING, *self._all.whole])
        return _table([row for row in rows if not compiled(row[0]).match(_ANY_WORD, partial=True)])

    def begins_first(self, text: str) -> bool:
        """Return whether `text` may begin an opener of `first` that is not the name of a tool."""
        return self._first_words.pattern.match(text, partial=True) is not None

    # --- gates ---

    @cached_property
    def gates(self) -> str:
        """The characters in whose absence a piece of prose is prose: of marks, of code spans, of a line's end."""
        found = (
            self.marked.first | self.rest.first | self.last.first | self.tokens.first | self.shapes.first | {"`", "\n"}
        )
        return "".join(sorted(found))

    @cached_property
    def line_gates(self) -> frozenset[str]:
        return self.lines.first | self.echo_lines.first | frozenset(_FENCES)

    @cached_property
    def header_gates(self) -> frozenset[str]:
        return self.headers.first

    @cached_property
    def rare_marks(self) -> frozenset[str]:
        """The characters beyond ASCII that only calls begin with: a message that ends behind one was cut there."""
        calls = (self.marked.first | self.rest.first) - self.not_calls.first
        return frozenset(each for each in calls if not each.isascii())

    def _may_begin(self, ahead: str) -> bool:
        """Return whether an opener may begin with these AHEAD characters, which rule out most brackets of prose."""
        return any(
            table.pattern.match(ahead, partial=True)
            for table in (self.marked, self.rest, self.last, self.tokens, self.shapes)
        )


OPENERS = Openers(ROWS)


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
