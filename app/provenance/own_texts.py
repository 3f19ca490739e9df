"""Texts in which values of a call are looked for, each as a whole, in bounded time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from decimal import Decimal, InvalidOperation
from functools import cached_property

from tools.base.patterns import lazy_pattern

MOST_KEPT = 200_000  # characters of each kind of text: the latest
MOST_PLACES = 100  # of a value that are looked at: more may be the attack of one that is everywhere
NEAR = 80  # characters before a number or a name
RUN = lazy_pattern(r"\w+")
WORD = lazy_pattern(r"\w+(?:['’]\w+)*")
_NUMBER = lazy_pattern(r"(?<![\w.,:/@#+-])[-+]?\d[\d.,' ]{0,40}(?![\w@/:-])")
_ENDS = lazy_pattern(r"[\s,;!?)\]}>\"'`“”’»…]|[.:][\s\"'`“”’»)]|[.:]?\Z|['’]s\b")
_BEGINS = lazy_pattern(r"[\s,;(\[{<\"'`“„‘‚«=:@#]|\A")


class OwnText:
    """One text in which values are looked for. What that takes is made once, and only when it is needed."""

    def __init__(self, written: str) -> None:
        self.written = written

    @cached_property
    def lower(self) -> str:
        return lowered(self.written)

    @cached_property
    def letters(self) -> frozenset[str]:
        """All runs of letters and figures in lower case: where one of a value is missing, the value is."""
        return frozenset(RUN.findall(self.lower))

    @cached_property
    def words(self) -> str:
        """The words in lower case, between spaces."""
        return joined(self.written)

    @cached_property
    def numbers(self) -> frozenset[Decimal]:
        return frozenset(_numbers(self.written))


class Texts:
    """Texts in which values are looked for, the latest up to MOST_KEPT characters; of a longer one both ends."""

    def __init__(self) -> None:
        self._texts: list[OwnText] = []
        self._size = 0

    def add(self, text: str) -> None:
        half = MOST_KEPT // 2
        for part in (text,) if len(text) <= MOST_KEPT else (text[:half], text[-half:]):
            if part.strip():
                self._texts.append(OwnText(part))
                self._size += len(part)
        while self._size > MOST_KEPT:
            self._size -= len(self._texts.pop(0).written)

    @property
    def written(self) -> Sequence[str]:
        return [one.written for one in self._texts]

    def places(self, text: str, *, exact: bool = False) -> Iterator[tuple[str, int]]:
        """Yield each text that has this one as a whole word or words, with the position: the latest, and not all."""
        lower, left = lowered(text), MOST_PLACES
        runs = RUN.findall(lower)
        sought = text if exact else lower
        for one in reversed(self._texts):
            if not one.letters.issuperset(runs):
                continue
            within = one.written if exact else one.lower
            at = within.find(sought)
            while at >= 0 and left:
                left -= 1
                begins = at == 0 or _BEGINS.match(within[at - 1])
                if begins and _ENDS.match(within, at + len(sought)):
                    yield one.written, at
                at = within.find(sought, at + 1)

    def has_words(self, words: str) -> bool:
        """Return True if these words, in lower case and between spaces, stand in one of the texts."""
        runs = RUN.findall(words)
        return any(one.letters.issuperset(runs) and words in one.words for one in self._texts)

    def hasnumber_of(self, number: Decimal) -> bool:
        return any(number in one.numbers for one in self._texts)


def _numbers(written: str) -> Iterator[Decimal]:
    for match in _NUMBER.finditer(written):
        before = written[max(0, match.start() - NEAR) : match.start()].rstrip()
        if any(map(str.isdigit, before[-12:].split(" ")[-1])):
            continue  # a group of an account or of a telephone number
        if (number := number_of(match[0].strip(" .,'"))) is not None:
            yield number


def lowered(text: str) -> str:
    """Return the text with the letters A to Z in lower case; others stay, because the Kelvin sign is no k."""
    return text.encode("utf-8", "surrogatepass").lower().decode("utf-8", "surrogatepass")


def joined(text: str) -> str:
    """Return the words of a text in lower case, between spaces."""
    return f" {' '.join(WORD.findall(lowered(text)))} "


def number_of(text: str) -> Decimal | None:
    """Return a number that can be read in one way only: 1,250.00 and 2.5, not 1.250."""
    body = text.replace("'", "").replace(" ", "")
    marks = [one for one in body if one in ".,"]
    if len(set(marks)) == 2:
        if body.count(marks[-1]) != 1:
            return None
        body = body.replace(marks[0], "")
    elif len(marks) > 1:
        body = body.replace(marks[0], "")
    elif marks and len(body.partition(marks[0])[2]) == 3:
        return None
    try:
        return Decimal(body.replace(",", "."))
    except InvalidOperation:
        return None
