"""The store in a PostgreSQL database: an implementation of app.storage.store.Store."""

from __future__ import annotations

from app.storage.postgres.retention import PostgresRetention
from app.storage.postgres.sealed import PostgresSealed
from app.storage.postgres.sessions import PostgresSessions
from app.storage.postgres.usage import PostgresUsage
from app.storage.sql.aggregates import SqlAggregates


class PostgresStore(PostgresRetention, PostgresSessions, PostgresUsage, PostgresSealed, SqlAggregates):
    """Every change is in its table, and durable, when `write` returns."""

    spacing_s = 0.0025  # a round trip takes more CPU of this process than a commit of SQLite
