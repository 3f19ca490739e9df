"""Checks of the stored data, which is only read."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from typing import TYPE_CHECKING

from app.storage.changes import StoreFailed
from app.storage.database import DATABASE
from app.storage.inspection.database_file import NEWEST, inspect_database, read_configuration
from routes.cli.doctor.finding import Finding, Findings, Subject, in_thread, megabytes, ok, problem, skipped, warning

if TYPE_CHECKING:
    from app.storage.inspection.postgres import PostgresReport

CHECK_S = 4.0
LONG_LOG = 256 << 20  # bytes that wait in the write-ahead log: a reader holds it open, or nothing copies it
RESTORE = "Stop the server, keep a copy of the file, and restore a backup."
DRIVER = "asyncpg"
SKEW_S = 5.0
SLOW_S = 0.05  # for one answer: each event of a run waits for one


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
    if report.schema < NEWEST:
        advice = "Keep a copy of the file: older versions of dragoman cannot read the migrated one."
        return warning(f"{found}; the next start migrates it to {NEWEST}", advice)
    if report.waiting > LONG_LOG:
        found += f", of which {megabytes(report.waiting)} wait in the write-ahead log"
        return warning(found, "End programs that hold the database open, or restart the server.")
    return ok(found)


async def postgres(subject: Subject, url: str) -> Findings:
    """Can it be reached, is it new enough, may it be written, how fast does it answer."""
    if find_spec(DRIVER) is None:
        return problem(f"{DRIVER} is not installed", "Install it with: pip install 'dragoman[postgres]'")
    from app.storage.inspection.postgres import NEWEST as newest
    from app.storage.inspection.postgres import inspect_postgres

    try:
        report = await inspect_postgres(url)
    except StoreFailed as failure:
        return problem(str(failure), "Try the same URL with psql: it says if the database or dragoman is at fault.")
    subject.stored = report.stored
    about = f"{report.place}: PostgreSQL {report.version}, schema {report.schema}, {megabytes(report.size)}"
    found = f"{about}, answers in {report.answer_s * 1000:.1f} ms, {report.replicas} servers use it"
    return list(_objections(report, newest)) or ok(found)


def _objections(report: PostgresReport, newest: int) -> Iterator[Finding]:
    about = f"{report.place}: PostgreSQL {report.version}"
    if not report.fits:
        yield problem(f"{about} is too old", "Upgrade it to PostgreSQL 14 or newer.")
    if report.reads_only:
        yield problem(f"{about} is a standby, which only reads", "Name the primary in DRAGOMAN_DATABASE_URL.")
    if report.encoding != "UTF8":
        advice = "Create the database again: createdb --encoding=UTF8 --template=template0 NAME."
        yield problem(f"{report.place} has the encoding {report.encoding}", advice)
    if report.oldest > newest:
        advice = f"Upgrade this one: it knows schema {newest}."
        yield problem(f"{report.place} was made by a newer dragoman (schema {report.schema})", advice)
    if report.schema < newest:
        found = f"{report.place} has schema {report.schema}; the next start migrates it to {newest}"
        yield warning(found, "Keep a backup. An empty database is filled so, and servers of the version before go on.")
    if report.free_connections < report.needed_connections:
        found = f"{report.connections} of {report.most_connections} connections of {report.place} are in use"
        yield warning(found, f"Raise max_connections: a server needs up to {report.needed_connections}.")
    if abs(report.ahead_s) > SKEW_S:
        found = f"the clock is {abs(report.ahead_s):.0f} s {'ahead of' if report.ahead_s > 0 else 'behind'} that of"
        yield warning(f"{found} {report.place}", "Set the clocks, and keep them right with NTP.")
    if report.answer_s > SLOW_S:
        found = f"{report.place} answers in {report.answer_s * 1000:.0f} ms"
        yield warning(found, "Move it nearer: events of a run wait for it.")
