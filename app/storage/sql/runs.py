"""Runs, inboxes, idempotency keys and helpers; each database keeps events in its own way."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

from app.storage.changes import Change
from app.storage.runs import (
    KEY_LIFE_S,
    OF_APP,
    HelperRow,
    InboxRow,
    InboxTaken,
    KeyRow,
    RecordingRow,
    RunBegan,
    RunCounts,
    RunEnded,
    RunRow,
)
from app.storage.sql.branches import SqlBranches
from app.storage.sql.columns import Select, Write, delete, insert, insert_once, names, select, update, write

# A key of a request is its first run's for a day, even if two servers should both find it new; other names of a run
# have no `body`, and are the last one's.
KEEP_FIRST_KEY = f"""
    ON CONFLICT (principal, key) DO UPDATE SET body = excluded.body, run = excluded.run, created = excluded.created
    WHERE idempotency.body = '' OR idempotency.created < excluded.created - {KEY_LIFE_S}
""".strip()
WRITES: dict[type[Change], Write] = {
    RunRow: insert("runs", RunRow),
    RunBegan: write("UPDATE runs SET state = 'running' WHERE id = ?", "id"),
    RunEnded: update("runs", RunEnded, "id"),
    InboxRow: insert("inbox", InboxRow),
    InboxTaken: delete("inbox", InboxTaken),
    KeyRow: insert("idempotency", KeyRow, KEEP_FIRST_KEY),
    HelperRow: insert("helpers", HelperRow),
    RecordingRow: insert_once("recordings", RecordingRow, "run", "at"),
}

# Runs of the same time are in the order in which they were inserted.
OTHER_RUN = "(SELECT created, rowid FROM runs WHERE id = ?)"
RUN = select(RunRow, "runs", "WHERE id = ?")
# A session may have the runs of others until a time, each of them older than its own.
RUNS = select(RunRow, "runs", "WHERE session = ? AND created <= ? ORDER BY created, rowid")
ACTIVE = select(RunRow, "runs", "WHERE session = ? AND ended IS NULL ORDER BY created, rowid")
ACTIVE_OF = select(RunRow, "runs", "WHERE principal = ? AND ended IS NULL ORDER BY created, rowid")
FIRST_RUN = select(RunRow, "runs", "WHERE session = ? AND created <= ? ORDER BY created, rowid LIMIT 1")
NEXT_RUN = select(
    RunRow,
    "runs",
    f"WHERE session = ? AND created <= ? AND (created, rowid) > {OTHER_RUN} ORDER BY created, rowid LIMIT 1",
)
FIRST_RUNS = select(
    RunRow,
    "runs",
    """
    WHERE session IN (SELECT value FROM json_each(?)) AND (created, rowid) =
    (SELECT own.created, own.rowid FROM runs AS own WHERE own.session = runs.session
    ORDER BY own.created, own.rowid LIMIT 1)
    """,
)
LAST_RUNS = select(RunRow, "runs", "WHERE session = ? AND created <= ? ORDER BY created DESC, rowid DESC LIMIT ?")
RUNS_BEFORE = select(
    RunRow,
    "runs",
    f"WHERE session = ? AND created <= ? AND (created, rowid) < {OTHER_RUN} ORDER BY created DESC, rowid DESC LIMIT ?",
)
OF_APP_DONE = f"state = 'answered' AND policy LIKE '{OF_APP}%'"
NEWEST = """
    (created, rowid) = (SELECT own.created, own.rowid FROM runs AS own WHERE own.session = runs.session
    ORDER BY own.created DESC, own.rowid DESC LIMIT 1)
"""
LAST_TURNS, TURNS_BEFORE = (
    select(
        RunRow,
        "runs",
        f"WHERE session = ? AND created <= ? AND {which} ORDER BY created DESC, rowid DESC LIMIT ?",
    )
    for which in (f"(NOT ({OF_APP_DONE}) OR {NEWEST})", f"NOT ({OF_APP_DONE}) AND (created, rowid) < {OTHER_RUN}")
)
ENDED = select(RunRow, "runs", "WHERE ended > ? ORDER BY ended")
UNFINISHED = select(RunRow, "runs", "WHERE state IN ('queued', 'running') ORDER BY created")
PARTS = select(RecordingRow, "recordings", "WHERE run = ? ORDER BY at")
RUN_COUNTS = Select(
    """
    SELECT COUNT(*), (
        SELECT data FROM recordings JOIN runs AS recorded ON recorded.id = recordings.run WHERE kind = 'begin'
        ORDER BY recorded.created DESC LIMIT 1
    ) FROM runs WHERE ended IS NOT NULL
    """,
    RunCounts,
)
INBOX = select(InboxRow, "inbox", "WHERE run = ? ORDER BY position")
KEY = select(KeyRow, "idempotency", "WHERE principal = ? AND key = ?")

KEYS = select(KeyRow, "idempotency", "WHERE principal = ? AND key IN (SELECT value FROM json_each(?))")

MOST_LEVELS = 8  # more than settings allow
HELPER = select(HelperRow, "helpers", "WHERE session = ?")
HELPERS = select(HelperRow, "helpers", "WHERE parent_session = ? ORDER BY created, session")
# By the session of a run, so that a later run in a helper's session is found as well.
LINEAGE = Select(
    f"""
    WITH RECURSIVE above (session, level) AS (
        SELECT session, 0 FROM runs WHERE id = ?
        UNION SELECT helpers.parent_session, level + 1 FROM helpers JOIN above USING (session)
        WHERE level < {MOST_LEVELS}
    )
    SELECT {names(HelperRow, "helpers")} FROM helpers JOIN above USING (session) ORDER BY level DESC
    """,
    HelperRow,
)
TAINTED = """
    SELECT 1 FROM messages WHERE session = ? AND UNTRUSTED
    UNION ALL SELECT 1 FROM inbox JOIN runs ON runs.id = inbox.run WHERE runs.session = ? AND untrusted LIMIT 1
"""


class SqlRuns(SqlBranches):
    _untrusted: str  # a condition: a message is

    async def run(self, run: str) -> RunRow | None:
        return await self._lookup_changed(RUN, run)

    async def runs(self, session: str) -> list[RunRow]:
        return [row for part in await self.parts(session) for row in await self._rows(RUNS, *part)]

    async def active_runs(self, session: str) -> list[RunRow]:
        return await self._rows(ACTIVE, session)

    async def active_runs_of(self, principal: str) -> list[RunRow]:
        return await self._rows(ACTIVE_OF, principal)

    async def next_run(self, session: str, after: str | None) -> RunRow | None:
        for part in await self.parts(session):
            rows = await (self._rows(NEXT_RUN, *part, after) if after else self._rows(FIRST_RUN, *part))
            if rows:
                return rows[0]
        return None

    async def first_runs(self, sessions: Sequence[str]) -> list[RunRow]:
        return await self._rows(FIRST_RUNS, json.dumps(list(sessions)))

    async def last_runs(self, session: str, before: str | None, limit: int, *, apps: bool = True) -> list[RunRow]:
        found: list[RunRow] = []
        last, earlier = (LAST_RUNS, RUNS_BEFORE) if apps else (LAST_TURNS, TURNS_BEFORE)
        for part in reversed(await self.parts(session)):
            left = limit - len(found)
            if before is None:
                found += await self._rows(last, *part, left)
            else:
                found += await self._rows(earlier, *part, before, left)
            if len(found) >= limit:
                break
        return found

    async def ended_runs(self, since: float) -> list[RunRow]:
        return await self._rows(ENDED, since)

    async def unfinished_runs(self) -> list[RunRow]:
        return await self._rows(UNFINISHED)

    async def handed_calls(self, run: str) -> set[str]:
        return await self._calls_of(run, "tool.handed")

    async def started_calls(self, run: str) -> set[str]:
        return await self._calls_of(run, "tool.started")

    async def bulky_runs(self, ended_before: float, limit: int) -> list[str]:
        query = "SELECT id FROM runs WHERE joined = 0 AND ended < ? ORDER BY ended LIMIT ?"
        return [row[0] for row in await self._all(query, ended_before, limit)]

    async def recording(self, run: str) -> list[RecordingRow]:
        return await self._rows(PARTS, run)

    async def inbox(self, run: str) -> list[InboxRow]:
        return await self._rows(INBOX, run)

    async def key(self, principal: str, key: str) -> KeyRow | None:
        return await self._row(KEY, principal, key)

    async def keys(self, principal: str, keys: Iterable[str]) -> list[KeyRow]:
        return await self._rows(KEYS, principal, json.dumps(list(keys)))

    async def helper(self, session: str) -> HelperRow | None:
        return await self._row(HELPER, session)

    async def helpers(self, parent_session: str) -> list[HelperRow]:
        return await self._rows(HELPERS, parent_session)

    async def lineage(self, run: str) -> list[HelperRow]:
        return await self._rows(LINEAGE, run)

    async def tainted(self, session: str) -> bool:
        return bool(await self._all(TAINTED.replace("UNTRUSTED", self._untrusted), session, session))

    async def _calls_of(self, run: str, kind: str) -> set[str]:
        raise NotImplementedError
