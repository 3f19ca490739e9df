"""Checks of the stored data, which is only read."""

from __future__ import annotations

from app.storage.changes import StoreFailed
from app.storage.database import DATABASE
from app.storage.inspection.database_file import NEWEST, inspect_database, read_configuration
from routes.cli.doctor.finding import Finding, Findings, Subject, in_thread, megabytes, ok, problem, skipped, warning
from routes.cli.doctor.postgres import postgres

CHECK_S = 4.0
LONG_LOG = 256 << 20  # bytes that wait in the write-ahead log: a reader holds it open, or nothing copies it
RESTORE = "Stop the server, keep a copy of the file, and restore a backup."


async def database(subject: Subject) -> Findings:
    """SQLite's file or PostgreSQL: can it be opened, how old is its schema, is it whole, how large is it."""
    if (url := subject.settings.postgres_url) is None:
        return await in_thread(database_file, subject)
    if subject.offline:
        return skipped("not checked, because of --offline")
    return await postgres(subject, url)


def database_file(subject: Subject) -> Findings:
    path, served = subject.settings.data_dir / DATABASE, subject.server is not None
    if not path.exists():
        return ok(f"{path} does not exist yet; the server creates it")
    try:
        report = inspect_database(path, served=served, time_s=CHECK_S)
        if report.schema == NEWEST:
            subject.stored = read_configuration(path, served=served)
    except StoreFailed as failure:
        return problem(str(failure), RESTORE)
    found = f"schema {report.schema}, {megabytes(report.size)}"
    if report.schema > NEWEST:
        return problem(f"{found}, made by a newer dragoman", f"Upgrade this one: it knows schema {NEWEST}.")
    if report.damage:
        return [problem(f"damaged: {line}", RESTORE) for line in report.damage]
    found += ", whole" if report.damage is not None else f", not checked to its end within {CHECK_S:g} s"
    return _old(report.schema, found) or _waiting(report.waiting, found) or ok(found)


def _old(schema: int, found: str) -> Finding | None:
    if schema == NEWEST:
        return None
    advice = "Keep a copy of the file: older versions of dragoman cannot read the migrated one."
    return warning(f"{found}; the next start migrates it to {NEWEST}", advice)


def _waiting(size: int, found: str) -> Finding | None:
    if size <= LONG_LOG:
        return None
    found = f"{found}, of which {megabytes(size)} wait in the write-ahead log"
    return warning(found, "End programs that hold the database open, or restart the server.")
