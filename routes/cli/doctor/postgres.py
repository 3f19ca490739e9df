"""Checks of a database of PostgreSQL, which is only read."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from typing import TYPE_CHECKING

from app.storage.changes import StoreFailed
from routes.cli.doctor.finding import Finding, Findings, Subject, megabytes, ok, problem, warning

if TYPE_CHECKING:
    from app.storage.inspection.postgres import PostgresReport

DRIVER = "asyncpg"
SKEW_S = 5.0
SLOW_S = 0.05  # for one answer: each event of a run waits for one


async def postgres(subject: Subject, url: str) -> Findings:
    """Can it be reached, is it new enough, may it be written, how fast does it answer."""
    if find_spec(DRIVER) is None:
        return problem(f"{DRIVER} is not installed", "Install it with: pip install 'dragoman[postgres]'")
    from app.storage.inspection.postgres import NEWEST, inspect_postgres

    try:
        report = await inspect_postgres(url)
    except StoreFailed as failure:
        return problem(str(failure), "Try the same URL with psql: it says if the database or dragoman is at fault.")
    subject.stored = report.stored
    about = f"{report.place}: PostgreSQL {report.version}, schema {report.schema}, {megabytes(report.size)}"
    found = f"{about}, answers in {report.answer_s * 1000:.1f} ms, {report.replicas} servers use it"
    return list(_objections(report, NEWEST)) or ok(found)


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
