"""One PostgreSQL database, through asyncpg: opening, reading and writing it."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, Self, TypeVar
from urllib.parse import urlsplit

import asyncpg

from app.storage.changes import LOST, Change, LeaseLost
from app.storage.postgres.connections import Connection, Connections, name_of
from app.storage.postgres.failures import CLASHES, FAILURES, failure, is_lost, state_of
from app.storage.postgres.schema import migrate
from app.storage.postgres.statements import WRITE
from app.storage.postgres.translation import translated
from app.storage.postgres.write_function import clean, does_start
from app.storage.sql.rows import Query, Rows

WRITING = "write to PostgreSQL"  # name of the tasks
PATIENCE_S = 10.0  # for a server that is restarted
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.05, 1.0
MOST_CLASHES = 5
MARKS = ("written_pkey", "events_pkey")  # broken by a transaction that was committed before its answer was lost
ONE_AT_A_TIME = "SELECT pg_advisory_xact_lock(hashtextextended($1, 2))"
Answer = TypeVar("Answer")
OnWritten = Callable[[Sequence[Change]], Awaitable[None]]
NOT_HELD = "This server has lost its lease: other servers go on with its runs."
logger = logging.getLogger(__name__)


class PostgresDatabase(Rows):
    """The base of each aggregate's half. Every method raises StoreFailed.

    `fenced_by`: the replica that this server is; once it has lost its lease, every write raises LeaseLost.
    `on_written` is awaited with changes that are durable, before `write` returns.
    """

    statements = WRITE

    def __init__(self, url: str) -> None:
        self.fenced_by: str | None = None
        self.on_written: OnWritten | None = None
        self.place = place_of(url)
        self.connections = Connections(url)
        self.patience_s = PATIENCE_S
        self._writing: set[asyncio.Task[None]] = set()

    @classmethod
    async def open(cls, url: str) -> Self:
        """Open the database, and create or upgrade its tables. Raises StoreFailed."""
        try:
            store = cls(url)
        except FAILURES as error:
            raise failure(error, "of DRAGOMAN_DATABASE_URL") from error
        try:
            async with store.named_failures():
                await store._begin()
        except BaseException:
            await store.close()
            raise
        return store

    async def _begin(self) -> None:
        """Upgrade the schema in short tries, so that servers which use the database are not held up for long."""
        for left in reversed(range(MOST_CLASHES)):
            try:
                async with self.connections.one() as connection:
                    await migrate(connection, self.place, self.statements)
                    if await connection.fetchval("SHOW synchronous_commit") == "off":
                        logger.warning("synchronous_commit is off: a crash of PostgreSQL loses what clients have seen")
                    return
            except asyncpg.PostgresError as error:
                if not left or state_of(error) not in CLASHES:
                    raise

    def belong_to(self, replica: str) -> None:
        """Write as this replica, while it has its lease; what was begun before comes to nothing."""
        self.fenced_by = replica
        self.connections.line.rename(name_of(replica))

    async def write(self, changes: Sequence[Change]) -> None:
        """Write all of the changes in one transaction, or none, even if the caller is cancelled meanwhile."""
        if changes:
            writing = asyncio.create_task(self._write(changes), name=WRITING)
            self._writing.add(writing)
            writing.add_done_callback(self._writing.discard)
            await asyncio.shield(writing)

    async def _write(self, changes: Sequence[Change]) -> None:
        me = self.fenced_by  # as which replica it was meant
        mark = secrets.randbits(63)
        retried = False
        if me == LOST:
            raise LeaseLost(NOT_HELD)

        async def once(connection: Connection) -> None:
            nonlocal retried
            again, retried = retried, True
            try:
                await connection.execute(self.statements.call, *self.statements.arguments(changes, me, mark))
            except asyncpg.UniqueViolationError as error:
                if not (again and error.constraint_name in MARKS):
                    raise

        await self._patiently(once)
        if self.on_written:
            await self.on_written(changes)

    async def _each(self, *queries: Query) -> list[list[Any]]:
        async def read(connection: Connection) -> list[list[Any]]:
            if len(queries) == 1:
                return [await _read(connection, queries[0])]
            async with connection.transaction(isolation="repeatable_read", readonly=True):
                return [await _read(connection, query) for query in queries]

        return await self._patiently(read)

    async def _change(self, sql: str, values: tuple[object, ...], also: Sequence[Change] = ()) -> bool:
        """Execute a statement, one at a time of its kind: it may look at rows that another one is about to write."""
        async with self.transaction(starts=does_start(also)) as connection:
            await connection.execute(ONE_AT_A_TIME, sql)  # before the statement, which sees only what is committed
            done = await connection.execute(translated(sql), *map(_clean, values))
            if changed := not done.endswith(" 0"):
                await self.write_in(connection, also)
        if changed and self.on_written:
            await self.on_written(also)
        return changed

    async def _change_all(self, queries: Sequence[Query], also: Sequence[Change] = ()) -> bool:
        async with self.transaction() as connection:
            for place, (sql, values) in enumerate(queries):
                done = await connection.execute(translated(sql), *map(_clean, values))
                if place == 0 and done.endswith(" 0"):
                    return False
            await self.write_in(connection, also)
        if self.on_written:
            await self.on_written(also)
        return True

    async def write_in(self, connection: Connection, changes: Sequence[Change]) -> None:
        """Write changes in a transaction of the caller's."""
        if changes:
            await connection.execute(self.statements.call, *self.statements.arguments(changes, self.fenced_by, None))

    @asynccontextmanager
    async def transaction(self, *, starts: bool = False) -> AsyncIterator[Connection]:
        """Do several things in one transaction, behind the fence."""
        async with self.named_failures(), self.connections.one() as connection, connection.transaction():
            if self.fenced_by is not None:
                await connection.execute("SELECT fence($1, $2)", self.fenced_by, starts)
            yield connection

    async def _patiently(self, work: Callable[[Connection], Awaitable[Answer]]) -> Answer:
        """Do it again on another connection if this one is lost, while the server may be on its way back."""
        loop = asyncio.get_running_loop()
        until = loop.time() + self.patience_s
        pause_s = FIRST_PAUSE_S
        clashes = 0
        while True:
            try:
                async with self.connections.one() as connection:
                    return await work(connection)
            except FAILURES as error:
                clashes += state_of(error) in CLASHES
                again = is_lost(error) if not clashes else state_of(error) in CLASHES and clashes <= MOST_CLASHES
                if not again or loop.time() + pause_s > until:
                    raise failure(error, self.place) from error
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)

    @asynccontextmanager
    async def named_failures(self) -> AsyncIterator[None]:
        try:
            yield
        except FAILURES as error:
            raise failure(error, self.place) from error

    async def close(self) -> None:
        if self._writing:  # for callers who have left
            await asyncio.wait(self._writing, timeout=self.patience_s)
        await self.connections.close()


async def _read(connection: Connection, query: Query) -> list[Any]:
    sql, values = query
    rows: list[Any] = await connection.fetch(translated(sql), *map(_clean, values))
    return rows


def _clean(value: object) -> object:
    return clean(value) if isinstance(value, str) else value


def place_of(url: str) -> str:
    """Return the address of the database without user and password. Raises ValueError."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.hostname or ''}{f':{parts.port}' if parts.port else ''}{parts.path}"
