"""What each kind of change says to a SQL database, and the schema, a file per version."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from app.store import (
    EventRow,
    InboxRow,
    InboxTaken,
    KeyRow,
    MessageRow,
    RunBegan,
    RunEnded,
    RunRow,
    SessionRow,
    StateRow,
    TokenRow,
)

# Version n of the schema is what the first n files make; a database of an older one gets the files it lacks.
SCHEMA = tuple(path.read_text() for path in sorted(Path(__file__).parent.glob("schema_*.sql")))

EVENT_COLUMNS = "run, seq, type, data, parts"
RUN_COLUMNS = "id, session, principal, model, state, created, ended"


def _insert(table: str, columns: str) -> str:
    marks = ", ".join("?" * (columns.count(",") + 1))
    return f"INSERT INTO {table} ({columns}) VALUES ({marks})"


def _fields(*names: str) -> Callable[[Any], tuple[Any, ...]]:
    return lambda row: tuple(getattr(row, name) for name in names)


def _inserting(table: str, columns: str) -> tuple[str, Callable[[Any], tuple[Any, ...]]]:
    return _insert(table, columns), _fields(*columns.split(", "))


REPLACE_KEY = (
    "ON CONFLICT (principal, key) DO UPDATE SET body = excluded.body, run = excluded.run, created = excluded.created"
)
STATEMENTS: dict[type[Any], tuple[str, Callable[[Any], tuple[Any, ...]]]] = {
    EventRow: (_insert("events", EVENT_COLUMNS), lambda row: (row.run, row.seq, row.type, row.data, row.parts)),
    MessageRow: _inserting("messages", "session, position, run, message"),
    SessionRow: _inserting("sessions", "id, principal, created, title"),
    RunRow: _inserting("runs", RUN_COLUMNS),
    RunBegan: ("UPDATE runs SET state = 'running' WHERE id = ?", _fields("id")),
    RunEnded: ("UPDATE runs SET state = ?, ended = ? WHERE id = ?", _fields("state", "ended", "id")),
    TokenRow: _inserting("tokens", "sha256, name, role, created"),
    InboxRow: _inserting("inbox", "run, position, text"),
    InboxTaken: ("DELETE FROM inbox WHERE run = ?", _fields("run")),
    KeyRow: (
        f"{_insert('idempotency', 'principal, key, body, run, created')} {REPLACE_KEY}",
        _fields("principal", "key", "body", "run", "created"),
    ),
    StateRow: (
        f"{_insert('state', 'name, value')} ON CONFLICT (name) DO UPDATE SET value = excluded.value",
        _fields("name", "value"),
    ),
}

# What goes with a session; the sessions to forget are the rows of a query that stands in for SESSIONS.
FORGET = (
    "DELETE FROM events WHERE run IN (SELECT id FROM runs WHERE session IN (SESSIONS))",
    "DELETE FROM inbox WHERE run IN (SELECT id FROM runs WHERE session IN (SESSIONS))",
    "DELETE FROM idempotency WHERE run IN (SELECT id FROM runs WHERE session IN (SESSIONS))",
    "DELETE FROM messages WHERE session IN (SESSIONS)",
    "DELETE FROM sessions WHERE id IN (SESSIONS)",
    "DELETE FROM runs WHERE session NOT IN (SELECT id FROM sessions)",
)
ONE_SESSION = "?"
IDLE_SESSIONS = """
    SELECT id FROM sessions WHERE created < ? AND NOT EXISTS
    (SELECT 1 FROM runs WHERE runs.session = sessions.id AND COALESCE(runs.ended, 9e99) >= ?)
"""
TABLES = ("sessions", "runs", "events", "messages", "inbox", "idempotency", "tokens", "state")
