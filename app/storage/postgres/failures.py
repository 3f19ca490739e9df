"""Errors of PostgreSQL and of the way to it, as what the store raises: with words that say what to do next."""

from __future__ import annotations

import asyncpg

from app.storage.changes import LeaseLost, StartsPaused, StoreFailed

CLIENT = (asyncpg.InterfaceError, asyncpg.InternalClientError)
FAILURES = (asyncpg.PostgresError, *CLIENT, OSError, ValueError, OverflowError)  # TimeoutError, too
LEASE_LOST, PAUSED = "DG001", "DG002"  # raised by `fence`
AWAY = "Check that it runs, and that DRAGOMAN_DATABASE_URL has its host and port."
NO_TLS = "Turn ssl on in PostgreSQL, or change sslmode in DRAGOMAN_DATABASE_URL."
# SQLSTATE or its class -> what to do about it
ADVICE = {
    "28P01": "Correct the password in DRAGOMAN_DATABASE_URL.",
    "28": "Correct the user in DRAGOMAN_DATABASE_URL, or let that user in with pg_hba.conf.",
    "3D000": "Create that database (`createdb NAME`), or correct its name in DRAGOMAN_DATABASE_URL.",
    "3F": "Create that schema, or correct the search_path of DRAGOMAN_DATABASE_URL.",
    "25006": "That server only reads: name the primary in DRAGOMAN_DATABASE_URL, not a standby.",
    "42501": "Make the user of DRAGOMAN_DATABASE_URL the owner of the database.",
    "42704": "Correct what stands behind the `?` of DRAGOMAN_DATABASE_URL.",
    "42P01": "A table is missing: restore the database, or use an empty one.",
    "53100": "Make room on the disk of PostgreSQL.",
    "53300": "Raise max_connections of PostgreSQL, or run fewer servers on it.",
    "53": "Give PostgreSQL more memory or disk space.",
    "55P03": "Another program holds that table: end it, and try again.",
    "57P03": "PostgreSQL is starting or stopping: try again in a moment.",
    "57014": "The statement took too long: look at the load of PostgreSQL.",
    "23": "The database refuses the row; this is a fault of dragoman, please report it.",
}
GENERAL_ADVICE = "Look into the log of PostgreSQL."
LOST = ("08", "57P01", "57P02", "57P03")  # SQLSTATEs: the connection is gone, or the server is starting
CLASHES = ("40001", "40P01", "55P03")  # of two transactions, one of which may be tried again
NOT_STORED = "it cannot be stored in PostgreSQL"


def state_of(error: BaseException) -> str:
    return str(getattr(error, "sqlstate", "") or "")


def is_lost(error: BaseException) -> bool:
    """Return True if the connection is gone or could not be made: whether the statement was executed is unknown."""
    if isinstance(error, asyncpg.PostgresError):
        return state_of(error).startswith(LOST)
    if isinstance(error, asyncpg.InternalClientError):  # of a connection that was about to be closed
        return True
    if isinstance(error, asyncpg.InterfaceError):
        return "connection" in str(error)  # it is closed; the others are mistakes in how it is used
    return isinstance(error, OSError) and not isinstance(error, TimeoutError)


def failure(error: BaseException, place: str) -> StoreFailed:
    """Return what the store raises; `place` names the database without its password."""
    state = state_of(error)
    if state == LEASE_LOST:
        return LeaseLost("The lease of this server on its runs has ended: another one continues them.")
    if state == PAUSED:
        return StartsPaused("The server is paused. Resume it with POST /resume.")
    if isinstance(error, asyncpg.exceptions.ClientConfigurationError):
        return StoreFailed(f"DRAGOMAN_DATABASE_URL cannot be used: {error}.")
    if isinstance(error, TimeoutError):
        return StoreFailed(f"The database {place} did not answer in time. {AWAY}")
    if is_lost(error) and not state.startswith("57P03"):
        advice = NO_TLS if "SSL" in str(error) else AWAY
        return StoreFailed(f"The database {place} cannot be reached: {described(error)}. {advice}")
    advice = next((ADVICE[key] for key in (state, state[:2]) if key in ADVICE), GENERAL_ADVICE)
    return StoreFailed(f"The database {place} failed: {described(error)}. {advice}")


def described(error: BaseException) -> str:
    """Return the error's words, without a closing stop and without the data that it may quote."""
    if isinstance(error, asyncpg.DataError) or not isinstance(error, asyncpg.PostgresError | OSError):
        return NOT_STORED if isinstance(error, ValueError) else type(error).__name__
    return (str(error) or type(error).__name__).splitlines()[0].rstrip(".")
