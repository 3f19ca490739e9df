"""Find a call in lines that have a prefix: where they are from, a number, a name, a time.

No table can have all that tools put there. So a call is followed from line to line, each of which goes on with it from
some word to its end, through texts that were read one after the other: a result can be a page of another one.
Only letters, figures and brackets count, whatever their case.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence

from msgspec import Struct
from msgspec.structs import replace

from tools.base.patterns import lazy_pattern

MOST_BEFORE = 40  # words and brackets that stand before a line
MOST_LINES = 4  # that are none of the call, one after the other in the midst of it
FEWEST = 4  # one of so many words of the call is in each text that has a part of it
MOST_PLACES = 16  # in the call that one line may have come to
LOOKED_AT = 60  # what a line that is looked at costs, beside its characters

_TOKEN = lazy_pattern(r"\w+|[<>{}\[\]()=:]|`{3,}|~{3,}")
_NO_TOKEN = lazy_pattern(r"[^\w<>{}\[\]()=:`~\n]+|_+|(?<!`)`{1,2}(?!`)|(?<!~)~{1,2}(?!~)")
_FENCES = lazy_pattern(r"`+|~+")
_FRAME = frozenset("<>{}[]()=:`")
_CLOSES = ">}])"
_OPENS = frozenset("<{[(")

Take = Callable[[int], None]


def compact(text: str) -> str:
    """Reduce a line to the characters that count."""
    return _compact(text).replace("\n", "")


def _compact(text: str) -> str:
    return _FENCES.sub("`", _NO_TOKEN.sub("", text)).casefold()


def _starts(line: str) -> tuple[int, ...]:
    """The positions where words and brackets begin, in the compact line."""
    found, at = list[int](), 0
    for match in _TOKEN.finditer(line):
        if len(found) > MOST_BEFORE:
            break
        found.append(at)
        at += len(compact(match.group()))
    return tuple(found)


class Lines(Struct, frozen=True):
    """The lines of one text: as they are, and what counts of them."""

    plain: tuple[str, ...]
    compact: tuple[str, ...]

    @classmethod
    def of(cls, text: str) -> Lines:
        return cls(tuple(text.split("\n")), tuple(_compact(text).split("\n")))


class Sought(Struct, frozen=True):
    """A call that is looked for. `strict`: each line of it follows on the other, as in a fence, which frames little;
    `whole`: it does not go on behind `text`."""

    text: str
    words: frozenset[str]
    strict: bool
    whole: bool
    first: re.Pattern[str] | None = None  # the word that it begins with
    last: re.Pattern[str] | None = None

    @classmethod
    def of(cls, raw: str, *, strict: bool, whole: bool) -> Sought:
        tokens = [match.group() for match in _TOKEN.finditer(raw)]
        words = frozenset(word for one in tokens for word in re.findall(r"[^\W_]{3,}", one.casefold()))
        text = compact(raw)
        if not _FRAME.intersection(text):
            text = ""  # a value alone is no quotation
        first = _bounded(tokens[0]) if text and tokens[0][0].isalnum() else None
        last = _bounded(tokens[-1]) if text and whole and tokens[-1][-1].isalnum() else None
        return cls(text, words, strict=strict, whole=whole, first=first, last=last)

    def may_stand_in(self, text: str) -> bool:
        """Return whether a good part of it may: line breaks can part a word, and what is left is on another page."""
        return bool(self.text) and FEWEST * sum(word in text for word in self.words) >= len(self.words)

    def found_in(self, texts: Sequence[Lines], take: Take) -> int | None:
        """In which of the texts, one read after the other, it ends."""
        if not self.text:
            return None
        at = self._in_one_piece(texts)
        if at is not None:
            return at
        short = self.text if self.strict else self.text.rstrip(_CLOSES)  # a page can end before the last brackets
        return replace(self, text=short)._line_by_line(texts, take) if short else None

    def _in_one_piece(self, texts: Sequence[Lines]) -> int | None:
        joined = ["".join(one.compact) for one in texts]
        at = "".join(joined).find(self.text)
        if at < 0:
            return None
        plain = [line for one in texts for line in one.plain]
        for edge in (self.first, self.last):
            if edge and not any(map(edge.search, plain)):
                return None
        end = at + len(self.text)
        for number, one in enumerate(joined):
            end -= len(one)
            if end <= 0:
                return number
        return len(texts) - 1

    def _line_by_line(self, texts: Sequence[Lines], take: Take) -> int | None:
        """`places`: where in the call the lines have come to -> how many have not gone on from there."""
        places: dict[int, int] = {}
        for number, plain, line in _each(texts):
            if not line or (not places and self.text[:3] not in line):
                continue
            take(LOOKED_AT + len(line) * (1 + len(places)))
            starts = _starts(plain)
            came = {to: 0 for at in (*places, 0) for to in self._goes_on(line, starts, at)}
            if len(self.text) in came:
                return number
            waited = {at: lines + 1 for at, lines in places.items() if lines < self._patience(at)}
            places = dict(sorted((waited | came).items())[-MOST_PLACES:])
        return None

    def _patience(self, at: int) -> int:
        return MOST_LINES if not self.strict and _OPENS.intersection(self.text[:at]) else 0

    def _goes_on(self, line: str, starts: Sequence[int], at: int) -> Iterator[int]:
        """The position in the call that this line comes to, from `at`."""
        left = len(self.text) - at
        for start in starts:
            if len(line) - start <= left:
                if self.text.startswith(line[start:], at):
                    yield at + len(line) - start
            elif not self.strict and line.startswith(self.text[at:], start) and self._ends(line, starts, start + left):
                yield len(self.text)

    def _ends(self, line: str, starts: Sequence[int], at: int) -> bool:
        """Return True if no word is cut there."""
        return not self.whole or not (line[at - 1].isalnum() and line[at].isalnum()) or at in starts


def _bounded(token: str) -> re.Pattern[str]:
    return re.compile(rf"(?<!\w){re.escape(token)}(?!\w)", re.IGNORECASE)


def _each(texts: Iterable[Lines]) -> Iterator[tuple[int, str, str]]:
    for number, one in enumerate(texts):
        for plain, line in zip(one.plain, one.compact, strict=True):
            yield number, plain, line
