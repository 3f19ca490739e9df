"""The rows of PostgreSQL, read with a cursor and written with COPY, neither of which holds a table in memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress

import asyncpg

from app.storage.changes import StoreFailed
from app.storage.postgres.connections import CONNECT_S, SETTINGS, Connection
from app.storage.postgres.database import place_of
from app.storage.postgres.failures import FAILURES, failure
from app.storage.postgres.statements import message_values
from app.storage.postgres.words import indexed
from app.storage.postgres.write_function import call_of, clean
from app.storage.runs import EventRow
from app.storage.sessions import MessageRow
from app.storage.transfer.tables import EVENTS, MESSAGES, Conversion, Table, Values

AT_ONCE = 256  # rows of a cursor
CHUNK = 65_536  # bytes
LOCK_S = 10
ALIVE = "SELECT count(*) FROM replicas WHERE state <> 'gone' AND lease_until > clock_timestamp()"
# A server that starts meanwhile waits before its first row.
LOCK_REPLICAS = f"SET LOCAL lock_timeout = '{LOCK_S}s'; LOCK TABLE replicas IN EXCLUSIVE MODE"
TRIGGERS = "SELECT DISTINCT tgrelid::regclass::text FROM pg_trigger WHERE NOT tgisinternal"
IDENTITIES = "SELECT attrelid::regclass::text, attname FROM pg_attribute WHERE attidentity <> '' AND attnum > 0"
NEXT = "SELECT setval(pg_get_serial_sequence('{table}', '{column}'), max({column})) FROM {table} HAVING count(*) > 0"
Derive = Callable[[Mapping[str, object]], Sequence[object]]


def _of_event(row: Mapping[str, object]) -> Sequence[object]:
    with suppress(ValueError, LookupError, TypeError):  # no event of a call
        call = call_of(EventRow("", 0, str(row["type"]), str(row["data"])))
        return [call and clean(call)]
    return [None]


def _of_message(row: Mapping[str, object]) -> Sequence[object]:
    message = MessageRow(str(row["session"]), 0, str(row["run"]), str(row["message"]))
    role, at, untrusted, searched, words = message_values(message)[4:]
    return [clean(str(role)), at, untrusted, clean(str(searched)), words]


# Table -> its columns that are made of the others, and how.
DERIVED: dict[str, tuple[tuple[str, ...], Derive]] = {
    EVENTS: (("call",), _of_event),
    MESSAGES: (("role", "at", "untrusted", "searched", "words"), _of_message),
    "memories": (("searched",), lambda row: [indexed(str(row["words"]))]),
}


class PostgresSide:
    """One transaction, of whoever asks for it, while no server uses the database."""

    def __init__(self, connection: Connection, place: str) -> None:
        self.connection = connection
        self.place = place

    async def rows(self, table: Table, replaced: Counter[str]) -> AsyncGenerator[list[Values], None]:
        """Yield all rows, some at a time."""
        convert = Conversion(table, replaced)
        cursor = await self.connection.cursor(table.read_postgres())
        while records := await cursor.fetch(AT_ONCE):
            yield [convert(tuple(record)) for record in records]

    async def write(self, table: Table, rows: Iterable[Values]) -> None:
        own, derive = DERIVED.get(table.name, ((), None))
        await self.connection.copy_to_table(
            table.name, source=_lines(table, rows, derive), columns=[*table.columns, *own], format="text"
        )

    async def refuse_rows(self, tables: Iterable[Table]) -> None:
        """Raise StoreFailed unless the tables are empty."""
        used = [
            one.name for one in tables if await self.connection.fetchval(f"SELECT EXISTS (SELECT 1 FROM {one.name})")
        ]
        if used:
            raise StoreFailed(f"{self.place} has rows already, in: {', '.join(used)}. Name an empty database.")

    async def number_on(self) -> None:
        """Let what comes be numbered behind what was copied."""
        for table, column in await self.connection.fetch(IDENTITIES):
            await self.connection.execute(NEXT.format(table=table, column=column))

    @asynccontextmanager
    async def without_triggers(self) -> AsyncGenerator[None, None]:
        """Copied rows have been through them."""
        tables = [row[0] for row in await self.connection.fetch(TRIGGERS)]
        for table in tables:
            await self.connection.execute(f"ALTER TABLE {table} DISABLE TRIGGER USER")
        yield
        for table in tables:
            await self.connection.execute(f"ALTER TABLE {table} ENABLE TRIGGER USER")


@asynccontextmanager
async def postgres_side(url: str) -> AsyncGenerator[PostgresSide, None]:
    """A transaction that is committed if the block ends well. Raises StoreFailed."""
    place = place_of(url)
    try:
        connection = await asyncpg.connect(url, timeout=CONNECT_S, server_settings=SETTINGS)
        try:
            async with connection.transaction(isolation="repeatable_read"):
                await connection.execute(LOCK_REPLICAS)
                if alive := await connection.fetchval(ALIVE):
                    wait = "One that was killed counts until its lease has ended."
                    raise StoreFailed(f"{alive} servers use {place}. Stop them first. {wait}")
                yield PostgresSide(connection, place)
        finally:
            connection.terminate()
    except FAILURES as error:
        raise failure(error, place) from error


async def _lines(table: Table, rows: Iterable[Values], derive: Derive | None) -> AsyncIterator[bytes]:
    """The rows for COPY, some at a time."""
    lines, size = list[str](), 0
    for row in rows:
        own = derive(dict(zip(table.columns, row, strict=True))) if derive else ()
        lines.append("\t".join(map(copied, (*row, *own))))
        size += len(lines[-1])
        if size >= CHUNK:
            yield ("\n".join(lines) + "\n").encode()
            lines, size = [], 0
    if lines:
        yield ("\n".join(lines) + "\n").encode()


def copied(value: object) -> str:
    """A value as COPY reads it."""
    if value is None:
        return "\\N"
    if isinstance(value, str):
        return value.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r").replace("\t", "\\t")
    if isinstance(value, bytes):
        return "\\\\x" + value.hex()
    return str(value)
