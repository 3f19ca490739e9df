"""Records of jobs in PostgreSQL, each kept by the replica that has the job."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from app.replicas.nodes import JobRecord
from app.replicas.postgres.nodes import Connect

# A replica that has been held for dead keeps nothing any more.
KEEP = """
    INSERT INTO jobs (id, node, replica, principal, session, under_way, record)
    SELECT $1, $2, $3, $4, $5, $6, $7 WHERE EXISTS (SELECT 1 FROM replicas WHERE id = $3 AND state <> 'gone')
    ON CONFLICT (id) DO UPDATE SET node = excluded.node, replica = excluded.replica, under_way = excluded.under_way,
        record = excluded.record, updated = clock_timestamp()
"""
DROP = "DELETE FROM jobs WHERE id = ANY ($1::text[])"
# A replica whose row has gone too was gone for a day.
ELSEWHERE = """
    SELECT jobs.id, jobs.node, replica, principal, session, under_way, record,
        CASE WHEN r.id IS NULL THEN 86400
            WHEN r.state = 'gone' THEN GREATEST(0, EXTRACT(EPOCH FROM clock_timestamp() - r.lease_until))
        END::float8 AS away_s
    FROM jobs LEFT JOIN replicas r ON r.id = jobs.replica
    WHERE replica <> $1 AND ($2::text IS NULL OR principal = $2) ORDER BY jobs.id
"""
FORGET_OLD = """
    DELETE FROM jobs WHERE updated < clock_timestamp() - make_interval(secs => $1)
    AND NOT EXISTS (SELECT 1 FROM replicas WHERE id = jobs.replica AND state <> 'gone')
"""


class PostgresJobRecords:
    def __init__(self, connect: Connect, me: Callable[[], str]) -> None:
        self._connect = connect
        self._me = me

    async def keep(self, records: Sequence[JobRecord]) -> None:
        rows = [
            (one.id, one.node, one.replica, one.principal, one.session, one.under_way, one.record) for one in records
        ]
        async with self._connect() as connection:
            await connection.executemany(KEEP, rows)

    async def drop(self, jobs: Sequence[str]) -> None:
        await self._execute(DROP, list(jobs))

    async def elsewhere(self, principal: str | None = None) -> list[JobRecord]:
        async with self._connect() as connection:
            return [JobRecord(**dict(row)) for row in await connection.fetch(ELSEWHERE, self._me(), principal)]

    async def forget_old(self, older_than_s: float) -> None:
        await self._execute(FORGET_OLD, older_than_s)

    async def _execute(self, sql: str, *values: Any) -> None:
        async with self._connect() as connection:
            await connection.execute(sql, *values)
