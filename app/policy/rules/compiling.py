"""Compiling the rows of rules; one that cannot be understood, or that can never decide anything, stops the start."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress

from app.config.sources import SettingsError
from app.core.rules import OperatorRule
from app.policy.permits.operator_permissions import (
    others_problems,
    permission_of_rule,
    permission_problems,
    silenced,
)
from app.policy.rules.argument_facts import BUILT_IN
from app.policy.rules.operator_rules import ALLOW, DENY, CompiledRule, OperatorRules
from app.policy.rules.path_globs import PathGlob, glob_error
from tools.base.rights import CLIENT_TOOLS, names_match
from tools.catalogue import CATALOGUE
from tools.web.egress import HostPattern, pattern_of
from tools.web.host_spellings import canonical, folded

# Tools whose names the server learns later: of MCP servers, and of the administration.
OUTSIDE = ("mcp__", "manage_")
_ODD = frozenset("\\'\"`$|&;<>(){}#\0")


def compiled_rules(rows: Sequence[OperatorRule]) -> OperatorRules:
    """Compile rows. Raises SettingsError with each problem, naming its row."""
    tools = [tool.name for tool in CATALOGUE]
    rules, problems = list[CompiledRule](), list[str]()
    for number, row in enumerate(rows, 1):
        label = f"rules entry {number}{f' ({row.name})' if row.name else ''}"
        found = list(_problems(row, tools))
        if not found:
            rule = _compiled(row, number)
            earlier = [one for one in rules if ALLOW not in (one.row.action, row.action)]
            found = [f"can never decide anything: {one} does already" for one in _shadowing(rule, earlier)]
            rules.append(rule)
        problems += [f"{label} {why}." for why in found]
    stricter = [rule for rule in rules if rule.row.action != ALLOW]
    permissions = [permission_of_rule(rule.row, rule.label) for rule in rules if rule.row.action == ALLOW]
    open_rules = [(rule.label, rule.row.tool) for rule in stricter if rule.is_open]
    problems += [f"rules: {why}." for permission in permissions for why in silenced(permission, open_rules)]
    for rule in stricter:
        later = [one for one in stricter if one.number > rule.number and rule.row.action != DENY and _covers(one, rule)]
        if later and later[0].row.action == DENY:
            problems.append(
                f"rules entry {rule.number} can never decide anything: entry {later[0].number} does already."
            )
    if len({rule.label for rule in rules}) < len(rules):
        problems.append("rules: two entries have the same name; give each a name of its own.")
    if problems:
        raise SettingsError(problems)
    return OperatorRules(tuple(rules), tuple(permissions))


def _compiled(row: OperatorRule, number: int) -> CompiledRule:
    hosts = tuple(pattern for host in row.hosts if (pattern := _host(host)))
    commands = tuple(tuple(command.split()) for command in row.commands)
    return CompiledRule(row, number, tuple(map(PathGlob, row.paths)), hosts, commands)


def _host(written: str) -> HostPattern | None:
    spelled = folded(written)
    with suppress(UnicodeError):
        spelled = spelled if spelled.isascii() else spelled.encode("idna").decode()
    if (pattern := pattern_of(spelled)) is None:
        return None
    wild = "*." if pattern.host.startswith("*.") else ""
    return (
        pattern if pattern.host == "*" else HostPattern(wild + canonical(pattern.host.removeprefix("*.")), pattern.port)
    )


def _problems(row: OperatorRule, tools: Sequence[str]) -> Iterator[str]:
    named = [name for name in tools if names_match((name,), (row.tool,))]
    outside = row.tool == "*" or row.tool.startswith(OUTSIDE)
    if not named and not outside and row.tool != CLIENT_TOOLS:
        near = ", ".join(tools[:40])
        yield f"names no tool with {row.tool!a}: there are {near}, mcp__SERVER__TOOL, manage_AREA and {CLIENT_TOOLS}"
    for glob in row.paths:
        if why := glob_error(glob):
            yield f"has a path that cannot be understood: {glob!a} {why}"
    for host in row.hosts:
        if _host(host) is None:
            yield f"has a host that cannot be understood: {host!a}; write *.example.org or example.org:8443"
    for command in row.commands if row.action != ALLOW else ():
        if why := _command_error(command):
            yield f"has a command that cannot be understood: {command!a} {why}"
    if row.action == ALLOW:
        yield from permission_problems(row)
        return
    yield from others_problems(row)
    if not outside and row.tool != CLIENT_TOOLS and named:
        yield from _without_meaning(row, named)


def _without_meaning(row: OperatorRule, names: Sequence[str]) -> Iterator[str]:
    reads = [BUILT_IN.get(name) for name in names]
    if any(one is None for one in reads):
        return
    known = [one for one in reads if one]
    if row.commands and not any(one.shell or one.code for one in known):
        yield f"can never match: {row.tool} runs no commands"
    if row.paths and not any(one.shell or one.code or one.paths for one in known):
        yield f"can never match: {row.tool} takes no paths"
    if row.hosts and not any(one.shell or one.code or one.hosts for one in known):
        yield f"can never match: {row.tool} takes no hosts"


def _command_error(command: str) -> str | None:
    words = command.split()
    if not words or not command.isprintable():
        return "is empty or holds characters that cannot be printed"
    if _ODD & set(command):
        return "has a character of the shell: write plain words, such as git push"
    if "/" in words[0]:
        return "has a path: write the name of the program alone, which every path to it matches"
    return None


def _shadowing(rule: CompiledRule, earlier: Sequence[CompiledRule]) -> list[str]:
    return [
        f"entry {one.number}"
        for one in earlier
        if _covers(one, rule) and (one.row.action == DENY or one.row.action == rule.row.action)
    ][:1]


def _covers(one: CompiledRule, other: CompiledRule) -> bool:
    """Return whether each call that `other` matches is surely matched by `one`."""
    if one.row.tool not in ("*", other.row.tool):
        return False
    for mine, theirs in ((one.paths, other.paths), (one.hosts, other.hosts), (one.commands, other.commands)):
        if mine and (not theirs or not set(theirs) <= set(mine)):
            return False
    return True
