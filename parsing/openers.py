"""Everything that may begin at a place in the text: a table of patterns per place, compiled when first needed.

A hundred patterns at each bracket would cost more than all else, and a text can be all brackets. So what may begin is
narrowed down in steps, each derived from the rows and each a look into a cache for text that comes again: the gates are
the first characters of all rows, and a head of more characters leaves fewer of the rows that a shorter one has left, as
a rule none. Only the rows that a head of HEAD characters leaves are matched.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property, lru_cache

import regex

from parsing import framing
from parsing.dialects import ROWS, Dialect, Rows
from parsing.framing import Reasoning
from parsing.matching import BRIEF, HOLD, NEED_MORE, NO_MATCH, Groups, compiled, first_characters, named_characters

Kind = Dialect | Reasoning | str
ECHO = "echo"
TOKEN = "token"
ANSWER = "answer"
ORPHAN = "orphan"
FOREIGN = "foreign"
WRAPPER = "wrapper"
ITEM = "item"
AHEAD = 4  # characters that may rule all openers out
HEAD = 8  # as many are looked at to do so
_PAIR, _SHORT, _LONGER = 2, 3, 6  # shorter heads: two of which there are few, one for when these leave many rows
_MANY = 12
_FENCES = "`~ "  # a fence may be indented
_ANY_WORD = "ꙮ"  # a letter that no pattern names
_CLASSES = ((compiled(r"\d"), "٣"), (compiled(r"\w"), _ANY_WORD), (compiled(r"\s"), "\u2003"))


@dataclass(frozen=True, slots=True)
class Opening:
    """The beginning of something: its kind, and the groups that its body may need."""

    kind: Kind
    groups: Groups


@dataclass(frozen=True, eq=False)
class Table:
    """Patterns in the order in which they are tried, and the kind of each."""

    rows: tuple[tuple[str, Kind], ...]

    @cached_property
    def _patterns(self) -> tuple[regex.Pattern[str], ...]:
        return tuple(compiled(opens) for opens, _ in self.rows)

    def match_at(self, buf: str, pos: int, last: bool) -> tuple[int, Opening | None]:
        """Match as `matching.match_at` does, row by row: a row that more text may complete goes before later ones."""
        end, opening = _known(self, buf[pos : pos + BRIEF])
        if end == NEED_MORE and (last or len(buf) - pos > BRIEF):
            return self.match_anew(buf, pos, last)
        return (pos + end if opening else end), opening

    def match_anew(self, buf: str, pos: int, last: bool) -> tuple[int, Opening | None]:
        """The same, without a look at what is known from the last time."""
        if last or len(buf) - pos >= HOLD:  # no more is looked at, however much comes with it
            return self._match_end(buf, pos)
        for row in self._left(buf, pos):
            match = self._patterns[row].match(buf, pos, partial=True)
            if match is not None:
                return (NEED_MORE, None) if match.partial else self._opening(row, match, len(buf))
        return NO_MATCH, None

    def _match_end(self, buf: str, pos: int) -> tuple[int, Opening | None]:
        """Match where no more text can help a row; the end of the message counts as the end of a line."""
        rows, texts = self._left(buf, pos), [buf]
        if len(buf) - pos < HOLD:
            texts.append(f"{buf}\n")
        for text in texts if rows else ():
            for row in rows:
                if match := self._patterns[row].match(text, pos, pos + HOLD):
                    return self._opening(row, match, len(buf))
        return NO_MATCH, None

    def _opening(self, row: int, match: regex.Match[str], most: int) -> tuple[int, Opening]:
        return min(match.end(), most), Opening(self.rows[row][1], match.groupdict())

    def _left(self, buf: str, pos: int) -> tuple[int, ...]:
        """Return the rows that are worth a match: of few rows each is matched as soon as ruled out."""
        rows = _begun(self, buf[pos : pos + _SHORT])
        return rows if len(rows) <= _MANY else _begun(self, buf[pos : pos + HEAD])

    def may_begin(self, text: str) -> bool:
        """Return whether a row begins `text`, or may do so with more of it."""
        return any(self._patterns[row].match(text, partial=True) for row in _begun(self, text[:HEAD]))

    def is_cut(self, text: str) -> bool:
        """Return whether a row may begin `text` with more of it, and none begins it as it is."""
        matches = [self._patterns[row].match(text, partial=True) for row in _begun(self, text[:HEAD])]
        found = [match.partial for match in matches if match]
        return bool(found) and all(found)

    @cached_property
    def first(self) -> frozenset[str]:
        """The characters that its rows begin with."""
        return frozenset().union(*(first_characters(opens) for opens, _ in self.rows))

    @cached_property
    def _named(self) -> frozenset[str]:
        """The characters that its rows tell from all others."""
        return frozenset(map(chr, range(128))).union(*(named_characters(opens) for opens, _ in self.rows))

    def typical(self, head: str) -> str:
        """Return `head` with a character for each class of those that no row tells from each other."""
        return "".join(each if each in self._named else _class_of(each) for each in head)

    def begun(self, head: str) -> tuple[int, ...]:
        """Return the rows that `head` may begin."""
        among: Iterable[int] = range(len(self.rows))
        if len(head) > _SHORT:
            among = _begun(self, head[:_SHORT])
            if len(among) > _MANY and len(head) > _LONGER:
                among = _begun(self, head[:_LONGER])
        elif len(head) > _PAIR:
            among = _begun(self, head[:_PAIR])
        return tuple(row for row in among if self._patterns[row].match(head, partial=True))


def _table(rows: Iterable[tuple[str, Kind]]) -> Table:
    return Table(tuple(rows))


@lru_cache(maxsize=4096)
def _known(table: Table, text: str) -> tuple[int, Opening | None]:
    """The beginning of a brief text, found once for all replies: models write the same openers in the same tokens."""
    return table.match_anew(text, 0, last=False)


def _joined(*tables: Table) -> Table:
    return _table(row for table in tables for row in table.rows)


def _begun(table: Table, head: str) -> tuple[int, ...]:
    """The rows that `head` may begin, found once for all replies."""
    if len(head) > _SHORT:
        return _begun_by_many(table, head)
    return _begun_by_few(table, head if head.isascii() else table.typical(head))


@lru_cache(maxsize=1 << 14)
def _begun_by_many(table: Table, head: str) -> tuple[int, ...]:
    return table.begun(head)


@lru_cache(maxsize=1 << 15)
def _begun_by_few(table: Table, head: str) -> tuple[int, ...]:
    return table.begun(head)


@lru_cache(maxsize=4096)
def _class_of(character: str) -> str:
    """Return the character that stands for all of the same class."""
    return next((typical for shape, typical in _CLASSES if shape.match(character)), "☃")


def _rows(rows: Iterable[Dialect | Reasoning]) -> list[tuple[str, Kind]]:
    return [(each.opens, each) for each in rows]


class Openers:
    """The tables of one set of dialects, with the marks and tokens that are the same for every set."""

    def __init__(self, rows: Rows) -> None:
        self._all = rows

    @cached_property
    def marked(self) -> Table:
        """Openers anywhere outside code."""
        return _table([*_rows(self._all.marked), *_rows(framing.REASONING)])

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
        return _table([*_rows(framing.REASONING), (framing.STOPS, TOKEN)])

    @cached_property
    def tokens(self) -> Table:
        """Tokens that are never shown, and closers that close nothing."""
        kinds = (
            (FOREIGN, (framing.FOREIGN,)),
            (WRAPPER, framing.WRAPPERS),
            (ITEM, framing.ITEMS),
            (ECHO, framing.ECHOES),
            (ANSWER, framing.ANSWERS),
            (ORPHAN, framing.ORPHANS),
            (TOKEN, framing.TOKENS),
        )
        return _table((each, kind) for kind, rows in kinds for each in rows)

    @cached_property
    def shapes(self) -> Table:
        """Lines of what is shaped like tokens, where nothing else has begun."""
        return _table((each, TOKEN) for each in framing.SHAPES)

    @cached_property
    def lines(self) -> Table:
        """Openers at the beginning of a line."""
        return _table(
            [
                *_rows(framing.HEADERS),
                *_rows(self._all.lines),
                *((each, TOKEN) for each in framing.LINE_TOKENS),
                *((each, ANSWER) for each in framing.LINE_ANSWERS),
            ]
        )

    @cached_property
    def echo_lines(self) -> Table:
        return _table([(each, ECHO) for each in framing.ECHO_LINES])

    @cached_property
    def headers(self) -> Table:
        """Openers at the beginning of the message, tried before all others."""
        return _table([*_rows(framing.HEADERS), *_rows(self._all.headers)])

    @cached_property
    def first(self) -> Table:
        """Openers at the beginning of the message only."""
        return _table([*_rows(framing.FIRST_REASONING), *_rows(self._all.whole)])

    @cached_property
    def first_words(self) -> Table:
        """The rows of `first` that begin with a mark or a word of their own, not with the name of a tool."""
        rows = _rows([*framing.FIRST_REASONING, *self._all.whole])
        return _table([row for row in rows if not compiled(row[0]).match(_ANY_WORD, partial=True)])

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

    def may_begin(self, head: str) -> bool:
        """Return whether an opener may begin with these AHEAD to HEAD characters, which rule out most brackets."""
        return bool(_begun(self._anywhere, head))

    def is_near(self, head: str) -> bool:
        """Return whether a row that is tried wherever it may stand may begin with this head."""
        return bool(_begun(self._always, head))

    @cached_property
    def _anywhere(self) -> Table:
        return _joined(self._always, self.last, self.shapes)

    @cached_property
    def _always(self) -> Table:
        return _joined(self.marked, self.rest, self.tokens)


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
