"""The table of checks, and how they are run: side by side, each within its own time, all of them in less than 20 s."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from inspect import isawaitable, iscoroutinefunction

from msgspec import Struct
from msgspec.structs import replace

from app.redaction.redactor import Redactor
from routes.cli.doctor import database, folders, machine, mcp, models, network, replays, sandbox, secrets
from routes.cli.doctor.finding import Check, Finding, Findings, Look, State, Subject, in_thread, ok, problem, skipped
from routes.texts.exact import one_line

ALL_S = 19.0
MOST_FOUND = 400  # characters of a line


class Checked(Struct, frozen=True):
    """A finding with the name of its check."""

    check: str
    finding: Finding


def configuration(subject: Subject) -> Findings:
    """The settings: readable, known and valid."""
    if subject.loaded is None:
        return [problem(text, "Correct it; `dragoman serve --help` lists all settings.") for text in subject.objections]
    given = sum(origin != "default" for origin in subject.loaded.origins.values())
    return ok(f"{subject.loaded.config_file or 'no settings file'}, {given} settings given")


SETTINGS = ("configuration",)
FOLDER = ("configuration", "data directory", "server")
STORED = (*FOLDER, "database")
CHECKS = (
    Check("python", machine.python),
    Check("libraries", machine.libraries),
    Check("sqlite", machine.sqlite),
    Check("account", machine.account),
    Check("locale", machine.language),
    Check("memory", machine.memory),
    Check("proxies", machine.proxies),
    Check("configuration", configuration),
    Check("data directory", folders.data_dir, SETTINGS, limit_s=3.0),
    Check("server", folders.server, ("data directory",), limit_s=2.0),
    Check("database", database.database, FOLDER, limit_s=6.0),
    Check("replays", replays.replays, STORED, limit_s=18.0),
    Check("workspace", folders.workspace, SETTINGS),
    Check("permissions", folders.permissions, ("data directory",)),
    Check("clock", machine.clock, ("data directory",)),
    Check("open files", machine.open_files, SETTINGS),
    Check("address", network.address, STORED),
    Check("port", network.port, FOLDER),
    Check("sandbox", sandbox.sandbox, SETTINGS, limit_s=12.0),
    Check("command limits", sandbox.command_limits, limit_s=10.0),
    Check("embedded model", machine.embedded_model, STORED),
    Check("secrets", secrets.secrets, STORED, limit_s=19.0),
    Check("models", models.models, STORED, network=True, limit_s=19.0),
    Check("mcp servers", mcp.mcp_servers, STORED, network=True, limit_s=19.0),
    Check("clock skew", network.clock_skew, SETTINGS, network=True),
    Check("sign-in", network.identity_provider, SETTINGS, limit_s=15.0, network=True),
    Check("telemetry", network.telemetry, SETTINGS, limit_s=8.0, network=True),
)

Running = Mapping[str, "asyncio.Task[list[Finding]]"]


async def run_checks(checks: Sequence[Check], subject: Subject, *, all_s: float = ALL_S) -> list[Checked]:
    """The findings in the order of the table, without secrets. A check that breaks is a problem of its own."""
    running: dict[str, asyncio.Task[list[Finding]]] = {}
    for check in checks:
        running[check.name] = asyncio.create_task(_findings(check, subject, running))
    await asyncio.wait(running.values(), timeout=all_s)
    for task in running.values():
        task.cancel()
    await asyncio.wait(running.values(), timeout=1.0)
    return [
        Checked(check.name, _clean(finding, subject.redactor))
        for check in checks
        for finding in _result(running[check.name], all_s)
    ]


async def _findings(check: Check, subject: Subject, running: Running) -> list[Finding]:
    for name in check.needs:
        await asyncio.wait([running[name]])
        if _is_missing(running[name]):
            return [skipped(f"not checked, because of {name}")]
    if subject.offline and check.network:
        return [skipped("not checked, because of --offline")]
    try:
        async with asyncio.timeout(check.limit_s):
            found = await _look(check.look, subject)
    except TimeoutError:
        advice = "Check what hangs: a disk, a file server, another program."
        return [problem(f"not finished within {check.limit_s:g} s", advice)]
    return [found] if isinstance(found, Finding) else list(found)


async def _look(look: Look, subject: Subject) -> Findings:
    """A check that is no coroutine function may block: it runs in a thread."""
    found = look(subject) if iscoroutinefunction(look) else await in_thread(look, subject)
    return await found if isawaitable(found) else found


def _is_missing(task: asyncio.Task[list[Finding]]) -> bool:
    if task.cancelled() or task.exception():
        return True
    states = {finding.state for finding in task.result()}
    return State.PROBLEM in states or any("not checked" in finding.found for finding in task.result())


def _result(task: asyncio.Task[list[Finding]], all_s: float) -> list[Finding]:
    if not task.done() or task.cancelled():
        return [problem(f"not finished within {all_s:g} s", "Try again when the machine is less busy.")]
    if error := task.exception():
        advice = "Report this as a bug, with the version of the first line."
        return [problem(f"the check itself failed: {type(error).__name__}: {error}", advice)]
    return task.result()


def _clean(finding: Finding, redactor: Redactor) -> Finding:
    """Without secrets, and without characters that move the cursor: parts of it are texts of other programs."""
    texts = {
        name: one_line(redactor.redact(getattr(finding, name)))[:MOST_FOUND] for name in ("found", "advice", "subject")
    }
    return replace(finding, **texts)
