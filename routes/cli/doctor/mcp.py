"""Checks of the MCP servers of the file and of the database: each is started, asked for its tools, and ended."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

from msgspec.structs import replace

from app.mcp.secrets import secrets_of
from routes.cli.doctor.finding import Finding, Findings, Subject, ok, problem, skipped, warning
from tools.mcp.config.entries import config_of, read_config
from tools.mcp.config.variables import Variables
from tools.mcp.manager import Manager
from tools.mcp.model import ServerConfig, ServerState, Status

TIME_S = 8.0
MOST_SERVERS = 16
SHOWN = 160  # characters of an error


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
    if not configs:
        return []
    manager = Manager(configs, private_hosts=subject.settings.private_hosts)
    try:
        await manager.open()
        return [_finding(await manager.settled(config.name, TIME_S)) for config in configs]
    finally:
        await manager.close()


def _finding(status: Status) -> Finding:
    name = status.name
    if status.state is ServerState.READY or (status.tools and not status.error):
        return ok(f"{len(status.tools)} tools", name)
    if status.state is ServerState.NEEDS_AUTH:
        return warning("needs a sign-in", "Sign in on the page, unless you have done so.", name)
    why = " ".join((status.error or " ".join(status.stderr_tail) or f"is {status.state}").split())
    return problem(why[:SHOWN], "Try its command or URL by hand; `dragoman mcp list` has its last lines.", name)
