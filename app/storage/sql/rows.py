"""The base of each aggregate's half that is the same for all databases: what an engine has to offer it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from app.storage.changes import Change
from app.storage.sql.columns import Row, Select

Query = tuple[str, tuple[object, ...]]  # SQL, and its values


class Rows:
    """Every method raises StoreFailed. Statements have `?` for their values."""

    async def _each(self, *queries: Query) -> list[list[Any]]:
        """The rows of each query, from one snapshot."""
        raise NotImplementedError

    async def _all(self, sql: str, *values: object) -> list[Any]:
        return (await self._each((sql, values)))[0]

    async def _rows(self, query: Select[Row], *values: object) -> list[Row]:
        return [query.row(*row) for row in await self._all(query.sql, *values)]

    async def _row(self, query: Select[Row], *values: object) -> Row | None:
        rows = await self._rows(query, *values)
        return rows[0] if rows else None

    async def _lookup(self, query: Select[Row], *values: object) -> Row | None:
        """The row of a key, or of a small table."""
        return await self._row(query, *values)

    async def _lookup_changed(self, query: Select[Row], *values: object) -> Row | None:
        """The same of a table whose changes may wait."""
        return await self._lookup(query, *values)

    async def _change(self, sql: str, values: tuple[object, ...], also: Sequence[Change] = ()) -> bool:
        """Execute a statement, and write the changes if it has changed a row, in one transaction."""
        return await self._change_all([(sql, values)], also)

    async def _change_all(self, queries: Sequence[Query], also: Sequence[Change] = ()) -> bool:
        """Execute statements and write the changes in one transaction; nothing if the first one changes no row."""
        raise NotImplementedError
