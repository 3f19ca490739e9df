"""The store in one SQLite file: an implementation of app.storage.store.Store."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, groupby

from app.storage.changes import Change
from app.storage.runs import EventRow
from app.storage.sqlite import approvals, configuration, principals, runs, sessions
from app.storage.sqlite.approvals import SQLiteApprovals
from app.storage.sqlite.columns import Write
from app.storage.sqlite.configuration import SQLiteConfiguration
from app.storage.sqlite.connections import Statement
from app.storage.sqlite.principals import SQLitePrincipals
from app.storage.sqlite.retention import SQLiteRetention
from app.storage.sqlite.runs import MOST_AT_ONCE, SQLiteRuns, insert_events
from app.storage.sqlite.sessions import SQLiteSessions

WRITES: dict[type[Change], Write] = {
    **runs.WRITES,
    **sessions.WRITES,
    **approvals.WRITES,
    **principals.WRITES,
    **configuration.WRITES,
}


class SQLiteStore(SQLiteRuns, SQLiteSessions, SQLiteApprovals, SQLitePrincipals, SQLiteConfiguration, SQLiteRetention):
    def _statements(self, changes: Sequence[Change]) -> list[Statement]:
        """One statement for each group of neighbours of the same kind."""
        statements: list[Statement] = []
        for kind, rows in groupby(changes, type):
            write = WRITES[kind]
            values = list(map(write.values, rows))
            if kind is not EventRow:
                statements.append((write.sql, values))
                continue
            for at in range(0, len(values), MOST_AT_ONCE):
                some = values[at : at + MOST_AT_ONCE]
                statements.append((insert_events(len(some)), [tuple(chain.from_iterable(some))]))
        return statements
