"""The texts a model has read in a run, each searched for calls once."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence

from msgspec import Struct

from app.provenance.decodings import spelled_out
from app.provenance.quoted_lines import compact
from app.provenance.quoted_text import QuotedCall, Reading, TooMuch, Work

MOST_KEPT = 2_000_000  # characters of what was read that are kept for the next reply
FEWEST = 4  # characters of an argument that are looked for in a block that could not be understood
AGAIN = "a quotation that was not run"
TOO_MUCH = "more text than can be looked through (so that it counts as a quotation)"


class Source(Struct, frozen=True):
    """A text that the model has read and not written. `place` is where, in words for people."""

    place: str
    text: str


class Suspect(Struct, frozen=True):
    """A quotation that the run has seen. `raw` is what counts of one that could not be understood.

    What is said of a call that cannot be run would teach a model to call, by and by, what it has only quoted. So the
    same with another name, or under other names of arguments, is a quotation as well.
    """

    name: str
    arguments: str
    telling: str
    raw: str = ""

    @classmethod
    def of(cls, wanted: QuotedCall) -> Suspect:
        raw = compact(spelled_out(wanted.written.raw)) if wanted.written.bad else ""
        return cls(wanted.key.name, wanted.key.arguments, wanted.key.telling, raw)

    def has(self, one: QuotedCall) -> bool:
        key = one.key
        if not key.telling:
            return (key.name, key.arguments) == (self.name, self.arguments)
        return key.telling == self.telling or (len(key.telling) >= FEWEST and key.telling in self.raw)


class Library:
    """The latest of what has been read, up to MOST_KEPT."""

    def __init__(self, most: int = MOST_KEPT) -> None:
        self._most = most
        self._size = 0
        self._readings: OrderedDict[str, Reading] = OrderedDict()
        self._suspects: frozenset[Suspect] = frozenset()

    def quotations(self, wanted: Mapping[str, QuotedCall], sources: Sequence[Source], work: Work) -> dict[str, str]:
        """The calls that stand in a source, with its place. `sources` are in the order in which they were read."""
        readings = [(source, self._reading(source.text)) for source in sources]
        places: dict[object, str | None] = {}
        for one in wanted.values():
            if one.same not in places:
                places[one.same] = _place(one, readings, work) or self._again(one)
        found = {call: place for call, one in wanted.items() if (place := places[one.same])}
        self._suspects |= {Suspect.of(wanted[call]) for call, place in found.items() if place != TOO_MUCH}
        return found

    def __len__(self) -> int:
        return len(self._readings)

    def _again(self, one: QuotedCall) -> str | None:
        return AGAIN if any(each.has(one) for each in self._suspects) else None

    def _reading(self, text: str) -> Reading:
        if known := self._readings.get(text):
            self._readings.move_to_end(text)
            return known
        made = self._readings[text] = Reading(text)
        self._size += len(text)
        while self._size > self._most and len(self._readings) > 1:
            self._size -= len(self._readings.popitem(last=False)[0])
        return made


def _place(one: QuotedCall, readings: Sequence[tuple[Source, Reading]], work: Work) -> str | None:
    """The latest place is the likeliest."""
    try:
        for source, reading in reversed(readings):
            if one.stands_in(reading, work):
                return source.place
        lines = [(source, lines) for source, reading in readings if (lines := reading.lines_with(one.sought, work))]
        at = one.sought.found_in([each for _, each in lines], work.take)
    except TooMuch:
        return TOO_MUCH
    return None if at is None else lines[at][0].place
