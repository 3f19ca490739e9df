"""Grants of a session: allow the same call again, calls that match a pattern, or hosts."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterable, Mapping

from msgspec import Struct

from app.policy.patterns import ANY, STAR, matches_pattern, words_of
from app.storage.approvals import GrantRow
from parsing import Arguments
from tools.base.permit import fingerprint
from tools.shell_policy.plain_commands import allowed, refusal
from tools.tool import Tool
from tools.web import egress

# Words in the names of arguments that contain shell commands.
_COMMANDS = frozenset(("argv", "bash", "cmd", "cmdline", "command", "commandline", "shell"))
# Arguments that contain programs: a pattern cannot bound what these do.
PROGRAMS = frozenset(("code", "script", "source_code"))


class Grant(Struct, frozen=True):
    """Allows calls of one tool: exactly those with `fingerprint`, or those whose every argument matches `pattern`.

    With `hosts` it allows network access to these for all commands. `expires` is a Unix time, None for never;
    `tainted`: granted when the conversation contained untrusted text. `secrets`: those that the call was shown with.
    """

    tool: str
    fingerprint: str | None = None
    pattern: Mapping[str, str] | None = None
    hosts: tuple[str, ...] = ()
    expires: float | None = None
    tainted: bool = False
    created: float = math.inf  # just now
    secrets: str = ""

    @property
    def in_force(self) -> bool:
        return self.expires is None or time.time() < self.expires

    def covers(self, principal: str, arguments: Arguments) -> bool:
        """True if it allows this call; grants of hosts are applied by `without_granted_hosts` instead."""
        if not self.in_force or self.hosts:
            return False
        if self.fingerprint is not None:
            return fingerprint(principal, self.tool, arguments) == self.fingerprint
        if not self.pattern or not arguments or self.pattern.keys() != arguments.keys():
            return False  # a pattern covers only calls with the same arguments
        return all(_matches(name, arguments[name], pattern) for name, pattern in self.pattern.items())


def is_command(name: str) -> bool:
    """True if an argument of this name contains a shell command."""
    return not _COMMANDS.isdisjoint(words_of(name))


def _matches(name: str, value: object, pattern: str) -> bool:
    if is_command(name):
        return isinstance(value, str) and allowed(value, (pattern,))
    if name in PROGRAMS:
        return value in (pattern, pattern.replace(STAR, ANY)) and pattern != ANY
    if isinstance(value, str):
        return matches_pattern(name, value, pattern)
    return pattern in (ANY, json.dumps(value, sort_keys=True))


def reaches_hosts(tool: Tool | None) -> bool:
    """True if the tool's argument `network` lists hosts for the sandbox; in other tools it has no special meaning."""
    return tool is not None and tool.confined and egress.NETWORK in tool.parameters.get("properties", {})


def granted_hosts(grants: Iterable[Grant]) -> tuple[str, ...]:
    """Return all hosts that commands of the session may reach without approval."""
    return tuple(sorted({host for grant in grants if grant.in_force for host in grant.hosts}))


def without_granted_hosts(grants: Iterable[Grant], arguments: Arguments) -> Arguments:
    """Return the arguments without `network` if all its hosts are granted, so that only the rest needs a decision."""
    wanted = egress.hosts_wanted(arguments)
    if not wanted or not egress.covers(granted_hosts(grants), wanted):
        return arguments
    return {name: value for name, value in arguments.items() if name != egress.NETWORK}


def narrowed(grants: Iterable[Grant], arguments: Arguments) -> Arguments:
    """Replace a request for any host by the granted hosts, if there are any."""
    hosts = granted_hosts(grants)
    if not hosts or egress.hosts_wanted(arguments) != egress.ANYWHERE:
        return arguments
    return egress.normalise_network({**arguments, egress.NETWORK: list(hosts)})


def pattern_error(tool: str, pattern: Mapping[str, str], arguments: Arguments) -> str | None:
    """Return why a pattern is unusable for calls like this one; None if it is usable."""
    for name in filter(is_command, pattern):
        if reason := refusal(pattern[name]):
            return reason
    for name in PROGRAMS & pattern.keys():
        if not _matches(name, arguments.get(name), pattern[name]):
            return f"{name} is a program, which no pattern can bound: send it unchanged, or leave pattern out."
    if Grant(tool, pattern=pattern).covers("", arguments):
        return None
    names = ", ".join(arguments) or "none"
    return (
        f"The pattern does not match this call: send one for each of its arguments ({names}). A * matches any text "
        "without ; & | $ , @ and similar characters, never the end of a host name (https://*.example.org/*), and no "
        "space in a pattern without spaces; a lone * matches any value, [*] an asterisk."
    )


def grant_of(row: GrantRow) -> Grant:
    hosts = tuple(json.loads(row.hosts)) if row.hosts else ()
    pattern = json.loads(row.pattern) if row.pattern else None
    return Grant(
        row.tool,
        fingerprint=row.fingerprint,
        pattern=pattern,
        hosts=hosts,
        expires=row.expires,
        tainted=bool(row.tainted),
        created=row.created,
        secrets=row.secrets,
    )
