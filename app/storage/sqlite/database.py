"""One SQLite file, through aiosqlite: opening, reading and writing it."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from itertools import groupby
from pathlib import Path
from typing import Any, Self

from app.storage.changes import Change, StoreFailed
from app.storage.data_dir import make_private, make_private_file
from app.storage.runs import EventRow
from app.storage.sql.columns import Row, Select, insert
from app.storage.sql.rows import Query, Rows
from app.storage.sql.writes import WRITES
from app.storage.sqlite.connections import (
    COPY_LOG,
    LoopConnection,
    Statement,
    ThreadConnection,
    begin_log_anew,
    copy_log,
    read,
    truncate_log,
)
from app.storage.sqlite.open_files import OpenFiles
from app.storage.sqlite.schema import SCHEMA
from tools.base.tasks import wait_at_most

INSERT_EVENT = insert("events", EventRow)
# WAL with synchronous=NORMAL survives a kill of the process (not a power cut) at 5 us an event instead of 220.
# The kernel caches the file as well: of the 2 MB that each connection would hold, 128 KB cost no more time.
PRAGMAS = ("journal_mode = WAL", "synchronous = NORMAL", "busy_timeout = 5000", "cache_size = -128")
ADVICE = {  # part of an error -> what to do about it
    "not a database": "Move that file away, or set DRAGOMAN_DATA_DIR to another folder.",
    "disk is full": "Make room on the disk.",
    "locked": "Another process holds it: stop that one, or give this one another DRAGOMAN_DATA_DIR.",
    "readonly": "Make the file and its folder writable, or set DRAGOMAN_DATA_DIR to another folder.",
}
FAILURES = (sqlite3.Error, OSError, ValueError, OverflowError)  # the last: of a number beyond 64 bits
NOT_WRITTEN = (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR)
SMALL = 32_768  # characters and bytes of a commit that the event loop makes itself, in less than a millisecond
SIZED = frozenset({str, bytes})  # types of values with a size; isinstance takes several times longer
MOST_PAGES = 32_768  # of 4 KB, in the write-ahead log before a commit has to copy it, for which others wait
LONG_LOG = MOST_PAGES // 2  # pages in the write-ahead log, from which on it is begun anew; fewer of a small database
SHORT_LOG = 1024  # pages with which it may always stay
PAGE = 4096  # bytes
GENERAL_ADVICE = "Check the file, its folder and the disk, or set DRAGOMAN_DATA_DIR to another folder."
GONE = """\
{path} was deleted or replaced while the server runs: nothing that it writes now would last. \
Put the folder {folder} back as it was, or restart the server, which begins with what is there."""

logger = logging.getLogger(__name__)


class Database(Rows):
    """The base of each aggregate's half: connections of their own for readers, who must not see uncommitted changes.

    Every method raises StoreFailed.
    """

    _loop_connection: LoopConnection | None = None
    _visitor = False  # beside a server, whose store it may be

    def __init__(self, path: Path) -> None:
        self._path = path
        self._writer = ThreadConnection(path)
        self._reader = ThreadConnection(path)
        self._one_writer = asyncio.Lock()
        self._closing = asyncio.Event()
        self._files = OpenFiles(path)
        self._is_gone = False  # one of the files

    @classmethod
    async def open(cls, path: Path, *, visitor: bool = False) -> Self:
        """Open or create the database. Raises StoreFailed when the file is not a database or cannot be written.

        One process at a time may open it otherwise than as a visitor.
        """
        try:
            make_private(path.parent)
            make_private_file(path)
        except OSError as error:
            advice = "Set DRAGOMAN_DATA_DIR to a writable folder of your own."
            raise StoreFailed(f"The data_dir {path.parent} cannot be used: {error.strerror}. {advice}") from error
        store = cls(path)
        store._visitor = visitor
        try:
            async with store._named_failures():
                await store._connect()
        except StoreFailed:
            await store.close()
            raise
        return store

    async def _connect(self) -> None:
        await self._writer
        await self._reader
        for connection in (self._writer, self._reader):
            for pragma in PRAGMAS:
                await connection.execute(f"PRAGMA {pragma}")
        await self._writer.execute(f"PRAGMA wal_autocheckpoint = {MOST_PAGES}")
        [(version,)] = await self._writer.execute_fetchall("PRAGMA user_version")
        if version > len(SCHEMA):
            raise StoreFailed(
                f"The database {self._path} was made by a newer dragoman (schema {version}). Upgrade this one."
            )
        for number, script in enumerate(SCHEMA[version:], start=version + 1):
            await self._writer.executescript(f"BEGIN; {script} PRAGMA user_version = {number}; COMMIT;")
        if not self._visitor:
            self._loop_connection = LoopConnection(self._path, PRAGMAS)
        self._files.remember()

    def _check_files(self, *, at_once: bool = False) -> None:
        """Raises StoreFailed if what would be written now is lost, because the files have been deleted."""
        gone = self._files.gone(at_once=at_once)
        if gone is None:
            self._is_gone = False
            return
        message = GONE.format(path=gone, folder=self._path.parent)
        if not self._is_gone:
            self._is_gone = True
            logger.error("%s", message)
            if self._loop_connection:  # it has the log open, and the database itself may still be there
                with suppress(sqlite3.Error):
                    self._loop_connection.read((COPY_LOG, ()))
        raise StoreFailed(message)

    async def _copy_log(self) -> None:
        """Copy the write-ahead log into the database while others write.

        They wait only when it is begun anew: when it has become long, or as well may be, since there is nothing new.
        """
        self._check_files()  # another connection would open another log
        async with self._named_failures():
            pages, copied = await asyncio.to_thread(copy_log, self._path)
            if copied == pages or pages > self._most_log_pages():
                async with self._one_writer:
                    await self._writer.call(begin_log_anew)

    async def _shorten_log(self) -> None:
        """Give the disk back what a long write-ahead log holds, unless it is read or written just now."""
        if self._files.log_bytes <= self._most_log_pages() * PAGE:
            return
        self._check_files()
        async with self._named_failures():
            pages, copied = await asyncio.to_thread(copy_log, self._path)
            if copied == pages:
                async with self._one_writer:  # the disk is not waited for any more
                    await asyncio.to_thread(truncate_log, self._path)

    def _most_log_pages(self) -> int:
        """The pages of a log that is not long beside its database."""
        return max(SHORT_LOG, min(LONG_LOG, self._files.bytes // PAGE // 4))

    async def _pause(self, time_s: float) -> None:
        """Wait, but not while the store is being closed."""
        await wait_at_most(time_s, self._closing)

    async def close(self) -> None:
        await self._reader.close()
        await self._writer.close()
        if self._loop_connection:
            self._loop_connection.close()

    def _statements(self, changes: Sequence[Change]) -> list[Statement]:
        """One statement for each group of neighbours of the same kind.

        They are complete: the writer's thread shall not need the interpreter for them.
        """
        groups = ((INSERT_EVENT if kind is EventRow else WRITES[kind], rows) for kind, rows in groupby(changes, type))
        return [(write.sql, list(map(write.values, rows))) for write, rows in groups]

    async def _catch_up(self) -> None:
        """Apply the changes that wait to their tables, which are about to be read."""
        raise NotImplementedError

    async def _catch_up_now(self) -> None:
        """The same for the caller that holds `_one_writer`."""
        raise NotImplementedError

    def _commit_at_once(self, statements: Sequence[Statement]) -> bool:
        """Commit on the event loop's thread, if there is little to write. No other writer may be at work."""
        if self._loop_connection is None or size_of(statements) > SMALL:
            return False
        try:
            self._loop_connection.transact(statements)
        except sqlite3.Error as error:
            if is_busy(error):  # by another process: the thread may wait for that
                return False
            raise
        return True

    async def _each(self, *queries: Query) -> list[list[Any]]:
        """The rows of each query, from one snapshot."""
        await self._catch_up()
        async with self._named_failures():
            return await self._reader.call(read, queries)

    async def _lookup(self, query: Select[Row], *values: object) -> Row | None:
        """The row of a key, or of a small table, read on the event loop's thread: as fast as asking."""
        try:
            if self._loop_connection:
                rows = self._loop_connection.read((query.sql, values))
                return query.row(*rows[0]) if rows else None
        except FAILURES as error:
            if not is_busy(error):
                raise self._failure(error) from error
        return await self._row(query, *values)

    async def _lookup_changed(self, query: Select[Row], *values: object) -> Row | None:
        """The same of a table whose changes may wait."""
        try:
            await self._catch_up()
        except StoreFailed as failure:
            if is_full(failure):
                return await self._row(query, *values)
            raise
        return await self._lookup(query, *values)

    async def _change_all(self, queries: Sequence[Query], also: Sequence[Change] = ()) -> bool:
        async with self._transaction():
            for place, (sql, values) in enumerate(queries):
                changed = await self._writer.execute(sql, values)
                if place == 0 and not changed.rowcount:
                    return False
            for statement, rows in self._statements(also):
                await self._writer.executemany(statement, rows)
        return True

    @asynccontextmanager
    async def _transaction(self) -> AsyncIterator[None]:
        self._check_files()
        async with self._one_writer, self._named_failures():
            await self._catch_up_now()
            try:
                yield
                await self._writer.commit()
            except BaseException:  # a cancelled statement may still wait for its thread: this comes behind it
                await self._writer.rollback()
                raise

    @asynccontextmanager
    async def _named_failures(self) -> AsyncIterator[None]:
        try:
            yield
        except FAILURES as error:
            raise self._failure(error) from error

    def _failure(self, error: Exception) -> StoreFailed:
        advice = next((text for sign, text in ADVICE.items() if sign in str(error)), GENERAL_ADVICE)
        return StoreFailed(f"The database {self._path} failed: {error}. {advice}")


def is_busy(error: Exception) -> bool:
    return isinstance(error, sqlite3.OperationalError) and error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY


def is_full(failure: StoreFailed) -> bool:
    """Return True if the disk took nothing."""
    error = failure.__cause__
    return isinstance(error, sqlite3.OperationalError) and error.sqlite_errorcode & 0xFF in NOT_WRITTEN


def size_of(statements: Sequence[Statement]) -> int:
    """Return how many characters and bytes the statements write."""
    values = [value for _, rows in statements for row in rows for value in row if type(value) in SIZED]
    return sum(map(len, values))
