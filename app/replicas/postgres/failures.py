"""Errors of a database connection that a replica survives: it connects again."""

from __future__ import annotations

import asyncpg

FAILURES = (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError, OSError, TimeoutError)
