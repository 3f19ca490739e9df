"""A copy of the SQLite database while a server uses it, and such a copy put back.

The copy is made by SQLite's backup interface, of one moment, while writers go on. It ends as one file without a
write-ahead log, and is checked before it gets its name, so that a file of that name is a whole backup.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from app.storage.changes import StoreFailed
from app.storage.sqlite.schema import SCHEMA
from app.storage.state import RESTORED

BUSY_S = 30.0
MODE = 0o600
LOG_FILES = ("-wal", "-shm")
UNFINISHED = ".part"
NOT_WRITTEN = "{path} cannot be written from the other database"


def back_up(database: Path, target: Path) -> int:
    """Write the database as it is now to a new file; return its bytes. Raises StoreFailed."""
    if target.exists():
        raise StoreFailed(f"{target} exists already. Name a new file: a backup replaces nothing.")
    with failures_named(NOT_WRITTEN.format(path=target)):
        part = _copied(database, target)
        _check(part, database)
        part.replace(target)
        sync_folder(target.parent)
        return target.stat().st_size


def restore(backup: Path, database: Path) -> Path | None:
    """Put a backup in the place of the database, which is kept beside it; return where, if there was one.

    The caller holds the lock of the data directory. Raises StoreFailed, and then nothing has changed.
    """
    if not backup.is_file():
        raise StoreFailed(f"There is no backup {backup}. `dragoman db backup FILE` makes one.")
    with failures_named(NOT_WRITTEN.format(path=database)):
        _check(backup, backup)
        part = _copied(backup, database)
        _mark_as_restored(part)
        kept = _kept(database) if database.exists() else None
        part.replace(database)  # in one step: a server that starts now finds the old one or the new one
        sync_folder(database.parent)
    return kept


def _copied(source: Path, target: Path) -> Path:
    """A copy beside `target`, on the disk."""
    part = target.with_name(target.name + UNFINISHED)
    part.unlink(missing_ok=True)  # of a copy that was killed
    os.close(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, MODE))
    try:
        with closing(sqlite3.connect(source, timeout=BUSY_S)) as read, closing(sqlite3.connect(part)) as written:
            read.backup(written)  # in one step: in several it would begin again whenever another process writes
            written.execute("PRAGMA journal_mode = DELETE")
    except BaseException:
        part.unlink(missing_ok=True)
        raise
    with part.open("rb") as file:
        os.fsync(file.fileno())
    return part


def _mark_as_restored(file: Path) -> None:
    """Leave word for recovery: runs that are under way in a backup have gone on since."""
    with closing(sqlite3.connect(file)) as connection:
        if connection.execute("SELECT 1 FROM sqlite_schema WHERE name = 'state'").fetchone():  # since version 2
            connection.execute("INSERT OR REPLACE INTO state VALUES (?, ?)", (RESTORED, str(time.time())))
            connection.commit()


def _check(file: Path, named: Path) -> None:
    """Raise StoreFailed unless the file is a whole database of dragoman, of this version or an older one."""
    with closing(sqlite3.connect(f"{file.resolve().as_uri()}?mode=ro", uri=True, timeout=BUSY_S)) as connection:
        [(result,)] = connection.execute("PRAGMA integrity_check(1)")
        [(version,)] = connection.execute("PRAGMA user_version")
        tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}
    if result != "ok":
        raise StoreFailed(f"{named} is damaged ({result}). Use another backup.")
    if not version or not {"sessions", "runs", "events"} <= tables:
        raise StoreFailed(f"{named} is not a database of dragoman.")
    if version > len(SCHEMA):
        raise StoreFailed(f"{named} is of a newer dragoman (schema {version}). Install that version.")


def _kept(database: Path) -> Path:
    """Give the database another name as well, under which it stays; its write-ahead log goes into it, or with it."""
    stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime())
    number = 0
    kept = database.with_name(f"{database.name}.replaced-{stamp}")
    while kept.exists():
        number += 1
        kept = database.with_name(f"{database.name}.replaced-{stamp}-{number}")
    try:
        with closing(sqlite3.connect(database, timeout=BUSY_S)) as connection:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    except sqlite3.OperationalError:
        raise  # another process holds it
    except sqlite3.DatabaseError:
        pass  # a damaged one is what a backup is for
    for suffix in LOG_FILES:  # of a damaged one: SQLite would apply them to the backup
        log = database.with_name(database.name + suffix)
        if log.exists():
            log.replace(kept.with_name(kept.name + suffix))
    os.link(database, kept)
    return kept


@contextmanager
def failures_named(what: str) -> Iterator[None]:
    """Raise StoreFailed for errors of SQLite and of files; `what` says that it cannot be done."""
    try:
        yield
    except (sqlite3.Error, OSError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise StoreFailed(f"{what}: {reason}.") from error


def sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
