"""Statements follow from the fields of a row: every kind of change has one, and a row is read as it was written."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

import pytest
from msgspec.structs import fields

from app.storage.changes import Change
from app.storage.notices.digests import DigestRow
from app.storage.runs import EventRow, KeyRow
from app.storage.sessions import AppState
from app.storage.sql.columns import names, update, upsert
from app.storage.sql.rows import Rows
from app.storage.sql.writes import WRITES
from app.storage.tokens import TokenRevoked
from tests.support.databases.postgres import opened

pytestmark = pytest.mark.anyio


def filled(kind: type[Change], text: str) -> Change:
    """A change with a value in every field."""
    values: dict[type, Any] = {str: text, int: 7, float: 1.5, bool: True, bytes: text.encode()}
    types = {field.name: (get_args(field.type) or [field.type])[0] for field in fields(kind)}
    return kind(**{name: values[one] for name, one in types.items()})


def test_every_change_has_a_statement() -> None:
    """But events, whose rows are planned by `RecentEvents`, and digests, which are changed in parts."""
    kinds = {kind.__name__ for kind in Change.__subclasses__()} | {AppState.__name__}  # a result with a column more
    assert kinds == {kind.__name__ for kind in WRITES} | {EventRow.__name__, DigestRow.__name__}


@pytest.mark.usefixtures("database")
async def test_every_statement_fits_the_schema(tmp_path: Path) -> None:
    """A row that is inserted is read back whole; a change of rows is executed."""
    async with opened(tmp_path) as store:
        assert isinstance(store, Rows)
        for kind, write in WRITES.items():
            insert = write.sql.split()
            is_made_of_others = "SELECT" in insert  # and of none, as none has this text
            row = filled(kind, "other" if is_made_of_others else "text")
            await store.write([row])
            if insert[0] == "INSERT" and not is_made_of_others:
                (values,) = await store._all(f"SELECT {names(kind)} FROM {insert[2]}")
                assert kind(*values) == row


def test_a_statement_has_each_column_once() -> None:
    assert names(EventRow, "events") == "events.run, events.seq, events.type, events.data, events.parts"
    assert upsert("idempotency", KeyRow, "principal", "key").sql == (
        "INSERT INTO idempotency (principal, key, body, run, created) VALUES (?, ?, ?, ?, ?)"
        " ON CONFLICT (principal, key) DO UPDATE SET body = excluded.body, run = excluded.run,"
        " created = excluded.created"
    )
    revoke = update("tokens", TokenRevoked, "sha256")
    assert revoke.sql == "UPDATE tokens SET revoked = ? WHERE sha256 = ?"
    assert revoke.values(TokenRevoked("abc", 2.0)) == (2.0, "abc")
