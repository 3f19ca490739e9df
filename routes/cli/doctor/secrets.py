"""The check of secrets: each has a value now."""

from __future__ import annotations

from collections.abc import Sequence

from app.config.secret_spec import COMMAND
from app.secrets.library import Secrets, spec_of
from app.secrets.sources import SecretSources, SecretUnavailable
from app.storage.changes import Change
from app.storage.people.secrets import SecretRow
from routes.cli.doctor.finding import Finding, Findings, Subject, ok, problem, skipped, warning


class ReadSecrets:
    """The secrets that were read from the database, which is not written."""

    def __init__(self, rows: Sequence[SecretRow]) -> None:
        self._rows = rows

    async def secrets(self) -> list[SecretRow]:
        return list(self._rows)

    async def write(self, changes: Sequence[Change]) -> None:
        raise NotImplementedError


def secrets_of(subject: Subject) -> Secrets:
    """The secrets of this installation, whose values are redacted in the report."""
    sources = SecretSources.of(subject.settings, subject.environ)
    return Secrets(ReadSecrets(subject.stored.secrets), sources, subject.redactor)


async def secrets(subject: Subject) -> Findings:
    """Secrets: the key file fits, and each source has its value."""
    rows, known = subject.stored.secrets, secrets_of(subject)
    return [await _finding(subject, known, row) for row in rows] or ok("there are none")


async def _finding(subject: Subject, known: Secrets, row: SecretRow) -> Finding:
    spec = spec_of(row)
    if spec is None:
        return problem("its specification cannot be read", "Remove it and add it again.", row.name)
    kind = spec.source.partition(":")[0]
    if subject.offline and kind == COMMAND:
        return skipped("not checked, because of --offline", subject=row.name)
    try:
        await known.value(row.name)
    except SecretUnavailable as failure:
        advice = "Calls that go with it are refused until then. docs/secrets.md has the sources."
        return (warning if kind else problem)(str(failure), advice, row.name)  # a server may have another environment
    return ok(f"from {kind}" if kind else "stored", row.name)
