"""Changes that are durable and not in their tables yet.

The rows that a request changes lie on thirty pages, tables and indexes together, and a transaction writes each of them
whole. So the changes of a small transaction are written as JSON, in the row of `event_batches` that its events need
anyway, and are applied to their tables later: those of many transactions in one, and before anything is read.

A row of `event_batches` whose `changes` is APPLIED is written together with them: after a crash, what stands behind the
last such row is read back and applied. A visitor, and a reader on a full disk, applies them in a transaction that
is rolled back.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain
from math import isfinite

from msgspec.json import decode, encode
from msgspec.structs import astuple, replace

from app.storage.audit import AuditRow
from app.storage.changes import Change
from app.storage.runs import InboxRow, InboxTaken, KeyRow, RunBegan, RunEnded, RunRow
from app.storage.sessions import MessageRow, SessionRow
from app.storage.usage import ModelUsage, UsageAdded

APPLIED = "applied"
MOST_CHANGES = 64  # that wait; applied by the event loop, in a millisecond
MOST_CHARACTERS = 16_384  # of a transaction's changes, and of all that wait: a long text would be written twice
# The kinds that wait, in the order in which they are applied: name in the database -> kind. All others, and what
# stands with them, are written to their tables at once.
KINDS: dict[str, type[Change]] = {
    "session": SessionRow,
    "run": RunRow,
    "run began": RunBegan,
    "run ended": RunEnded,
    "inbox taken": InboxTaken,
    "inbox": InboxRow,
    "message": MessageRow,
    "key": KeyRow,
    "audit": AuditRow,
    "used": UsageAdded,
    "spent": ModelUsage,
}
_NAMES = {kind: name for name, kind in KINDS.items()}
_ORDER = {kind: place for place, kind in enumerate(_NAMES)}


class PendingChanges:
    """The changes that wait, in the order of their transactions."""

    def __init__(self) -> None:
        self._changes: list[Change] = []
        self._characters = 0

    def __len__(self) -> int:
        return len(self._changes)

    @property
    def full(self) -> bool:
        return len(self._changes) >= MOST_CHANGES or self._characters >= MOST_CHARACTERS

    def add(self, changes: Iterable[Change], text: str) -> None:
        self._changes += changes
        self._characters += len(text)

    def load(self, texts: Iterable[str]) -> None:
        """Take up the changes of rows that were written before a crash."""
        for text in texts:
            if text == APPLIED:
                self.clear()
            else:
                self.add([KINDS[name](*values) for name, *values in decode(text)], text)

    def clear(self) -> None:
        self._changes.clear()
        self._characters = 0

    def merged(self) -> list[Change]:
        """Return fewer changes of the same effect: one for a run that began and ended, none for a message taken."""
        runs, posted = dict[str, RunRow](), dict[str, list[InboxRow]]()
        used, others = dict[tuple[str, str, str], UsageAdded](), list[Change]()
        for change in self._changes:
            match change:
                case RunRow():
                    runs[change.id] = change
                case RunBegan() if change.id in runs:
                    runs[change.id] = replace(runs[change.id], state="running")
                case RunEnded() if change.id in runs:
                    runs[change.id] = replace(runs[change.id], state=change.state, ended=change.ended)
                case InboxRow():
                    posted.setdefault(change.run, []).append(change)
                case InboxTaken():
                    posted.pop(change.run, None)
                    if change.run not in runs:
                        others.append(change)
                case UsageAdded(principal, kind, period, amount):
                    before = used.get((principal, kind, period))
                    used[principal, kind, period] = replace(change, amount=before.amount + amount) if before else change
                case _:
                    others.append(change)
        changes: Iterable[Change] = chain(runs.values(), *posted.values(), used.values(), others)
        return sorted(changes, key=lambda change: _ORDER[type(change)])


def encoded(changes: Sequence[Change]) -> str | None:
    """Return changes as one line of JSON, or None for those that cannot wait.

    Raises ValueError and OverflowError, as the database does, for texts and numbers that no column holds.
    """
    if not {type(change) for change in changes} <= _NAMES.keys():
        return None
    rows = [(_NAMES[type(change)], *astuple(change)) for change in changes]
    text = encode(rows).decode()
    if len(text) > MOST_CHARACTERS:
        return None
    for row in rows:
        for value in row:  # not a function: there are 60 values in a request
            if type(value) is int and value.bit_length() > 63:
                raise OverflowError(f"{value} has more than 64 bits")
            if type(value) is float and not isfinite(value):
                raise ValueError(f"{value} is no number that JSON has")
    return text
