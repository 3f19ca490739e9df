"""Checks of the MCP servers of the file and of the database: each is started, asked for its tools, and ended."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path

from msgspec.structs import replace

from app.mcp.secrets import completed, secrets_of
from routes.cli.doctor.finding import Finding, Findings, Subject, ok, problem, skipped, warning
from routes.cli.doctor.secrets import secrets_of as secrets_of_installation
from tools.mcp.config.entries import config_of, read_config
from tools.mcp.config.variables import Variables
from tools.mcp.manager import Manager
from tools.mcp.model import Hooks, ServerConfig, ServerState, Status

MOST_SERVERS = 64
SHOWN = 240  # characters of an error


async def mcp_servers(subject: Subject) -> Findings:
    """The file of servers, and each server that is switched on: started, asked for its tools, and ended."""
    settings = subject.settings
    wanted: dict[str, ServerConfig] = {}
    findings: list[Finding] = []
    if settings.mcp_config.exists():
        configured = read_config(settings.mcp_config, subject.environ, settings.workspace)
        if configured.problem:
            findings.append(problem(configured.problem, f"Correct {settings.mcp_config}."))
        wanted |= {config.name: config for config in configured.configs}
    wanted = _added(subject) | wanted
    for row in subject.stored.mcp_servers:
        if row.name in wanted and row.enabled is not None:
            wanted[row.name] = replace(wanted[row.name], enabled=row.enabled)
    for config in wanted.values():
        subject.redactor.add(*secrets_of(config))
    findings += _unfit(wanted)
    enabled = [config for config in wanted.values() if config.enabled and not config.problem]
    findings += await _started(subject, enabled[:MOST_SERVERS])
    if len(enabled) > MOST_SERVERS:
        findings.append(skipped(f"{len(enabled) - MOST_SERVERS} more servers", "`dragoman mcp list` has their states."))
    return findings or ok("none is configured")


def _added(subject: Subject) -> dict[str, ServerConfig]:
    entries = {row.name: row.entry for row in subject.stored.mcp_servers if row.entry is not None}
    variables = Variables(None, Path(), subject.settings.workspace)
    return {name: config_of(name, json.loads(entry), variables, from_api=True) for name, entry in entries.items()}


def _unfit(wanted: Mapping[str, ServerConfig]) -> Iterator[Finding]:
    for config in wanted.values():
        if config.problem:
            yield problem(config.problem, "Correct its entry.", config.name)
        elif not config.enabled:
            yield skipped("switched off", f"`dragoman mcp enable {config.name}` switches it on.", config.name)


async def _started(subject: Subject, configs: list[ServerConfig]) -> list[Finding]:
    """Start the servers, and return what becomes of each within the time for all."""
    if not configs:
        return []
    hooks = Hooks(complete=partial(completed, secrets_of_installation(subject)))
    manager = Manager(configs, hooks=hooks, private_hosts=subject.settings.private_hosts)
    try:
        await manager.open()
        return await settled_findings(manager, [config.name for config in configs], subject.mcp_s)
    finally:
        await manager.close()


async def settled_findings(manager: Manager, names: list[str], limit_s: float) -> list[Finding]:
    """Return what becomes of these servers within the time; those that are not settled then are named in one."""
    waiting = [asyncio.create_task(manager.settled(name, limit_s)) for name in names]
    settled = [await one for one in waiting]
    slow = [one.name for one in settled if _is_slow(one)]
    findings = [_finding(status) for status in settled if status.name not in slow]
    if slow:
        advice = "Try again when the machine is less busy; `dragoman mcp list` has their states."
        findings.append(problem(f"not finished within {limit_s:g} s: {', '.join(slow)}", advice))
    return findings


def _is_slow(status: Status) -> bool:
    return status.state in (ServerState.CONNECTING, ServerState.STOPPED) and not (status.tools or status.error)


def _finding(status: Status) -> Finding:
    name = status.name
    if status.state is ServerState.READY or (status.tools and not status.error):
        if status.notes and not status.tools:
            return warning(status.notes[-1][:SHOWN], "Give it what it asks for in `env` of its entry.", name)
        return ok(f"{len(status.tools)} tools", name)
    if status.state is ServerState.NEEDS_AUTH:
        return warning("needs a sign-in", "Sign in on the page, unless you have done so.", name)
    why = " ".join((status.error or f"is {status.state}").split())
    return problem(why[:SHOWN], "Try its command or URL by hand; `dragoman mcp list` has its last lines.", name)
