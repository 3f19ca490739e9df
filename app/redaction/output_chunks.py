"""Parts of an output, redacted also where two parts meet.

A margin is read around each part, so that no state is kept between two requests.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence

from msgspec import Struct

from app.redaction.escape_sequences import margin_of, spans_of_secrets
from app.redaction.redactor import Redactor
from tools.base.output_buffer import OutputSlice

PIECE = 65_536  # characters of an output in one part, at most

Read = Callable[[int, int], Awaitable[OutputSlice]]
"""Read from a position, at most so much. Positions are those of the source: characters, or bytes."""


class OutputPart(Struct, frozen=True):
    """`text` begins at `start`, which is later than requested if that part was dropped; `next` is the next position.

    `characters` is where the output ends so far. `done`: the output ends at `next`. `missing`: lines that were dropped.
    """

    text: str
    start: int
    next: int
    characters: int
    lines: int
    done: bool
    missing: int = 0


class Source(Struct, frozen=True):
    """An output that grows until it has `ended`.

    `size` gives the number of positions of a text, `widest` that of the widest character.
    """

    read: Read
    redactors: Sequence[Redactor]
    ended: bool
    size: Callable[[str], int] = len
    widest: int = 1
    piece: int = PIECE

    async def part(self, after: int, lines: int) -> OutputPart:
        """The part that follows `after`. Raises the errors of `read`."""
        margin = max(map(margin_of, self.redactors), default=0)
        here = await self.read(after, self.piece + margin * self.widest)
        start, text = here.start, here.text
        before, missing = "", here.missing
        if start > after:  # in the middle of a line, which may begin with the end of a secret
            skipped = (text.find("\n", 0, margin) + 1) or min(margin, len(text))
            missing += text.count("\n", 0, skipped)
            start, text = start + self.size(text[:skipped]), text[skipped:]
        elif start:
            before = await self._before(start, margin * self.widest)
        most = max(0, min(self.piece, len(text) - margin if here.more else len(text)))
        body, ahead = text[:most], text[most:]
        at_end = here.start + self.size(here.text) > here.total - self.widest  # a character may be incomplete
        goes_on = here.more or (at_end and not self.ended)
        shown, count = redacted_part(self.redactors, before, body, ahead, goes_on=goes_on)
        behind = start + self.size(body[:count])
        return OutputPart(
            text=shown,
            start=start,
            next=behind,
            characters=here.total,
            lines=lines,
            done=self.ended and behind >= here.total,
            missing=missing,
        )

    async def _before(self, start: int, size: int) -> str:
        first = max(0, start - size)
        earlier = await self.read(first, start - first)
        return earlier.text if earlier.start + self.size(earlier.text) == start else ""


def redacted_output(redactors: Sequence[Redactor], text: str) -> str:
    """Return a whole output without secrets, those included that a colour parts."""
    return redacted_part(redactors, "", text, "", goes_on=False)[0]


def redacted_part(
    redactors: Sequence[Redactor], before: str, text: str, ahead: str, *, goes_on: bool
) -> tuple[str, int]:
    """`text` without secrets, and how many of its characters were used.

    If the text `goes_on`, what may be the beginning of a secret is withheld. A secret that begins in `before` has had
    its mark there.
    """
    whole = before + text + ahead
    begin, end = len(before), len(before) + len(text)
    marks: list[tuple[int, int, str]] = []
    for redactor in redactors:
        found, tail = spans_of_secrets(redactor, whole, goes_on=goes_on)
        marks += [(*span, redactor.mark) for span in found]
        if goes_on:
            end = min(end, max(begin, tail))
    return "".join(_shown(whole, sorted(marks), begin, end)), end - begin


def _shown(whole: str, marks: Sequence[tuple[int, int, str]], begin: int, end: int) -> Iterator[str]:
    at = begin
    covered = 0
    for first, behind, mark in marks:
        if first >= end:
            break
        if first >= begin and first >= covered:  # else it overlaps another mark's secret
            yield whole[at:first]
            yield mark
        covered = max(covered, behind)
        at = max(at, covered)
    if at < end:
        yield whole[at:end]
