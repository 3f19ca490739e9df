"""The events of runs in PostgreSQL: a row each, whose key is the number of the run."""

from __future__ import annotations

from collections.abc import Sequence

from app.storage.postgres.database import PostgresDatabase
from app.storage.runs import EventRow
from app.storage.sql.columns import Select
from app.storage.sql.runs import SqlRuns

COLUMNS = "runs.id, events.seq, events.type, events.data, events.parts"
OF_RUN = "FROM events JOIN runs ON runs.number = events.run WHERE runs.id = ?"
EVENTS = Select(f"SELECT {COLUMNS} {OF_RUN} AND events.seq > ?::bigint ORDER BY events.seq LIMIT ?", EventRow)
LAST_SEQ = "SELECT MAX(seq) FROM events WHERE run = (SELECT number FROM runs WHERE id = ?)"
CALLS_OF = f"SELECT events.call {OF_RUN} AND events.type = ? AND events.call IS NOT NULL"
CALL_EVENTS = Select(
    f"SELECT {COLUMNS} {OF_RUN} AND events.call = ? AND events.type LIKE 'tool.%' ORDER BY events.seq", EventRow
)
LAST_EVENTS_OF = Select(
    f"""
    SELECT {COLUMNS} FROM events JOIN runs ON runs.number = events.run
    WHERE runs.session = ? AND runs.created <= ? AND events.type = ? AND events.call IS NOT NULL
    ORDER BY runs.created DESC, runs.number DESC, events.seq DESC LIMIT ?
    """,
    EventRow,
)
JOIN = "UPDATE runs SET joined = 1 WHERE id = $1"
FORGET = "DELETE FROM events WHERE run = (SELECT number FROM runs WHERE id = $1)"


class PostgresRuns(PostgresDatabase, SqlRuns):
    _message_columns = "position, run, message, role, at, untrusted, searched, words"
    _row_lock = " FOR SHARE"
    _untrusted = "messages.untrusted"

    async def events(self, run: str, after: int, limit: int) -> list[EventRow]:
        return await self._rows(EVENTS, run, after, limit)

    async def last_seq(self, run: str) -> int:
        return (await self._all(LAST_SEQ, run))[0][0] or 0

    async def _calls_of(self, run: str, kind: str) -> set[str]:
        return {call for (call,) in await self._all(CALLS_OF, run, kind)}

    async def events_of(self, session: str, kind: str, limit: int) -> list[EventRow]:
        parts = await self.parts(session)
        found = [row for part in parts for row in (await self._rows(LAST_EVENTS_OF, *part, kind, limit))[::-1]]
        return found[-limit:]

    async def call_events(self, run: str, call: str) -> list[EventRow]:
        return await self._rows(CALL_EVENTS, run, call)

    async def replace_events(self, run: str, rows: Sequence[EventRow]) -> None:
        async with self.transaction() as connection:
            if await connection.execute(JOIN, run) == "UPDATE 0":
                return  # deleted while its log was being joined: nothing of it may be restored
            await connection.execute(FORGET, run)
            await self.write_in(connection, rows)
