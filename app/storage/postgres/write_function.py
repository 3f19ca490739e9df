"""One function of the database that writes a transaction: a round trip, however many changes there are.

It is made of the table of statements, and its name has their hash, so that two versions of dragoman, each with its
own, can use a database at the same time. Values come as texts, in the order of the changes, and are cast to the types
of their columns.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Callable, Iterable, Mapping, Sequence
from hashlib import sha256
from itertools import count
from typing import Any, get_args, get_type_hints

from msgspec import Struct

from app.core.events import ToolStarted
from app.storage.changes import Change
from app.storage.postgres.translation import with_values
from app.storage.runs import LOOKED_FOR, EventRow, RunRow
from app.storage.sql.columns import Write
from app.storage.usage import UsageAdded

TYPES = {str: "text", int: "bigint", float: "double precision", bool: "boolean", bytes: "bytea"}
TSVECTOR = "tsvector"
HEAD = """
#variable_conflict use_column
DECLARE _kind integer; _at integer := 0;
BEGIN
IF _mark IS NOT NULL THEN INSERT INTO written (mark) VALUES (_mark); END IF;
IF _me IS NOT NULL THEN PERFORM fence(_me, _starts); END IF;
FOREACH _kind IN ARRAY _kinds LOOP CASE _kind
"""
TAIL = """
END CASE; END LOOP;
INSERT INTO events (run, seq, type, data, parts, call)
    SELECT (SELECT number FROM runs WHERE runs.id = new.run), new.seq, new.type, new.data, new.parts, new.call
    FROM unnest(_run, _seq, _type, _data, _parts, _call) AS new (run, seq, type, data, parts, call);
END
"""
PARAMETERS = (
    "_me text, _starts boolean, _mark bigint, _kinds integer[], _values text[], "
    "_run text[], _seq integer[], _type text[], _data text[], _parts text[], _call text[]"
)


class Statement(Struct, frozen=True):
    """A statement, the types of its values, and the function that takes these from a change."""

    sql: str
    types: Sequence[str]
    values: Callable[[Any], Sequence[object]]
    before: str = ""  # another statement, without values


def statement(kind: type[Change], write: Write) -> Statement:
    hints = get_type_hints(kind)
    return Statement(write.sql, [type_of(hints[name]) for name in write.attributes], write.values)


def type_of(hint: object) -> str:
    """Return the type of a column for the annotation of a field."""
    options = [one for one in get_args(hint) if one is not type(None)] or [hint]
    return TYPES[options[0]]


class WriteFunction:
    """The function for a table of statements, and the arguments of a call."""

    def __init__(self, statements: Mapping[type[Change], Statement]) -> None:
        self._numbers = {kind: number for number, kind in enumerate(statements)}
        self._statements = statements
        body = HEAD + "".join(map(_branch, count(), statements.values())) + TAIL
        self.name = f"write_{sha256(body.encode()).hexdigest()[:16]}"
        self.sql = f"CREATE FUNCTION {self.name} ({PARAMETERS}) RETURNS void LANGUAGE plpgsql AS $it${body}$it$"
        marks = ", ".join(f"${number}" for number in range(1, PARAMETERS.count(",") + 2))
        self.call = f"SELECT {self.name} ({marks})"

    def arguments(self, changes: Sequence[Change], me: str | None, mark: int | None) -> list[Any]:
        """Return the values of a call; `me` is the replica that has to hold its lease."""
        kinds, values, events = list[int](), list[str | None](), list[EventRow]()
        for change in usage_last(changes):
            kind = type(change)
            if kind is EventRow:
                events.append(change)  # type: ignore[arg-type]
            else:
                kinds.append(self._numbers[kind])
                values += map(as_text, self._statements[kind].values(change))
        calls = [call_of(row) for row in events]
        starts = me is not None and does_start(changes)
        return [
            *(me, starts, mark if kinds else None, kinds, values),
            [row.run for row in events],
            [row.seq for row in events],
            [row.type for row in events],
            [clean(row.data) for row in events],
            [row.parts for row in events],
            calls,
        ]


def usage_last(changes: Sequence[Change]) -> Sequence[Change]:
    """Put usage last, in one order for all servers: rows that many of them change are locked as shortly as can be."""
    if not any(isinstance(change, UsageAdded) for change in changes):
        return changes
    return sorted(changes, key=_place)


def _place(change: Change) -> tuple[str, ...]:
    return (change.principal, change.kind, change.period) if isinstance(change, UsageAdded) else ()


def does_start(changes: Iterable[Change]) -> bool:
    """Return True if the changes start a run or a tool."""
    return any(
        type(change) is RunRow or (type(change) is EventRow and change.type == ToolStarted.type) for change in changes
    )


def call_of(row: EventRow) -> str | None:
    return str(json.loads(row.data)["call"]) if row.type in LOOKED_FOR else None


def clean(text: str) -> str:
    """Replace what PostgreSQL's texts cannot hold."""
    return text.replace("\x00", "\ufffd") if "\x00" in text else text


def as_text(value: object) -> str | None:
    if type(value) is str:
        return clean(value)
    if value is None:
        return None
    if isinstance(value, bytes):
        return b64encode(value).decode()
    return str(value)


def _branch(number: int, one: Statement) -> str:
    places = count(1)
    types = iter(one.types)

    def value() -> str:
        item = f"_values[_at + {next(places)}]"
        kind = next(types)
        return f"decode({item}, 'base64')" if kind == "bytea" else item if kind == "text" else f"{item}::{kind}"

    sql = with_values(one.sql, value).strip()
    before = f"{one.before}; " if one.before else ""
    return f"WHEN {number} THEN {before}{sql}; _at := _at + {len(one.types)};\n"
