"""Find the parts of an argument that repeat a text which the model has read.

A part is a passage (words one after the other that tell enough together), an address, a number or a path, a name, or
the whole value. It is looked for as it is written, and without escapes; own words only as they are written.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import islice
from unicodedata import is_normalized

from msgspec import Struct

from app.core.spans import Span
from app.provenance.decodings import TooManyLayers, readings
from app.provenance.text_index import OWN, SIZES, Grams, Shelf, TextIndex, digests, literal, part_key
from app.provenance.tokens import LEAST, TELLS, Token, tokens
from parsing import Arguments
from tools.base.patterns import lazy_pattern

MOST_CHARACTERS = 64_000  # of the arguments of one call
MOST_TEXTS = 2_000
MOST_SPANS = 200
LONGEST_NAME = 8  # tokens of a value that is looked for as a whole
_AROUND = " \"'“”#@"  # what may stand around a value that is a person's word
_BEFORE, _BEHIND = lazy_pattern(r"[\w@./:-]"), lazy_pattern(r"[\w@/:-]|\.\w")

_URL = lazy_pattern(r"(?<=://)[^\s<>\"'`{}|\\^]{1,2000}+")
_OPENING = str.maketrans("/?&=#+;", "       ")

Hits = Sequence[int | None]


class Part(Struct, frozen=True):
    """Tokens `start` to `end` of a reading, and the source that has them; `within`: the part of the only token."""

    start: int
    end: int
    source: int
    exact: bool = False
    within: str = ""


class Reading(Struct, frozen=True):
    """One reading of a text, as tokens, and their digests as they are written and in small letters."""

    text: str
    tokens: Sequence[Token]
    strict: Sequence[Sequence[int]]
    loose: Sequence[Sequence[int]]

    @classmethod
    def of(cls, text: str) -> Reading:
        found = list(tokens(text))
        keys = [one.key for one in found]
        strict = [list(digests(keys, size)) for size in SIZES]
        folded = [key.casefold() for key in keys]
        return cls(text, found, strict, strict if keys == folded else [list(digests(folded, size)) for size in SIZES])

    def tells(self, start: int, end: int) -> int:
        return sum(one.tells for one in self.tokens[start:end])


def spans_of(arguments: Arguments, index: TextIndex) -> Sequence[Span]:
    """Return where the texts in the arguments come from, as far as they are within the bounds."""
    found, left = list[Span](), MOST_CHARACTERS
    for pointer, text in islice(texts_in(arguments), MOST_TEXTS):
        cut = text[:left]
        left -= len(cut)
        try:
            views = readings(cut)
        except TooManyLayers:
            views = (cut,)
        opened = _URL.sub(_opened, views[min(1, len(views) - 1)]) if "://" in cut else cut
        for number_of_view, view in enumerate(dict.fromkeys((*views, opened))):
            found += _spans(pointer, cut, view, index, decoded=number_of_view > 0)
    return _outermost(found)[:MOST_SPANS]


def _opened(url: re.Match[str]) -> str:
    """An address with its parts as words: what it would carry away stands in them."""
    return url[0].translate(_OPENING)


def texts_in(arguments: Arguments) -> Iterator[tuple[str, str]]:
    """Yield the texts and numbers in the arguments, and the names in them below the first level, by JSON pointers.

    The pointer of a name has a `#` behind that of its value.
    """
    waiting: list[tuple[str, object]] = [("", arguments)]
    while waiting:
        pointer, value = waiting.pop()
        if isinstance(value, dict):
            below = [(f"{pointer}/{str(key).replace('~', '~0').replace('/', '~1')}", key) for key in value]
            if pointer:
                yield from ((f"{place}#", str(key)) for place, key in below)
            waiting += reversed([(place, value[key]) for place, key in below])
        elif isinstance(value, list | tuple):
            waiting += reversed([(f"{pointer}/{at}", one) for at, one in enumerate(value)])
        elif isinstance(value, str | int | float) and not isinstance(value, bool):
            yield pointer, str(value)


def _spans(pointer: str, written: str, view: str, index: TextIndex, *, decoded: bool) -> Iterator[Span]:
    reading = Reading.of(view)
    if not reading.tokens:
        return
    # Letters that are only drawn or sorted alike, as the Kelvin sign is a k, make another value.
    as_written = is_normalized("NFKC", view)
    for shelf in (index.read,) if decoded else (index.own, index.read):
        for (kind, untrusted), grams in shelf.lookups():
            is_own = kind in OWN and not untrusted
            hits = [_hits(found, grams) for found in (reading.strict if is_own else reading.loose)]
            for part in _parts(reading, hits, grams, shelf if is_own else None):
                source, (start, end) = index.sources[part.source], _place(reading, part)
                if decoded:
                    start, end = _in_writing(written, view, start, end)
                yield Span(
                    argument=pointer,
                    start=start,
                    end=end,
                    kind=kind,
                    source=source.source,
                    place=source.place,
                    untrusted=untrusted,
                    exact=part.exact and as_written,
                )


def _hits(found: Sequence[int], grams: Sequence[Grams]) -> Hits:
    first, *newer = grams
    hits: list[int | None] = list(map(first.get, found))
    for one in newer:
        hits = [one.get(digest) if hit is None else hit for digest, hit in zip(found, hits, strict=True)]
    return hits


def _parts(reading: Reading, hits: Sequence[Hits], grams: Sequence[Grams], own: Shelf | None) -> Iterator[Part]:
    singles, pairs, fours = hits
    whole = _whole_of_own(reading, singles, own) if own is not None else _whole(reading, hits)
    if whole is None and len(reading.tokens) == 1:
        whole = _other_number(reading, grams, is_own=own is not None)
    if whole is not None:
        yield whole
        return
    yield from _passages(reading, fours)
    for at, source in enumerate(pairs):
        if source is not None and _is_name(reading, at):
            yield Part(at, at + 2, source)
    for at, (token, source) in enumerate(zip(reading.tokens, singles, strict=True)):
        if source is not None and token.single:
            yield Part(at, at + 1, source, exact=own is not None)
        elif token.single or len(reading.tokens) == 1:
            yield from _parts_of_token(token, at, grams)


def _whole(reading: Reading, hits: Sequence[Hits]) -> Part | None:
    """Return the whole value, if its neighbours are all neighbours in what was read."""
    count = len(reading.tokens)
    found = hits[0] if count == 1 else hits[1] if count < SIZES[-1] else hits[2]
    source = found[0]
    if count > LONGEST_NAME or source is None or None in found or not reading.tells(0, count):
        return None
    return Part(0, count, source)


def _whole_of_own(reading: Reading, singles: Hits, own: Shelf) -> Part | None:
    """Return the whole value, if it stands in own words to the letter."""
    count, [first, *more] = len(reading.tokens), singles
    if first is None or None in more or not reading.tells(0, count):
        return None
    if not more:
        around = reading.text[: reading.tokens[0].start] + reading.text[reading.tokens[0].end :]
        if not around.strip(_AROUND):
            return Part(0, 1, first, exact=True)
    wanted = literal(reading.text).strip(_AROUND)
    found = next((number for number, text in own.texts() if _stands_in(wanted, text)), None)
    return None if found is None else Part(0, count, found, exact=True)


def _stands_in(wanted: str, text: str) -> bool:
    """Return True if it is there by itself: no part of a longer word or address."""
    at = text.find(wanted)
    while at >= 0:
        end = at + len(wanted)
        if not _BEFORE.match(text[at - 1 : at]) and not _BEHIND.match(text[end : end + 2]):
            return True
        at = text.find(wanted, at + 1)
    return False


def _other_number(reading: Reading, grams: Sequence[Grams], *, is_own: bool) -> Part | None:
    for part in reading.tokens[0].parts:
        source = _hits([hash(part)], grams)[0]
        if part_key(part) == part and source is not None:
            return Part(0, 1, source, exact=is_own)
    return None


def _passages(reading: Reading, fours: Hits) -> Iterator[Part]:
    at = 0
    while at < len(fours):
        if fours[at] is None:
            at += 1
            continue
        end = at + 1
        while end < len(fours) and fours[end] is not None:
            end += 1
        if reading.tells(at, end + SIZES[-1] - 1) >= LEAST:
            yield from _by_source(fours, at, end)
        at = end


def _by_source(fours: Hits, at: int, end: int) -> Iterator[Part]:
    """Cut a passage where another source goes on with it."""
    start = at
    for place in range(at + 1, end + 1):
        source = fours[place - 1]
        if (place == end or fours[place] != source) and source is not None:
            until = place + SIZES[-1] - 1
            yield Part(start, until, source)
            start = until


def _is_name(reading: Reading, at: int) -> bool:
    """Return True for two words with capitals, or one with a number: `Anna Lindqvist`, `Budget 2031`."""
    pair = reading.tokens[at : at + 2]
    first = [reading.text[one.start] for one in pair]
    written = all(one.isupper() or one.isdigit() for one in first) and any(map(str.isupper, first))
    return written and all(one.tells == TELLS and not one.single for one in pair)


def _parts_of_token(token: Token, at: int, grams: Sequence[Grams]) -> Iterator[Part]:
    """Yield the host of an address, the base name of a path; and an address of which only the host was named."""
    for part in token.parts:
        for digest in (hash(part_key(part)), hash(part.casefold())):
            if (source := _hits([digest], grams)[0]) is not None:
                yield Part(at, at + 1, source, within=part)
                break
    if (source := _hits([hash(f"\0{token.key.casefold()}")], grams)[0]) is not None:
        yield Part(at, at + 1, source)


def _place(reading: Reading, part: Part) -> tuple[int, int]:
    first, last = reading.tokens[part.start], reading.tokens[part.end - 1]
    if part.within:
        at = reading.text.casefold().rfind(part.within.casefold(), first.start, first.end)
        return (at, at + len(part.within)) if at >= 0 else (first.start, first.end)
    return first.start, last.end


def _in_writing(written: str, view: str, start: int, end: int) -> tuple[int, int]:
    """Return the place of a part of another reading: from its first word to its last, or the whole text."""
    if len(written) == len(view):  # other letters, one for one
        return start, end
    found = view[start:end]
    if (at := written.find(found)) >= 0:
        return at, at + len(found)
    words = found.split()
    start = written.find(words[0])
    end = written.find(words[-1], start + 1 if len(words) > 1 else start) if start >= 0 else -1
    return (start, end + len(words[-1])) if end >= start >= 0 and end >= 0 else (0, len(written))


def _outermost(found: Sequence[Span]) -> list[Span]:
    """The spans in order, without those that stand in another one of the same kind."""
    order = {pointer: at for at, pointer in enumerate(dict.fromkeys(one.argument for one in found))}
    kept, ends = list[Span](), dict[tuple[str, str, bool, bool], int]()
    for span in sorted(found, key=lambda one: (order[one.argument], one.start, -one.end)):
        same = span.argument, span.kind, span.untrusted, span.exact
        if span.end > ends.get(same, -1):
            ends[same] = span.end
            kept.append(span)
    return kept
