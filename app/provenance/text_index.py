"""An index of the texts that a model has read: which source had a word, two neighbours or four of them first.

A source is indexed once, by the class that it belongs to: words of the person in one, untrusted results in another. So
what stands in both is found in both. Of each class the newest texts are kept, in two generations: when the newer one is
full, the older one goes.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import repeat

from msgspec import Struct, field
from msgspec.structs import replace

from app.core.spans import SourceKind
from app.provenance.decodings import TooManyLayers, readings
from app.provenance.tokens import Token, tokens

MOST_OWN = 400_000  # characters of the person and of the operator that are kept
MOST_READ = 1_600_000  # of all other texts
MOST_SOURCE = 500_000  # of one of them
PIECE = 2048  # characters that are read at a time: no call into C holds the interpreter for long
SIZES = (1, 2, 4)  # neighbouring tokens that are found together
OWN: frozenset[SourceKind] = frozenset({"person", "operator"})

TextClass = tuple[SourceKind, bool]
"""The kind of a source, and whether it is untrusted."""
Grams = dict[int, int]
"""The digest of neighbouring tokens -> the number of the source that had them first."""


class ReadText(Struct, frozen=True):
    """A text that the model has read. `source` and `place` are those of a Span."""

    kind: SourceKind
    source: str
    place: str
    text: str
    untrusted: bool = False

    @property
    def is_own(self) -> bool:
        """Return True for text that grounds a value: it is compared as it is written, escapes and all."""
        return self.kind in OWN and not self.untrusted


class Generation(Struct):
    """`texts` are the literal texts of own words, by the numbers of their sources: they are looked at again."""

    size: int = 0
    texts: dict[int, str] = field(default_factory=dict)
    classes: dict[TextClass, Grams] = field(default_factory=lambda: defaultdict(dict))


class Shelf(Struct):
    """Texts up to `most` characters, half of it in each generation."""

    most: int
    older: Generation = field(default_factory=Generation)
    newer: Generation = field(default_factory=Generation)

    def grams_for(self, text: ReadText) -> Grams:
        if self.newer.size and self.newer.size + len(text.text) > self.most // 2:
            self.older, self.newer = self.newer, Generation()
        self.newer.size += len(text.text)
        return self.newer.classes[text.kind, text.untrusted]

    def texts(self) -> list[tuple[int, str]]:
        """Return the literal texts that are kept, with the numbers of their sources, the newest first."""
        return [*reversed(self.newer.texts.items()), *reversed(self.older.texts.items())]

    def lookups(self) -> Iterator[tuple[TextClass, Sequence[Grams]]]:
        """Yield what is known of each class, the older first."""
        for one in dict.fromkeys((*self.older.classes, *self.newer.classes)):
            if known := [grams for each in (self.older, self.newer) if (grams := each.classes.get(one))]:
                yield one, known


class TextIndex:
    def __init__(self, most_own: int = MOST_OWN, most_read: int = MOST_READ) -> None:
        self.own = Shelf(most_own)
        self.read = Shelf(most_read)
        self.sources: list[ReadText] = []

    def add(self, text: ReadText) -> None:
        text = replace(text, text=text.text[:MOST_SOURCE])
        shelf = self.own if text.is_own else self.read
        grams = shelf.grams_for(text)
        number = len(self.sources)
        self.sources.append(replace(text, text=""))
        if text.is_own:
            shelf.newer.texts[number] = literal(text.text)
        before = dict[int, list[str]]()
        for piece in pieces(text.text):
            for place, reading in enumerate((piece,) if text.is_own else _readings(piece)):
                found = list(tokens(reading))
                keys = [one.key if text.is_own else one.key.casefold() for one in found]
                known = before.get(place, [])
                for size in SIZES:
                    joined = [*known[max(0, len(known) + 1 - size) :], *keys]
                    _keep(grams, digests(joined, size), number)
                _keep(grams, digests([part for one in found for part in _parts(one)], 1), number)
                before[place] = [*known, *keys][1 - SIZES[-1] :]


def _readings(piece: str) -> Sequence[str]:
    try:
        return readings(piece)
    except TooManyLayers:
        return (piece,)


def _parts(token: Token) -> Sequence[str]:
    """The host of an address is a part of it, and that of a mail address is many people's."""
    return () if "@" in token.key and "/" not in token.key else [part_key(one) for one in token.parts]


def part_key(part: str) -> str:
    """Another key than that of the same text by itself, but for numbers, which are written either way."""
    return part if part[-1].isdigit() and part[0] in "-0123456789" and "/" not in part else f"\0{part.casefold()}"


def _keep(grams: Grams, found: Iterable[int], number: int) -> None:
    deque(map(grams.setdefault, found, repeat(number)), 0)


def digests(keys: Sequence[str], size: int) -> Iterator[int]:
    """The digests of all `size` neighbours. They are good for this process: Python draws its hash anew in each."""
    return map(hash, keys) if size == 1 else map(hash, zip(*(keys[at:] for at in range(size)), strict=False))


def literal(text: str) -> str:
    """The text in small letters, with one space between words."""
    return " ".join(text.casefold().split())


def pieces(text: str) -> Iterator[str]:
    """Cut a text between words where that can be, at the same places whenever it is read."""
    start = 0
    while len(text) - start > PIECE:
        end = max(
            text.rfind(" ", start + PIECE // 2, start + PIECE), text.rfind("\n", start + PIECE // 2, start + PIECE)
        )
        end = end if end > start else start + PIECE
        yield text[start:end]
        start = end
    yield text[start:] if start else text
