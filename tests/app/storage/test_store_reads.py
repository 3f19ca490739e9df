"""What is read in one go is as of one moment: what moves from one table to another is never in neither."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from app.storage.sql.rows import Query
from app.storage.sqlite.connections import read

MOVE = "BEGIN; INSERT INTO there SELECT * FROM here; DELETE FROM here; COMMIT"


class Between(list[Query]):
    """Questions between which another connection moves what they ask for."""

    def __init__(self, other: sqlite3.Connection, *questions: Query) -> None:
        super().__init__(questions)
        self.other = other

    def __iter__(self) -> Iterator[Query]:
        for question in super().__iter__():
            yield question
            self.other.executescript(MOVE)


def test_what_moves_between_two_questions_is_found_once(tmp_path: Path) -> None:
    path = tmp_path / "moved.db"
    with closing(sqlite3.connect(path)) as other, closing(sqlite3.connect(path)) as reading:
        other.executescript("PRAGMA journal_mode = WAL; CREATE TABLE here (word); CREATE TABLE there (word)")
        other.executescript("INSERT INTO here VALUES ('said')")
        asked = Between(other, ("SELECT * FROM there", ()), ("SELECT * FROM here", ()))
        assert read(reading, asked) == [[], [("said",)]]
        assert read(reading, asked) == [[("said",)], []], "the moment is over"


def test_a_question_that_fails_leaves_nothing_open() -> None:
    with closing(sqlite3.connect(":memory:")) as reading:
        with pytest.raises(sqlite3.OperationalError):
            read(reading, [("SELECT 1", ()), ("SELECT * FROM nowhere", ())])
        assert not reading.in_transaction
        assert read(reading, [("SELECT 1", ()), ("SELECT 2", ())]) == [[(1,)], [(2,)]]
