"""The statements of PostgreSQL: those that every database has, and its own for what a search looks at."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from app.storage.changes import Change
from app.storage.files.store import FileRow, SessionFile
from app.storage.memories import MemoryRow
from app.storage.postgres.words import indexed
from app.storage.postgres.write_function import TSVECTOR, Statement, WriteFunction, statement
from app.storage.runs import RunRow
from app.storage.sessions import MessageRow
from app.storage.sql.columns import names
from app.storage.sql.writes import WRITES
from app.storage.usage import Settled, UsageAdded

INSERT_MESSAGE = """
    INSERT INTO messages (session, position, run, message, role, at, untrusted, searched, words)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)
"""
# `_me` is the replica that writes, which begins the run too; without one any may go on with it. It has the home of its
# principal, but one that ends with its client never goes on: any server may end it.
_RUN = statement(RunRow, WRITES[RunRow])
TIED = "tied"  # in the policy of a run
INSERT_RUN = f"""
    INSERT INTO runs ({names(RunRow)}, owner, home) VALUES (
        {", ".join("?" * len(_RUN.types))}, _me,
        CASE WHEN ? THEN '*' ELSE COALESCE((SELECT node FROM homes WHERE homes.principal = ?), '*') END
    )
"""
_MEMORY = statement(MemoryRow, WRITES[MemoryRow])
_OTHERS = ", ".join(f"{name} = excluded.{name}" for name in MemoryRow.__struct_fields__ if name != "id")
UPSERT_MEMORY = f"""
    INSERT INTO memories ({names(MemoryRow)}, searched) VALUES ({", ".join("?" * len(_MEMORY.types))}, ?)
    ON CONFLICT (id) DO UPDATE SET {_OTHERS}, searched = excluded.searched
"""
# Taken by what refers to a file, and alone by what deletes the files that nothing refers to.
FILES = "hashtextextended('dragoman files', 0)"
SHARE_FILES = f"PERFORM pg_advisory_xact_lock_shared({FILES})"
LOCK_FILES = f"SELECT pg_advisory_xact_lock({FILES})"

# What was reserved is part of what was used; the rest of it is given back.
SETTLE = f"""
    WITH released AS (
        UPDATE held SET amount = amount - ? WHERE principal = ? AND kind = ? AND period = ? AND replica = ?
    ) {WRITES[UsageAdded].sql}
"""
_NUMBER = "double precision"


def settled_values(change: Settled) -> tuple[object, ...]:
    budget = change.principal, change.kind, change.period
    return (change.released, *budget, change.replica, *budget, change.amount)


def run_values(row: RunRow) -> tuple[object, ...]:
    is_tied = TIED in row.policy and TIED in json.loads(row.policy)
    return (*_RUN.values(row), is_tied, row.principal)


def message_values(row: MessageRow) -> tuple[object, ...]:
    fields = fields_of(row.message)
    text = " ".join(searched(fields)) if fields else row.message
    at = fields.get("at")
    return (
        *(row.session, row.position, row.run, row.message, str(fields.get("role", ""))),
        at if isinstance(at, int | float) else None,
        bool(fields.get("untrusted")),
        text,
        indexed(text),
    )


def fields_of(message: str) -> dict[str, Any]:
    try:
        fields = json.loads(message)
    except ValueError:
        return {}
    return fields if isinstance(fields, dict) else {}


def searched(fields: dict[str, Any]) -> Iterator[str]:
    """Yield what a search looks at: a message's words, its calls, and the names of what is attached."""
    yield _readable(fields.get("text"))
    for call in fields.get("calls") or ():
        yield f"{_readable(call.get('name'))} {_readable(call.get('arguments'))}"
    for one in fields.get("attachments") or ():
        yield _readable(one.get("name"))


def _readable(value: object) -> str:
    """Return a text that can be stored: JSON may have lone surrogates, which no encoding of texts has."""
    text = value if isinstance(value, str) else "" if value is None else json.dumps(value)
    return text.encode(errors="replace").decode()


STATEMENTS: dict[type[Change], Statement] = {
    **{kind: statement(kind, write) for kind, write in WRITES.items()},
    MessageRow: Statement(
        INSERT_MESSAGE,
        ["text", "bigint", "text", "text", "text", "double precision", "boolean", "text", TSVECTOR],
        message_values,
    ),
    RunRow: Statement(INSERT_RUN, [*_RUN.types, "boolean", "text"], run_values),
    Settled: Statement(SETTLE, [_NUMBER, *["text"] * 7, _NUMBER], settled_values),
    MemoryRow: Statement(
        UPSERT_MEMORY, [*_MEMORY.types, TSVECTOR], lambda row: (*_MEMORY.values(row), indexed(row.words))
    ),
    **{
        kind: Statement(one.sql, one.types, one.values, before=SHARE_FILES)
        for kind, one in ((kind, statement(kind, WRITES[kind])) for kind in (FileRow, SessionFile))
    },
}
WRITE = WriteFunction(STATEMENTS)
