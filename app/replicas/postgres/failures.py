"""Errors of a database connection that a replica survives: it connects again."""

from __future__ import annotations

import asyncpg

FAILURES = (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError, OSError, TimeoutError)
SAID = (asyncpg.PostgresError, asyncpg.InterfaceError, ConnectionError)  # the other side has said so


def described(error: BaseException) -> str:
    """Return the words of an error; those of a time limit that is over have none of their own."""
    return str(error) or ("no answer in time" if isinstance(error, TimeoutError) else type(error).__name__)
