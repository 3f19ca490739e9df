"""The newest events of each run, which have no rows of their own yet, and how the older ones are packed.

An event is durable as a line of `event_batches`: one row holds all events of a transaction, whatever runs they belong
to, because a row for each token costs more than all the rest of its way. Here the same events stay in memory. Once a
run has MOST_EVENTS of them they are settled: they become rows of `events`, neighbours packed into one row; those of
runs that have ended are settled some runs at a time. The table has the beginning of a run's log, and this has its end;
after a crash the lines are read back.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby, islice

from msgspec import Struct

from app.core.events import TERMINAL
from app.storage.runs import LOOKED_FOR, EventRow

MOST_EVENTS = 32  # of a run
MOST_CHARACTERS = 32_768  # of the data that a transaction adds to a run: more is not kept
MOST_OF_ENDED = 8_192  # characters of the data of a run that has ended: more is not kept
PACKED = "packed"  # the type of a row that holds several events; its number is that of the last one


class EventChanges(Struct, frozen=True):
    """The rows that a transaction adds: a `batch`, and rows of `events` for the runs that are `settled`."""

    number: int  # of the batch
    batch: str
    rows: list[EventRow]
    settled: frozenset[str]
    kept: Mapping[str, list[EventRow]]  # by run, those that are new in the batch


class RecentEvents:
    """Plan the rows of a transaction, and `apply` the plan once that is committed."""

    def __init__(self) -> None:
        self._of: dict[str, list[EventRow]] = {}
        self._newest = 0  # number of a batch
        self.ended: set[str] = set()  # runs that are to be settled
        self.aged: set[str] = set()  # runs that have recent events of the aged batches
        self.aged_batch = 0  # the newest of these

    def of(self, run: str) -> Sequence[EventRow]:
        """Return the events of a run that have no rows, in order. The list may grow, and loses none."""
        return self._of.get(run, ())

    def plan(self, new: Sequence[EventRow]) -> EventChanges:
        """Return the changes for new events, which follow those of their runs."""
        are_small = size_of(new) <= MOST_CHARACTERS  # as a rule, all of them together
        by_run: dict[str, list[EventRow]] = {}
        for row in new:
            by_run.setdefault(row.run, []).append(row)
        kept, settled, rows, lines = dict[str, list[EventRow]](), list[str](), list[EventRow](), list[str]()
        for run, added in by_run.items():
            if self._is_full(run, added, are_small=are_small):
                settled.append(run)
                rows += packed([*self.of(run), *added])
            else:
                kept[run] = added
                lines += map(line_of, added)
        return EventChanges(self._newest + 1, "\n".join(lines), rows, frozenset(settled), kept)

    def plan_all(self) -> EventChanges:
        """Return the changes that leave no event without a row: the batches can be deleted with them."""
        return self.plan_settled(self._of)

    def age(self) -> None:
        """Take all batches for aged: once no run is aged, they can be deleted."""
        self.aged_batch, self.aged = self._newest, set(self._of)

    def plan_settled(self, runs: Iterable[str]) -> EventChanges:
        """Return the changes that settle these runs."""
        settled = frozenset(runs)
        rows = [row for run in settled for row in packed(self.of(run))]
        return EventChanges(self._newest + 1, "", rows, settled, {})

    def apply(self, changes: EventChanges) -> None:
        self._newest = changes.number
        for run in changes.settled:
            self._of.pop(run, None)  # the list itself stays as it is: a reader may have it
        self.aged -= changes.settled
        self.ended -= changes.settled
        for run, rows in changes.kept.items():
            self._of.setdefault(run, []).extend(rows)
            if rows[-1].type in TERMINAL:
                self.ended.add(run)

    def load(self, batches: Mapping[int, str], settled: Mapping[str, int]) -> None:
        """Take up the events of batches by number; `settled` has the last number of each run that has a row."""
        self._newest = max(batches, default=0)
        for batch in batches.values():
            for row in map(row_of, lines_of(batch)):
                if row.seq > settled.get(row.run, 0):
                    self._of.setdefault(row.run, []).append(row)

    def _is_full(self, run: str, new: Sequence[EventRow], *, are_small: bool) -> bool:
        kept = self._of.get(run, ())
        if len(kept) + len(new) >= MOST_EVENTS or not (are_small or size_of(new) <= MOST_CHARACTERS):
            return True
        return new[-1].type in TERMINAL and size_of(kept) + size_of(new) > MOST_OF_ENDED


def size_of(rows: Iterable[EventRow]) -> int:
    return sum([len(row.data) for row in rows])


def lines_of(batch: str) -> list[str]:
    """Return the events of a batch, which may have none, but other changes."""
    return batch.split("\n") if batch else []


def line_of(row: EventRow) -> str:
    """Return an event in one line: its data is JSON, which has neither tabs nor line ends."""
    return f"{row.run}\t{row.seq}\t{row.type}\t{row.data}"


def row_of(line: str) -> EventRow:
    run, seq, kind, data = line.split("\t", 3)
    return EventRow(run, int(seq), kind, data)


def packed(events: Iterable[EventRow]) -> Iterator[EventRow]:
    """Yield the rows that events of one run are stored in.

    A row has MOST_EVENTS at most, however many come at once: each page of a log reads the rows that it begins and ends
    in whole.
    """
    for alone, group in groupby(events, lambda row: row.type in LOOKED_FOR or row.parts is not None):
        if alone:
            yield from group
        while rows := list(islice(group, MOST_EVENTS)):
            if len(rows) == 1:
                yield from rows
            else:
                yield EventRow(rows[0].run, rows[-1].seq, PACKED, "\n".join(map(line_of, rows)))


def unpacked(rows: Iterable[EventRow], after: int) -> Iterator[EventRow]:
    """Yield the events behind `after` that stored rows hold."""
    for row in rows:
        if row.type != PACKED:
            yield row
        else:
            yield from (event for event in map(row_of, row.data.split("\n")) if event.seq > after)


def runs_in(batches: Iterable[str]) -> set[str]:
    return {line.partition("\t")[0] for batch in batches for line in lines_of(batch)}


def behind(seq: int, recent: Sequence[EventRow]) -> list[EventRow]:
    return [row for row in recent if row.seq > seq]
