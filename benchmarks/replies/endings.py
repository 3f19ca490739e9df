"""How surely the end of a reply is judged: missed announcements and false nudges, by language and by set.

Nothing was learnt from the sets in `fixtures/endings`: `held_out` was at hand while the examples were written, `blind`
and `first_sight` were written by others, without a look at the examples. A doubtful end counts as an answer, as it does
where no utility model is configured. The last row is of single sentences of the examples, each fifth of which was left
out when the rest was learnt: there is no colon to help, the phrasing is new, and the ends are meant to tempt.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

from msgspec import Struct

from app.runs.discipline.endings import SURE, End, end_of
from tests.tasks.train_endings import examples, learn

FOLDER = Path(__file__).parents[2] / "fixtures/endings"
SETS = ("held_out", "blind", "first_sight")
PARTS = 5


class Reply(Struct, frozen=True):
    """The end of a run so far. `worked`: it has used a tool; `announces`: more work is due."""

    lang: str
    request: str
    worked: bool
    announces: bool
    text: str

    @property
    def end(self) -> End:
        return end_of(self.text, self.request, worked=self.worked)


class Rates(Struct, frozen=True):
    """Counts of announcements and of true ends, and of those that were taken for the other."""

    announcements: int
    missed: int
    ends: int
    nudged: int

    @property
    def missed_share(self) -> float:
        return self.missed / self.announcements

    @property
    def nudged_share(self) -> float:
        return self.nudged / self.ends

    def __str__(self) -> str:
        missed = f"{self.missed:3} of {self.announcements:3} ({self.missed_share:6.1%})"
        return f"{missed} {self.nudged:10} of {self.ends:3} ({self.nudged_share:6.1%})"


def replies_of(name: str) -> list[Reply]:
    """Return the replies of one of `SETS`."""
    return [Reply(**json.loads(line)) for line in (FOLDER / f"{name}.jsonl").read_text().splitlines()]


def held_out() -> list[Reply]:
    """Return the replies of all sets."""
    return [reply for name in SETS for reply in replies_of(name)]


def rates(judged: Iterable[tuple[bool, bool]]) -> Rates:
    """Count pairs: it announces work, it was judged to."""
    counts = Counter(judged)
    missed, nudged = counts[True, False], counts[False, True]
    return Rates(counts[True, True] + missed, missed, counts[False, False] + nudged, nudged)


def of_replies(replies: Iterable[Reply]) -> Rates:
    return rates((one.announces, one.end is End.ANNOUNCEMENT) for one in replies)


def left_out() -> Iterator[tuple[bool, bool]]:
    """Judge the written examples, each by what was learnt from the others."""
    found = examples()
    written = [one for one in found if one.counts > 1]
    framed = [one for one in found if one.counts == 1]
    for part in range(PARTS):
        learnt = learn([*(one for at, one in enumerate(written) if at % PARTS != part), *framed])
        yield from ((one.announces, learnt.score(one.places) >= SURE[True]) for one in written[part::PARTS])


def main() -> None:
    replies = held_out()
    print(f"{'replies':22} {'missed':>20} {'nudged falsely':>26}")
    for language in sorted({one.lang for one in replies}):
        print(f"{language:22} {of_replies(one for one in replies if one.lang == language)}")
    for name in SETS:
        print(f"{name:22} {of_replies(replies_of(name))}")
    print(f"{'all':22} {of_replies(replies)}")
    doubtful = Counter(one.announces for one in replies if one.end is End.DOUBTFUL)
    print(f"doubtful, for a utility model: {doubtful[True]} announcements, {doubtful[False]} ends")
    print(f"{'sentences left out':22} {rates(left_out())}")


if __name__ == "__main__":
    main()
