"""Checkpoints: changes of workspaces by runs, and the contents from before, in a store of their own.

It is a second file of SQLite beside the database, whichever that is, because it holds the contents of workspaces: its
backup, its size and its loss are another matter. It is made when the first run writes.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import RLock

from msgspec import Struct, convert, msgpack

from app.storage.changes import StoreFailed
from app.storage.data_dir import make_private_file

FILE, LINK, FOLDER, LEFT_OUT, SKIPPED = "file", "link", "folder", "left out", "skipped"  # kinds of entries
OPEN, KEPT, UNAVAILABLE, UNDOING, UNDONE = "open", "kept", "unavailable", "undoing", "undone"  # states


class Entry(Struct, frozen=True, array_like=True):
    """A file, link or folder. `digest` is that of the content, or of a link's target.

    What is `LEFT_OUT` (too large, protected, unreadable, or with a secret in it), a `SKIPPED` folder (programs make it
    again), and what a look has not read have none. A file is read again if its `inode`, `modified` or `changed` differ,
    or if it was not settled: then it may have been changed since without them.
    """

    kind: str
    mode: int
    size: int = 0
    digest: bytes = b""
    inode: int = 0
    modified: int = 0
    changed: int = 0
    is_settled: bool = True

    def is_same(self, other: Entry | None) -> bool:
        """Return True if the other is the same thing, as far as it can be restored; else as far as it is known."""
        if other is None or (self.kind, self.mode) != (other.kind, other.mode):
            return False
        if self.kind == FOLDER or (self.digest and other.digest):
            return self.digest == other.digest
        return (self.size, self.inode, self.modified) == (other.size, other.inode, other.modified)

    @property
    def can_restore(self) -> bool:
        return self.kind not in (LEFT_OUT, SKIPPED)


Entries = Mapping[bytes, Entry]  # by their paths in the workspace


class Changed(Struct, frozen=True):
    """A path before and after a run; None is nothing. `shared`: something else may have changed it meanwhile."""

    path: bytes
    before: Entry | None
    after: Entry | None
    shared: bool = False


Before = Mapping[bytes, Entry | None]
"""What differs from one look to the next, as it was at the former."""


class LookRow(Struct, frozen=True):
    """A look at a workspace, for a call of a run, or one that has found differences.

    It was taken before the call, or `is_after` it; without a run it is nobody's. Without `before` it is not known what
    differed, so that no state from before it can be restored; nobody's look `is_after` that has not seen everything.
    `number` counts all looks; 0 is a new one.
    """

    workspace: str
    run: str = ""
    call: str = ""
    is_after: bool = False
    at: float = 0.0
    before: Before | None = None
    number: int = 0


class ScratchRow(Struct, frozen=True):
    """A session that works in a folder of its own: a copy of its `origin`, the workspace of its principal.

    `base` are the entries that its changes are compared with, `files` those that are still to be written.
    """

    session: str
    principal: str
    origin: str
    created: float = 0.0
    files: Entries = {}
    base: Entries = {}


class CheckpointRow(Struct, frozen=True):
    """A run that has changed a workspace. `reported`: the model knows that it was undone."""

    run: str
    session: str
    principal: str
    workspace: str
    created: float
    state: str = OPEN
    note: str = ""
    undone: float | None = None
    undone_by: str = ""
    reported: bool = False


VERSION = 2
LOOKS = """
CREATE TABLE looks (
    number INTEGER PRIMARY KEY, workspace TEXT NOT NULL, run TEXT NOT NULL, call TEXT NOT NULL,
    is_after INTEGER NOT NULL, at REAL NOT NULL, before BLOB
);
CREATE INDEX looks_of_workspaces ON looks (workspace, number);
CREATE TABLE scratch (
    session TEXT PRIMARY KEY, principal TEXT NOT NULL, origin TEXT NOT NULL, created REAL NOT NULL,
    files BLOB NOT NULL, base BLOB NOT NULL
);
"""
SCHEMA = f"""
PRAGMA auto_vacuum = INCREMENTAL;
PRAGMA journal_mode = WAL;
BEGIN;
CREATE TABLE contents (digest BLOB PRIMARY KEY, size INTEGER NOT NULL, bytes BLOB NOT NULL);
CREATE TABLE workspaces (path TEXT PRIMARY KEY, entries BLOB NOT NULL);
CREATE TABLE checkpoints (
    run TEXT PRIMARY KEY, session TEXT NOT NULL, principal TEXT NOT NULL, workspace TEXT NOT NULL,
    created REAL NOT NULL, state TEXT NOT NULL, note TEXT NOT NULL, undone REAL, undone_by TEXT NOT NULL,
    reported INTEGER NOT NULL
);
CREATE TABLE changes (
    run TEXT NOT NULL, path BLOB NOT NULL, before BLOB NOT NULL, after BLOB NOT NULL, shared INTEGER NOT NULL,
    old BLOB NOT NULL, new BLOB NOT NULL, PRIMARY KEY (run, path)
) WITHOUT ROWID;
CREATE INDEX changes_of_paths ON changes (path);
{LOOKS}
PRAGMA user_version = {VERSION};
COMMIT;
"""
# From version 1: what differed before is not known.
UNKNOWN = """
INSERT INTO looks (workspace, run, call, is_after, at)
SELECT path, '', '', 0, CAST(strftime('%s', 'now') AS REAL) FROM workspaces;
"""
MIGRATION = f"BEGIN; {LOOKS} {UNKNOWN} PRAGMA user_version = {VERSION}; COMMIT;"
PRAGMAS = ("synchronous = NORMAL", "busy_timeout = 5000", "journal_size_limit = 16777216")
FAILURES = (sqlite3.Error, OSError, ValueError, OverflowError)
COLUMNS = ", ".join(CheckpointRow.__struct_fields__)
ROW = f"INSERT OR REPLACE INTO checkpoints ({COLUMNS}) VALUES ({', '.join('?' * len(CheckpointRow.__struct_fields__))})"
CHANGE = "INSERT INTO changes (run, path, before, after, shared, old, new) VALUES (?, ?, ?, ?, ?, ?, ?)"
LATER = (
    "SELECT run FROM changes JOIN checkpoints USING (run) WHERE path = ? AND workspace = ? AND created > ? "
    "ORDER BY created"
)
FIND_LOOKS = """
SELECT run, call, is_after, at, before, number FROM looks
WHERE workspace = ? AND number > ? AND (? IS NULL OR run = ?) ORDER BY number
"""
LOOK = "INSERT INTO looks (workspace, run, call, is_after, at, before) VALUES (?, ?, ?, ?, ?, ?)"
LAST = "SELECT run = '' AND is_after AND before IS NULL FROM looks WHERE workspace = ? ORDER BY number DESC LIMIT 1"
UNOWNED = """
UPDATE looks SET is_after = 0, before = NULL WHERE workspace = ?
AND number < (SELECT COALESCE(MIN(number), 9e18) FROM looks WHERE workspace = ? AND run <> '')
"""  # what was before the first run that is left
UNKNOWN_BEFORE = "SELECT EXISTS (SELECT 1 FROM looks WHERE workspace = ? AND at > ? AND number < ? AND before IS NULL)"
LAST_LOOK = "SELECT MAX(number) FROM looks WHERE workspace = ? AND run IN (SELECT value FROM json_each(?))"
SIZES = "SELECT (SELECT COALESCE(SUM(size), 0) FROM contents) + (SELECT COALESCE(SUM(LENGTH(before)), 0) FROM looks)"
SCRATCH = "INSERT OR REPLACE INTO scratch VALUES (?, ?, ?, ?, ?, ?)"
SCRATCHES = "SELECT session, principal, created FROM scratch"
MOST_ASKED = 500  # contents in one query
_entries = msgpack.Decoder(list[tuple[bytes, Entry]])
_before = msgpack.Decoder(list[tuple[bytes, Entry | None]])
_entry = msgpack.Decoder(Entry | None)


class CheckpointStore:
    """One connection for all threads, one at a time. Every method blocks, and raises StoreFailed."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = RLock()
        self._opened: sqlite3.Connection | None = None

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with self._lock:
            try:
                connection = self._connection()
                connection.execute("BEGIN IMMEDIATE")
                try:
                    yield connection
                    connection.execute("COMMIT")
                finally:
                    if connection.in_transaction:
                        connection.execute("ROLLBACK")
            except FAILURES as error:
                raise self._failure(error) from error

    def _connection(self) -> sqlite3.Connection:
        if self._opened is None:
            make_private_file(self._path)
            opened = sqlite3.connect(str(self._path), isolation_level=None, check_same_thread=False)
            try:
                self._prepare(opened)
            except BaseException:
                opened.close()
                raise
            self._opened = opened
        return self._opened

    def _prepare(self, connection: sqlite3.Connection) -> None:
        [(version,)] = connection.execute("PRAGMA user_version").fetchall()
        if version > VERSION:
            raise sqlite3.DatabaseError(f"it was made by a newer dragoman (schema {version})")
        if version == 0:
            connection.executescript(SCHEMA)
        if version == 1:
            connection.executescript(MIGRATION)
        for pragma in PRAGMAS:
            connection.execute(f"PRAGMA {pragma}")

    def _failure(self, error: Exception) -> StoreFailed:
        return StoreFailed(f"The checkpoints in {self._path} failed: {error}. Move that file away to begin anew.")

    def _is_missing(self) -> bool:
        """Return True if nothing was ever stored, so that a question makes no file."""
        return self._opened is None and not self._path.exists()

    def entries(self, workspace: str) -> Entries | None:
        """Return the workspace as it was last seen; None if it never was."""
        with self._transaction() as connection:
            row = connection.execute("SELECT entries FROM workspaces WHERE path = ?", (workspace,)).fetchone()
            return dict(_entries.decode(row[0])) if row else None

    def put_contents(self, contents: Sequence[tuple[bytes, bytes]]) -> None:
        """Store contents with their digests; nothing refers to them until `put`."""
        with self._transaction() as connection:
            rows = ((digest, len(data), data) for digest, data in contents)
            connection.executemany("INSERT OR IGNORE INTO contents (digest, size, bytes) VALUES (?, ?, ?)", rows)

    def content(self, digest: bytes) -> bytes:
        """Return a stored content. Raises StoreFailed if it is missing."""
        with self._transaction() as connection:
            row = connection.execute("SELECT bytes FROM contents WHERE digest = ?", (digest,)).fetchone()
            if row is None:
                raise sqlite3.DatabaseError(f"the content {digest.hex()} is missing")
            return bytes(row[0])

    def contents(self, digests: Sequence[bytes]) -> dict[bytes, bytes]:
        """Return stored contents, at most MOST_ASKED. Raises StoreFailed if one is missing."""
        wanted = set(digests)
        with self._transaction() as connection:
            marks = ", ".join("?" * len(wanted))
            found = dict(connection.execute(f"SELECT digest, bytes FROM contents WHERE digest IN ({marks})", [*wanted]))
            if missing := wanted - found.keys():
                raise sqlite3.DatabaseError(f"the content {min(missing).hex()} is missing")
            return found

    def put(
        self,
        rows: Sequence[CheckpointRow] = (),
        changes: Mapping[str, Iterable[Changed]] | None = None,
        entries: tuple[str, Entries] | None = None,
        look: LookRow | None = None,
        *,
        scratch: ScratchRow | None = None,
    ) -> None:
        """Store rows, all changes of runs, the entries of a workspace and more of it, in one transaction."""
        with self._transaction() as connection:
            for row in rows:
                connection.execute(ROW, [getattr(row, name) for name in CheckpointRow.__struct_fields__])
            for run, changed in (changes or {}).items():
                connection.execute("DELETE FROM changes WHERE run = ?", (run,))
                connection.executemany(CHANGE, ((run, *_columns(one)) for one in changed))
            if entries:
                path, by_path = entries
                encoded = msgpack.encode(list(by_path.items()))
                connection.execute("INSERT OR REPLACE INTO workspaces (path, entries) VALUES (?, ?)", (path, encoded))
            if look:
                values = look.workspace, look.run, look.call, look.is_after, look.at, _encoded(look.before)
                connection.execute(LOOK, values)
            if scratch:
                of_session = scratch.session, scratch.principal, scratch.origin, scratch.created
                connection.execute(SCRATCH, (*of_session, _encoded(scratch.files), _encoded(scratch.base)))

    def last_was_whole(self, workspace: str) -> bool | None:
        """Return False if the last look that is kept could not see everything; None if there is none."""
        with self._transaction() as connection:
            row = connection.execute(LAST, (workspace,)).fetchone()
            return None if row is None else not row[0]

    def looks(self, workspace: str, after: int = 0, run: str | None = None) -> list[LookRow]:
        """Return the looks at a workspace that are kept, oldest first: those `after` a number, those for a run."""
        if self._is_missing():
            return []
        with self._transaction() as connection:
            return _looks(connection, workspace, after, run)

    def last_look(self, workspace: str, until: float) -> int:
        """Return the number of the last look that was taken until a time; 0 if there is none."""
        sql = "SELECT COALESCE(MAX(number), 0) FROM looks WHERE workspace = ? AND at <= ?"
        with self._transaction() as connection:
            return int(connection.execute(sql, (workspace, until)).fetchone()[0])

    def lacks_looks(self, workspace: str, since: float, until: int) -> bool:
        """Return True if it is not known what differed between a time and the look with this number."""
        with self._transaction() as connection:
            return bool(connection.execute(UNKNOWN_BEFORE, (workspace, since, until)).fetchone()[0])

    def forget_looks(self, workspace: str, runs: Collection[str]) -> None:
        """Forget all up to the last look of these runs: what was before that cannot be restored any more."""
        with self._transaction() as connection:
            last = connection.execute(LAST_LOOK, (workspace, json.dumps([*runs]))).fetchone()[0]
            connection.execute("DELETE FROM looks WHERE workspace = ? AND number < ?", (workspace, last))
            connection.execute(
                "UPDATE looks SET run = '', call = '', is_after = 0, before = NULL WHERE number = ?", (last,)
            )

    def scratch(self, session: str) -> ScratchRow | None:
        """Return the folder of its own that a session works in."""
        if self._is_missing():
            return None
        with self._transaction() as connection:
            sql = "SELECT principal, origin, created, files, base FROM scratch WHERE session = ?"
            for principal, origin, created, files, base in connection.execute(sql, (session,)).fetchall():
                entries = [dict(_entries.decode(one)) for one in (files, base)]
                return ScratchRow(session, principal, origin, created, files=entries[0], base=entries[1])
            return None

    def scratch_sessions(self) -> dict[str, tuple[str, float]]:
        """Return the sessions that work in folders of their own, with their principals and the times they began."""
        if self._is_missing():
            return {}
        with self._transaction() as connection:
            return {one: (name, at) for one, name, at in connection.execute(SCRATCHES)}

    def forget_scratch(self, session: str, path: str) -> None:
        """Forget the folder of a session, at this path, with all looks at it."""
        with self._transaction() as connection:
            connection.execute("DELETE FROM scratch WHERE session = ?", (session,))
            connection.execute("DELETE FROM looks WHERE workspace = ?", (path,))
            connection.execute("DELETE FROM workspaces WHERE path = ?", (path,))

    def row(self, run: str) -> CheckpointRow | None:
        found = self._found("WHERE run = ?", run)
        return found[0] if found else None

    def rows(self, *states: str) -> list[CheckpointRow]:
        """Return the checkpoints in these states, oldest first."""
        return self._found(f"WHERE state IN ({', '.join('?' * len(states))}) ORDER BY created", *states)

    def _found(self, where: str, *values: str) -> list[CheckpointRow]:
        if self._is_missing():
            return []
        with self._transaction() as connection:
            found = connection.execute(f"SELECT {COLUMNS} FROM checkpoints {where}", values).fetchall()
            names = CheckpointRow.__struct_fields__
            return [convert(dict(zip(names, row, strict=True)), CheckpointRow, strict=False) for row in found]

    def changes(self, run: str) -> list[Changed]:
        """Return the changes of a run, by path."""
        if self._is_missing():
            return []
        with self._transaction() as connection:
            sql = "SELECT path, before, after, shared FROM changes WHERE run = ? ORDER BY path"
            rows = connection.execute(sql, (run,)).fetchall()
            return [Changed(row[0], _entry.decode(row[1]), _entry.decode(row[2]), bool(row[3])) for row in rows]

    def runs_that_changed(self, workspace: str, path: bytes, since: float) -> list[str]:
        """Return the runs begun after that time that have changed this path, oldest first."""
        with self._transaction() as connection:
            return [run for (run,) in connection.execute(LATER, (path, workspace, since))]

    def forget(self, runs: Collection[str]) -> None:
        """Forget runs. What they had found is found by the next look of another one, as it was before them."""
        with self._transaction() as connection:
            of_runs = "SELECT DISTINCT workspace FROM looks WHERE run IN (SELECT value FROM json_each(?))"
            for (workspace,) in connection.execute(of_runs, (json.dumps([*runs]),)).fetchall():
                _leave_out(connection, _looks(connection, workspace), runs)
                connection.execute(UNOWNED, (workspace, workspace))
            for table in ("changes", "checkpoints"):
                connection.executemany(f"DELETE FROM {table} WHERE run = ?", [(run,) for run in runs])

    def forget_workspace(self, workspace: str) -> None:
        with self._transaction() as connection:
            connection.execute("DELETE FROM workspaces WHERE path = ?", (workspace,))

    def workspaces(self) -> list[str]:
        """Return the workspaces that were looked at."""
        if self._is_missing():
            return []
        with self._transaction() as connection:
            return [path for (path,) in connection.execute("SELECT path FROM workspaces").fetchall()]

    def size(self) -> int:
        """Return the bytes of all contents and looks."""
        if self._is_missing():
            return 0
        with self._transaction() as connection:
            return int(connection.execute(SIZES).fetchone()[0])

    def sweep(self) -> None:
        """Delete the contents that nothing refers to."""
        if self._is_missing():
            return
        with self._transaction() as connection:
            used = set[bytes]()
            entries = (
                "SELECT entries FROM workspaces UNION ALL SELECT files FROM scratch UNION ALL SELECT base FROM scratch"
            )
            for (encoded,) in connection.execute(f"{entries} UNION ALL SELECT before FROM looks WHERE before NOT NULL"):
                used |= {entry.digest for _, entry in _before.decode(encoded) if entry}
            for old_new in connection.execute("SELECT old, new FROM changes"):
                used.update(old_new)
            stored = [digest for (digest,) in connection.execute("SELECT digest FROM contents")]
            unused = ((digest,) for digest in stored if digest not in used)
            connection.executemany("DELETE FROM contents WHERE digest = ?", unused)
        with self._lock:
            self._connection().execute("PRAGMA incremental_vacuum").fetchall()

    def vacuum(self) -> None:
        """Rewrite the file: what was deleted is still in the free parts of its pages."""
        if self._is_missing():
            return
        with self._lock:
            try:
                for statement in ("VACUUM", "PRAGMA wal_checkpoint(TRUNCATE)"):
                    self._connection().execute(statement).fetchall()
            except FAILURES as error:
                raise self._failure(error) from error

    def close(self) -> None:
        with self._lock:
            if self._opened:
                self._opened.close()
                self._opened = None


def _columns(one: Changed) -> tuple[object, ...]:
    before, after = msgpack.encode(one.before), msgpack.encode(one.after)
    digests = [side.digest if side else b"" for side in (one.before, one.after)]
    return one.path, before, after, one.shared, *digests


def _encoded(entries: Before | None) -> bytes | None:
    return None if entries is None else msgpack.encode(list(entries.items()))


def _looks(connection: sqlite3.Connection, workspace: str, after: int = 0, of_run: str | None = None) -> list[LookRow]:
    looks = list[LookRow]()
    values = workspace, after, of_run, of_run
    for run, call, is_after, at, encoded, number in connection.execute(FIND_LOOKS, values).fetchall():
        before = None if encoded is None else dict(_before.decode(encoded))
        looks.append(LookRow(workspace, run, call, is_after=bool(is_after), at=at, before=before, number=number))
    return looks


def _leave_out(connection: sqlite3.Connection, looks: Sequence[LookRow], runs: Collection[str]) -> None:
    """Join the looks of runs with those that follow them."""
    carried: Before | None = {}
    for look in looks:
        if look.run not in runs and carried == {}:
            continue
        before = None if carried is None or look.before is None else {**look.before, **carried}
        if look.run in runs and look is not looks[-1]:
            carried = before
            connection.execute("DELETE FROM looks WHERE number = ?", (look.number,))
            continue
        connection.execute("UPDATE looks SET before = ? WHERE number = ?", (_encoded(before), look.number))
        if look.run in runs:
            connection.execute("UPDATE looks SET run = '', call = '', is_after = 0 WHERE number = ?", (look.number,))
        carried = {}
