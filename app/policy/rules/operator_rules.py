"""The operator's rules, compiled: the strictest match of a call's arguments decides.

A rule matches if each of its conditions matches one entry. What cannot be read counts as a match that asks, also for a
rule that denies: refusing every command with a variable in it would leave nothing to work with.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from itertools import islice
from pathlib import Path

from msgspec import Struct

from app.core.rules import OperatorRule
from app.policy.permits.permissions import Permission
from app.policy.rules.argument_facts import ArgumentFacts, facts_of_call
from app.policy.rules.path_globs import ON_DISK, Links, PathGlob, Strength, spellings
from parsing import Arguments
from tools.base.rights import CLIENT_TOOLS, names_match
from tools.base.workspace import home_of
from tools.shell_policy.command_facts import CommandFacts
from tools.shell_policy.command_grammar import UNREAD
from tools.shell_policy.plain_commands import Words
from tools.tool import Tool
from tools.web.egress import HostPattern, pattern_of
from tools.web.host_spellings import HostName, canonical, folded, hosts_in

DENY, ASK, ALLOW = "deny", "ask", "allow"
MOST_WORDS = 2_000  # that are searched for hosts
TOO_MANY = "it has too many words to be read, or names links of processes"


class Finding(Struct, frozen=True):
    """The strictest rule that matches a call. `reason` is a sentence for the model and the person."""

    action: str
    reason: str
    rule: str


IN_DOUBT = "A rule of this server may forbid it"


class CompiledRule(Struct, frozen=True):
    """One row. `number` counts from 1."""

    row: OperatorRule
    number: int
    paths: tuple[PathGlob, ...]
    hosts: tuple[HostPattern, ...]
    commands: tuple[Words, ...]

    @property
    def label(self) -> str:
        return self.row.name or f"rules[{self.number}]"

    def is_about(self, tool: Tool) -> bool:
        return names_match((tool.name, CLIENT_TOOLS if tool.handed else tool.through), (self.row.tool,))

    @property
    def is_open(self) -> bool:
        """True if it matches every call of its tools."""
        return not (self.paths or self.hosts or self.commands)

    def strength(self, facts: ArgumentFacts, workspace: Path, links: Links) -> Strength:
        """Return how surely all conditions match."""
        return min(
            _of_paths(self.paths, facts, workspace, links) if self.paths else Strength.CERTAIN,
            _of_hosts(self.hosts, facts) if self.hosts else Strength.CERTAIN,
            _of_commands(self.commands, facts.commands) if self.commands else Strength.CERTAIN,
        )


class OperatorRules(Struct, frozen=True, eq=False):  # part of the key of offered tools: compared by identity
    """All rules of a server, in their order. `permissions` are what those give that allow."""

    rules: tuple[CompiledRule, ...] = ()
    permissions: tuple[Permission, ...] = ()
    links: Links = ON_DISK

    def __bool__(self) -> bool:
        return bool(self.rules)

    def find(self, tool: Tool, arguments: Arguments | None, workspace: Path) -> Finding | None:
        """Return the strictest rule that denies or asks, for a call or (without arguments) every call of the tool."""
        about = [rule for rule in self.rules if rule.row.action != ALLOW and rule.is_about(tool)]
        if not about:
            return None
        facts = (
            facts_of_call(tool, arguments) if arguments is not None and any(not one.is_open for one in about) else None
        )
        found = [finding for rule in about if (finding := _finding(rule, facts, workspace, self.links))]
        return next((one for one in found if one.action == DENY), found[0] if found else None)


NO_OPERATOR_RULES = OperatorRules()


def _finding(rule: CompiledRule, facts: ArgumentFacts | None, workspace: Path, links: Links) -> Finding | None:
    sure = Strength.CERTAIN if rule.is_open else rule.strength(facts, workspace, links) if facts else Strength.NONE
    if sure is Strength.NONE:
        return None
    reason = rule.row.reason if rule.row.reason.endswith((".", "!", "?")) else f"{rule.row.reason}."
    if sure is Strength.POSSIBLE:
        doubts = [facts.doubted, *(one.doubted_commands for one in facts.commands)] if facts else []
        why = next(filter(None, doubts), "it may be about the same" if facts else "")
        return Finding(ASK, f"{IN_DOUBT} ({rule.label}: {reason} {why[:1].upper()}{why[1:]}).", rule.label)
    return Finding(rule.row.action, f"A rule of this server ({rule.label}): {reason}", rule.label)


def _of_paths(globs: Sequence[PathGlob], facts: ArgumentFacts, workspace: Path, links: Links) -> Strength:
    paths, more = spellings(facts.paths, str(workspace), links)
    home = str(home_of(workspace))
    doubted = TOO_MANY if more else facts.doubted
    return _strongest((glob.strength(paths, home, links) for glob in globs), doubted=doubted)


def _of_hosts(patterns: Sequence[HostPattern], facts: ArgumentFacts) -> Strength:
    doubted = TOO_MANY if len(facts.hosts) > MOST_WORDS else facts.doubted
    return _strongest(_host_strengths(patterns, facts), doubted=doubted)


def _host_strengths(patterns: Sequence[HostPattern], facts: ArgumentFacts) -> Iterable[Strength]:
    for wanted in map(pattern_of, facts.network):
        for pattern in patterns:
            if wanted is None or (wanted.covers(pattern) and wanted != pattern):
                yield Strength.POSSIBLE
            elif pattern.covers(HostPattern(canonical(wanted.host), wanted.port)) or pattern.covers(wanted):
                yield Strength.CERTAIN
            elif pattern.port is not None and wanted.port is None and HostPattern(pattern.host).covers(wanted):
                yield Strength.POSSIBLE
    for text in islice(facts.hosts, MOST_WORDS):
        names, plain = list(hosts_in(text)), folded(text)
        for pattern in patterns:
            if any(_is_named(pattern, one) for one in names):
                yield Strength.CERTAIN
            elif pattern.host.lstrip("*.") in plain:
                yield Strength.POSSIBLE


def _is_named(pattern: HostPattern, name: HostName) -> bool:
    """Return whether the pattern names this host, by any port if the text has none."""
    port = name.port if name.port is not None else pattern.port or 0
    return bool(name.host) and pattern.matches(name.host, port)


def _of_commands(wanted: Sequence[Words], commands: Sequence[CommandFacts]) -> Strength:
    doubted = next((facts.doubted_commands for facts in commands if facts.doubted_commands), "")
    return _strongest((_in_facts(words, facts) for words in wanted for facts in commands), doubted=doubted)


def _in_facts(wanted: Words, facts: CommandFacts) -> Strength:
    found = Strength.NONE
    for words in facts.commands:
        if fnmatchcase(words[0], wanted[0]):
            found = max(found, _holds(words[1:], wanted[1:]))
    if found is Strength.NONE and any(fnmatchcase(word, wanted[0]) for word in facts.mentioned):
        return Strength.POSSIBLE
    return found


def _holds(words: Words, wanted: Words) -> Strength:
    """Return if the wanted words stand among the words, in their order."""
    left = iter(words)
    if all(any(fnmatchcase(word, one) for word in left) for one in wanted):
        return Strength.CERTAIN
    return Strength.POSSIBLE if any(UNREAD in word or "$" in word for word in words) else Strength.NONE


def _strongest(found: Iterable[Strength], *, doubted: str) -> Strength:
    best = Strength.POSSIBLE if doubted else Strength.NONE
    for one in found:
        if one is Strength.CERTAIN:
            return one
        best = max(best, one)
    return best
