"""The index of knowledge: a file of SQLite of its own beside the database, made anew whenever it is lost or damaged.

A content is stored once, whatever the number of its files: a renamed or copied file costs a row. What is searched are
the contents of files in the places of the caller, and in no others.
"""

from __future__ import annotations

import json
import logging
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import RLock
from typing import Any

from msgspec import Struct

from app.knowledge.passages import Passage
from app.memory.search import CANDIDATES
from app.memory.vectors import VectorCache, VectorIndex
from app.memory.words import as_indexed, search_words
from app.storage.changes import StoreFailed
from app.storage.data_dir import make_private_file
from app.storage.search_words import phrase

VERSION = 1  # of the schema, and of how texts are cut
SCHEMA = f"""
PRAGMA journal_mode = WAL;
BEGIN;
CREATE TABLE files (
    place TEXT NOT NULL, path TEXT NOT NULL, stamp TEXT NOT NULL, content INTEGER, problem TEXT NOT NULL,
    PRIMARY KEY (place, path)
) WITHOUT ROWID;
CREATE INDEX files_of_contents ON files (content);
CREATE TABLE contents (id INTEGER PRIMARY KEY, digest BLOB NOT NULL UNIQUE);
CREATE TABLE passages (
    id INTEGER PRIMARY KEY, content INTEGER NOT NULL, mark TEXT NOT NULL, first INTEGER NOT NULL, last INTEGER NOT NULL,
    title TEXT NOT NULL, text TEXT NOT NULL
);
CREATE INDEX passages_of_contents ON passages (content);
CREATE TABLE vectors (passage INTEGER PRIMARY KEY, embedder TEXT NOT NULL, vector BLOB NOT NULL);
CREATE VIRTUAL TABLE words USING fts5(text, tokenize = 'unicode61 remove_diacritics 2');
PRAGMA user_version = {VERSION};
COMMIT;
"""
PRAGMAS = ("synchronous = NORMAL", "busy_timeout = 5000", "journal_size_limit = 16777216")
DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
FAILURES = (sqlite3.Error, OSError, OverflowError)
IN_REACH = """EXISTS (
    SELECT 1 FROM files WHERE files.content = passages.content
    AND place IN (SELECT value FROM json_each(:places)) AND substr(path, 1, length(:folder)) = :folder
)"""
MATCHES = f"""
SELECT passages.id FROM words JOIN passages ON passages.id = words.rowid
WHERE words MATCH :words AND {IN_REACH} ORDER BY bm25(words), passages.id LIMIT {CANDIDATES}
"""
VECTORS = f"""
SELECT passages.id, vector FROM passages JOIN vectors ON passage = passages.id
WHERE embedder = :embedder AND {IN_REACH}
"""
HITS = """
SELECT passages.id, place, path, stamp, digest, mark, first, last, title, text
FROM passages JOIN contents ON contents.id = passages.content JOIN files ON files.content = contents.id
WHERE passages.id IN (SELECT value FROM json_each(:ids))
AND place IN (SELECT value FROM json_each(:places)) AND substr(path, 1, length(:folder)) = :folder ORDER BY path
"""
UNEMBEDDED = """
SELECT passages.id, passages.title || char(10) || text, content FROM passages
WHERE id > ? AND id NOT IN (SELECT passage FROM vectors WHERE embedder = ?)
AND content NOT IN (SELECT value FROM json_each(?)) ORDER BY id LIMIT ?
"""
FILE = "INSERT OR REPLACE INTO files (place, path, stamp, content, problem) VALUES (?, ?, ?, ?, ?)"
VECTOR = "INSERT OR REPLACE INTO vectors SELECT id, ?, ? FROM passages WHERE id = ?"  # else deleted meanwhile
UNUSED = "SELECT id FROM contents WHERE id NOT IN (SELECT content FROM files WHERE content IS NOT NULL) LIMIT 50"
COUNTS = """
SELECT place, COUNT(DISTINCT path), COUNT(passages.id), COUNT(vectors.passage)
FROM files LEFT JOIN passages ON passages.content = files.content
LEFT JOIN vectors ON passage = passages.id AND embedder = ? GROUP BY place
"""
_log = logging.getLogger(__name__)


class Reach(Struct, frozen=True):
    """Limits of a search: files of these places, below `folder`, which is empty or ends in a slash."""

    places: tuple[str, ...]
    folder: str = ""

    @property
    def values(self) -> dict[str, str]:
        return {"places": json.dumps(self.places), "folder": self.folder}


class Hit(Struct, frozen=True):
    """A passage of a file as it was indexed."""

    id: str
    place: str
    path: str
    stamp: str
    digest: bytes
    passage: Passage


class Unembedded(Struct, frozen=True):
    id: int
    text: str
    content: int


class KnowledgeIndex:
    """One connection for all threads, one at a time. Every method blocks, and raises StoreFailed."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = RLock()
        self._opened: sqlite3.Connection | None = None
        self._vectors = VectorCache()

    @contextmanager
    def _transaction(self, *, writes: bool = True) -> Iterator[sqlite3.Connection]:
        with self._lock:
            try:
                connection = self._connection()
                connection.execute("BEGIN IMMEDIATE" if writes else "BEGIN")
                try:
                    yield connection
                    connection.execute("COMMIT")
                finally:
                    if connection.in_transaction:
                        connection.execute("ROLLBACK")
                self._vectors = VectorCache() if writes else self._vectors
            except FAILURES as error:
                if getattr(error, "sqlite_errorcode", 0) & 0xFF in DAMAGED:
                    self._drop()
                    _log.warning("the index of knowledge %s was damaged and is made anew: %s", self._path, error)
                raise StoreFailed(f"The index of knowledge {self._path} failed: {error}.") from error

    def _rows(self, sql: str, values: Sequence[object] | Mapping[str, object] = ()) -> list[Any]:
        with self._transaction(writes=False) as connection:
            return connection.execute(sql, values).fetchall()

    def _connection(self) -> sqlite3.Connection:
        if self._opened is None:
            make_private_file(self._path)
            self._opened = sqlite3.connect(self._path, isolation_level=None, check_same_thread=False)
            [(version,)] = self._opened.execute("PRAGMA user_version").fetchall()
            if version not in (0, VERSION):
                self._drop()
                return self._connection()
            if version == 0:
                self._opened.executescript(SCHEMA)
            for pragma in PRAGMAS:
                self._opened.execute(f"PRAGMA {pragma}")
        return self._opened

    def _drop(self) -> None:
        self.close()
        for suffix in ("", "-wal", "-shm"):
            with suppress(FileNotFoundError):
                self._path.with_name(self._path.name + suffix).unlink()

    def close(self) -> None:
        with self._lock:
            if self._opened:
                self._opened.close()
            self._opened = None
            self._vectors = VectorCache()

    def forget_problems(self) -> None:
        """Have files read anew that could not be: what was in the way may have gone."""
        with self._transaction() as connection:
            connection.execute("DELETE FROM files WHERE problem <> ''")

    def stamps(self, place: str) -> dict[str, str]:
        return dict(self._rows("SELECT path, stamp FROM files WHERE place = ?", (place,)))

    def places(self) -> list[str]:
        return [place for (place,) in self._rows("SELECT DISTINCT place FROM files")]

    def passage_count(self) -> int:
        return int(self._rows("SELECT COUNT(*) FROM passages")[0][0])

    def link(self, place: str, path: str, stamp: str, digest: bytes) -> bool:
        """Let the file have a content that is known; return False if it is not."""
        with self._transaction() as connection:
            for (content,) in connection.execute("SELECT id FROM contents WHERE digest = ?", (digest,)).fetchall():
                connection.execute(FILE, (place, path, stamp, content, ""))
                return True
            return False

    def put(self, place: str, path: str, stamp: str, digest: bytes, passages: Sequence[Passage]) -> None:
        """Store the content of a file."""
        indexed = [as_indexed(f"{one.title} {one.text}") for one in passages]
        with self._transaction() as connection:
            content = connection.execute("INSERT INTO contents (digest) VALUES (?)", (digest,)).lastrowid
            for one, words in zip(passages, indexed, strict=True):
                values = content, one.mark, one.first, one.last, one.title, one.text
                statement = "INSERT INTO passages (content, mark, first, last, title, text) VALUES (?, ?, ?, ?, ?, ?)"
                row = connection.execute(statement, values).lastrowid
                connection.execute("INSERT INTO words (rowid, text) VALUES (?, ?)", (row, words))
            connection.execute(FILE, (place, path, stamp, content, ""))

    def put_problem(self, place: str, path: str, stamp: str, problem: str) -> None:
        with self._transaction() as connection:
            connection.execute(FILE, (place, path, stamp, None, problem))

    def remove(self, place: str, paths: Sequence[str]) -> None:
        with self._transaction() as connection:
            rows = ((place, path) for path in paths)
            connection.executemany("DELETE FROM files WHERE place = ? AND path = ?", rows)

    def tidy(self) -> bool:
        """Delete some contents that no file has; return False once there are none."""
        with self._transaction() as connection:
            unused = connection.execute(UNUSED).fetchall()
            for table, key in (("words", "rowid"), ("vectors", "passage")):
                sql = f"DELETE FROM {table} WHERE {key} IN (SELECT id FROM passages WHERE content = ?)"
                connection.executemany(sql, unused)
            connection.executemany("DELETE FROM passages WHERE content = ?", unused)
            connection.executemany("DELETE FROM contents WHERE id = ?", unused)
            return bool(unused)

    def unembedded(self, embedder: str, after: int, without: Sequence[int], limit: int) -> list[Unembedded]:
        """Return passages behind `after` without a vector of the embedder, none of the contents `without`."""
        return [Unembedded(*row) for row in self._rows(UNEMBEDDED, (after, embedder, json.dumps(without), limit))]

    def files_of(self, content: int) -> list[tuple[str, str]]:
        return self._rows("SELECT place, path FROM files WHERE content = ?", (content,))

    def put_vectors(self, embedder: str, vectors: Mapping[int, bytes]) -> None:
        with self._transaction() as connection:
            rows = ((embedder, vector, one) for one, vector in vectors.items())
            connection.executemany(VECTOR, rows)

    def matches(self, query: str, reach: Reach) -> list[str]:
        """Return the ids of the best matches by words."""
        if not (words := search_words(query)):
            return []
        values = reach.values | {"words": " OR ".join(map(phrase, words))}
        return [str(one) for (one,) in self._rows(MATCHES, values)]

    def vectors(self, embedder: str, reach: Reach) -> VectorIndex:
        key = json.dumps([embedder, reach.places, reach.folder])
        with self._transaction(writes=False) as connection:
            if (index := self._vectors.of(key)) is None:
                rows = connection.execute(VECTORS, reach.values | {"embedder": embedder})
                index = VectorIndex([(str(one), vector) for one, vector in rows])
                self._vectors.keep(key, index)
            return index

    def hits(self, ids: Sequence[str], reach: Reach) -> list[Hit]:
        """Return the passages in the order of their ids, each once for every file that has it."""
        found = [
            Hit(str(one), place, path, stamp=stamp, digest=digest, passage=Passage(*passage))
            for one, place, path, stamp, digest, *passage in self._rows(
                HITS, reach.values | {"ids": json.dumps(list(map(int, ids)))}
            )
        ]
        rank = {one: at for at, one in enumerate(ids)}
        return sorted(found, key=lambda hit: rank[hit.id])

    def counts(self, embedder: str) -> dict[str, tuple[int, int, int]]:
        """Return the files, the passages and those with a vector, by place."""
        return {
            place: (files, passages, embedded) for place, files, passages, embedded in self._rows(COUNTS, (embedder,))
        }

    def problems(self, limit: int) -> list[tuple[str, str, str]]:
        """Return files that cannot be searched: place, path, reason."""
        sql = "SELECT place, path, problem FROM files WHERE problem <> '' ORDER BY place, path LIMIT ?"
        return self._rows(sql, (limit,))
