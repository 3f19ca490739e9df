"""A look at the database file that changes nothing: no folder, no file, no permission, no schema.

A file in WAL mode that is opened read-only still makes a `-shm` beside it, unless it is opened as immutable. That is
right while no server runs and no write-ahead log waits: then there is nothing to be missed.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TypeVar

from msgspec import Struct

from app.storage.changes import StoreFailed
from app.storage.endpoints import EndpointRow
from app.storage.mcp import McpServerRow
from app.storage.people.secrets import SecretRow
from app.storage.runs import RunCounts
from app.storage.sql.columns import Select
from app.storage.sql.configuration import ENDPOINTS, MCP_SERVERS, SECRETS
from app.storage.sql.principals import TOKEN_COUNTS
from app.storage.sql.runs import RUN_COUNTS
from app.storage.sqlite.database import ADVICE, FAILURES, GENERAL_ADVICE
from app.storage.sqlite.open_files import bytes_of
from app.storage.sqlite.schema import SCHEMA
from app.storage.tokens import TokenCounts

NEWEST = len(SCHEMA)
MOST_DAMAGE = 3  # lines of a report
STEPS = 20_000  # of SQLite's machine between two looks at the clock, about a millisecond

_Row = TypeVar("_Row")


class DatabaseReport(Struct, frozen=True):
    """`size` counts the write-ahead log. `damage` are lines of the check, None if it was not finished in time."""

    schema: int
    size: int
    waiting: int  # bytes of the write-ahead log
    damage: tuple[str, ...] | None


class StoredConfiguration(Struct, frozen=True):
    """The stored part of the configuration, beside the settings."""

    endpoints: tuple[EndpointRow, ...] = ()
    mcp_servers: tuple[McpServerRow, ...] = ()
    secrets: tuple[SecretRow, ...] = ()
    tokens: TokenCounts = TokenCounts(0, 0, 0)
    runs: RunCounts = RunCounts()


class Library(Struct, frozen=True):
    """The database library of this Python. `full_text` is empty if it can search texts, else the reason."""

    version: str
    full_text: str


def library() -> Library:
    with closing(sqlite3.connect(":memory:")) as connection:
        try:
            connection.execute("CREATE VIRTUAL TABLE words USING fts5(text)")
        except sqlite3.Error as error:
            return Library(sqlite3.sqlite_version, str(error))
    return Library(sqlite3.sqlite_version, "")


def inspect_database(path: Path, *, served: bool, time_s: float) -> DatabaseReport:
    """Check the file for at most `time_s`. `served`: a server uses it now. Raises StoreFailed."""
    log = bytes_of(path.with_name(f"{path.name}-wal"))
    with _opened(path, served=served) as connection:
        [(schema,)] = connection.execute("PRAGMA user_version").fetchall()
        connection.execute("SELECT COUNT(*) FROM sqlite_schema").fetchall()
        return DatabaseReport(schema, bytes_of(path) + log, log, _damage(connection, time_s))


def read_configuration(path: Path, *, served: bool) -> StoredConfiguration:
    """Raises StoreFailed, also for a schema that has no such tables yet."""
    with _opened(path, served=served) as connection:
        [tokens] = _rows(connection, TOKEN_COUNTS, time.time())
        [runs] = _rows(connection, RUN_COUNTS)
        return StoredConfiguration(
            tuple(_rows(connection, ENDPOINTS)),
            tuple(_rows(connection, MCP_SERVERS)),
            tuple(_rows(connection, SECRETS)),
            tokens=tokens,
            runs=runs,
        )


def _rows(connection: sqlite3.Connection, query: Select[_Row], *values: object) -> list[_Row]:
    return [query.row(*row) for row in connection.execute(query.sql, values)]


def _damage(connection: sqlite3.Connection, time_s: float) -> tuple[str, ...] | None:
    deadline = time.monotonic() + time_s
    connection.set_progress_handler(lambda: time.monotonic() > deadline, STEPS)
    try:
        rows = connection.execute(f"PRAGMA quick_check({MOST_DAMAGE})").fetchall()
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode == sqlite3.SQLITE_INTERRUPT:
            return None
        raise
    finally:
        connection.set_progress_handler(None, 0)
    return tuple(text for (text,) in rows if text != "ok")


@contextmanager
def _opened(path: Path, *, served: bool) -> Iterator[sqlite3.Connection]:
    waits = served or bytes_of(path.with_name(f"{path.name}-wal")) > 0
    mode = "mode=ro" if waits else "immutable=1"
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?{mode}", uri=True, timeout=1.0)) as connection:
            yield connection
    except FAILURES as error:
        advice = next((text for sign, text in ADVICE.items() if sign in str(error)), GENERAL_ADVICE)
        raise StoreFailed(f"The database {path} cannot be read: {error}. {advice}") from error
