"""What a person has allowed for the rest of a session: the same call again, calls that fit a pattern, or hosts."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from app.policy.patterns import ANY, STAR, matches_pattern, words_of
from app.storage.approvals import GrantRow
from parsing import Arguments
from tools.base.permit import fingerprint
from tools.shell_policy.plain_commands import allowed, refusal
from tools.tool import Tool
from tools.web import egress

# Words in the names of arguments that are read as a shell reads them, never as plain text.
_COMMANDS = frozenset(("argv", "bash", "cmd", "cmdline", "command", "commandline", "shell"))
# Arguments that no pattern can be trusted with.
PROGRAMS = frozenset(("code", "script", "source_code"))


@dataclass(frozen=True, slots=True)
class Grant:
    """Calls of one tool: exactly those with `fingerprint`, or those whose every argument fits `pattern`.

    Or, with `hosts`, network to these for all commands. `expires` is a Unix time, None for never; `tainted`: given
    when the conversation held untrusted text.
    """

    tool: str
    fingerprint: str | None = None
    pattern: Mapping[str, str] | None = None
    hosts: tuple[str, ...] = ()
    expires: float | None = None
    tainted: bool = False
    created: float = math.inf  # just now

    @property
    def in_force(self) -> bool:
        return self.expires is None or time.time() < self.expires

    def covers(self, principal: str, arguments: Arguments) -> bool:
        """Whether it allows this very call; hosts are looked at by `without_granted_hosts` only."""
        if not self.in_force or self.hosts:
            return False
        if self.fingerprint is not None:
            return fingerprint(principal, self.tool, arguments) == self.fingerprint
        if not self.pattern or not arguments or self.pattern.keys() != arguments.keys():
            return False  # an argument that nobody had in mind is not covered
        return all(_matches(name, arguments[name], pattern) for name, pattern in self.pattern.items())


def is_command(name: str) -> bool:
    """Whether an argument of this name holds a shell's command."""
    return not _COMMANDS.isdisjoint(words_of(name))


def _matches(name: str, value: object, pattern: str) -> bool:
    if is_command(name):
        return isinstance(value, str) and allowed(value, (pattern,))
    if name in PROGRAMS:
        return value in (pattern, pattern.replace(STAR, ANY)) and pattern != ANY
    if isinstance(value, str):
        return matches_pattern(name, value, pattern)
    return pattern in (ANY, json.dumps(value, sort_keys=True))


def holding(grants: Iterable[Grant], *, tainted: bool) -> tuple[Grant, ...]:
    """Those that let a call out of the box: once the conversation holds untrusted text, only those given since then."""
    return tuple(grant for grant in grants if grant.in_force and (grant.tainted or not tainted))


def reaches_hosts(tool: Tool | None) -> bool:
    """Whether its argument `network` names what the sandbox lets it reach; elsewhere it is any argument."""
    return tool is not None and tool.confined and egress.NETWORK in tool.parameters.get("properties", {})


def granted_hosts(grants: Iterable[Grant]) -> tuple[str, ...]:
    """All hosts that commands of the session may reach without a question."""
    return tuple(sorted({host for grant in grants if grant.in_force for host in grant.hosts}))


def without_granted_hosts(grants: Iterable[Grant], arguments: Arguments) -> Arguments:
    """What of a call is left to decide on: the same without `network`, where all hosts that it names are granted."""
    wanted = egress.hosts_wanted(arguments)
    if not wanted or not egress.covers(granted_hosts(grants), wanted):
        return arguments
    return {name: value for name, value in arguments.items() if name != egress.NETWORK}


def narrowed(grants: Iterable[Grant], arguments: Arguments) -> Arguments:
    """A call that wants any host wants those that are granted, if there are any; one that names some wants these."""
    hosts = granted_hosts(grants)
    if not hosts or egress.hosts_wanted(arguments) != egress.ANYWHERE:
        return arguments
    return egress.normalise_network({**arguments, egress.NETWORK: list(hosts)})


def pattern_error(tool: str, pattern: Mapping[str, str], arguments: Arguments) -> str | None:
    """Why a pattern for calls like this one would be of no use; None when it would."""
    for name in filter(is_command, pattern):
        if reason := refusal(pattern[name]):
            return reason
    for name in PROGRAMS & pattern.keys():
        if not _matches(name, arguments.get(name), pattern[name]):
            return f"{name} is a program, which no pattern can bound: give it as it is, or leave the pattern out."
    if Grant(tool, pattern=pattern).covers("", arguments):
        return None
    names = ", ".join(arguments) or "none"
    return (
        f"The pattern does not fit this very call: give one for each of its arguments ({names}). A * stands for any "
        "text without ; & | $ , @ and the like, never for the end of a host (https://*.example.org/*), nor for a space "
        "in a pattern without any; a lone * for any value, [*] for a star."
    )


def grant_of(row: GrantRow) -> Grant:
    hosts = tuple(json.loads(row.hosts)) if row.hosts else ()
    pattern = json.loads(row.pattern) if row.pattern else None
    return Grant(row.tool, row.fingerprint, pattern, hosts, row.expires, bool(row.tainted), row.created)
