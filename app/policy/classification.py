"""The classification of tools: the role that may use one, its risk, and if its results are untrusted.

`Classification.rights` is the one place that decides it; the gate asks for it when tools are offered and before each
call, so that a change counts for the next call of a run that is under way. Each value is that of the first source that
gives one, in this order:

1. the first rule of the setting `tools` that matches the name;
2. what a person has declared (page, API, command line): for the tool, then for its server;
3. what `mcp.json` declares: for the tool, then for its server;
4. the default: the role admin, the highest risk, untrusted.

The servers' hints count for trusted servers and tools only, those with a declaration of 2 or 3. `readOnlyHint` lowers a
risk that no source gives. Other hints add care to what is declared for a whole server, whose author may not have looked
at this tool; what is given for a tool stands as it is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from typing import TypeVar

from msgspec import Struct
from msgspec.structs import replace

from app.core.rules import ToolRule, classified, rule_for
from tools.base.rights import Approval, Column, Hints, Origin, Risk, Role, Trust
from tools.tool import NO_COLUMNS, Tool

T = TypeVar("T")
SERVER = ""  # in place of a tool's name: a declaration of the whole server
MOST_KNOWN = 4096  # classified tools that are kept
Declared = Mapping[tuple[str, str], Trust]
"""Declarations by server and tool (or SERVER)."""


class Source(StrEnum):
    """The source of a value of a classification."""

    SETTINGS = "settings"
    DECLARED_TOOL = "declared_tool"
    DECLARED_SERVER = "declared_server"
    FILE_TOOL = "file_tool"
    FILE_SERVER = "file_server"
    HINT = "hint"
    DEFAULT = "default"


OF_SERVER = frozenset({Source.DECLARED_SERVER, Source.FILE_SERVER})
_MILDEST_FIRST = list(Risk)


class Rights(Struct, frozen=True):
    """The classification of a tool of an MCP server, and the source of each value."""

    role: Role
    risk: Risk
    approval: Approval
    untrusted: bool
    sources: dict[str, Source]
    arguments: dict[str, Column] = {}


class Classification:
    """The rules of the settings, and the declarations in force. `version` changes with these.

    `search_tool` is the public name of the tool that `web_search` calls, whatever its classification is.
    """

    def __init__(self, rules: Sequence[ToolRule] = (), search_tool: str = "") -> None:
        self.version = 0
        self._rules = rules
        self._search_tool = search_tool
        self._declared: Declared = {}
        self._of_file: Declared = {}
        self._known: dict[str, tuple[Tool, Tool]] = {}  # name -> the tool as it was given, and classified
        self._listed: tuple[Sequence[Tool], int, Sequence[Tool]] | None = None

    def declare(self, declared: Declared, of_file: Declared) -> None:
        """Set the declarations: those of people, and those of the file."""
        if (declared, of_file) != (self._declared, self._of_file):
            self._declared, self._of_file = dict(declared), dict(of_file)
            self._known.clear()
            self.version += 1

    def declarations(self, server: str, tool: str = SERVER) -> tuple[Trust | None, Trust | None]:
        """Return what a person has declared of it, and what the file declares."""
        return self._declared.get((server, tool)), self._of_file.get((server, tool))

    def of(self, tool: Tool) -> Tool:
        """Return the tool as it is classified now."""
        if tool.origin is None:
            return classified(tool, self._rules)
        known = self._known.get(tool.name)
        if known and (known[0] is tool or known[1] is tool):
            return known[1]
        rights = self.rights(tool.name, tool.origin)
        values = {"role": rights.role, "risk": rights.risk, "approval": rights.approval, "untrusted": rights.untrusted}
        if len(self._known) >= MOST_KNOWN:
            self._known.clear()
        self._known[tool.name] = tool, (one := replace(tool, **values, columns=rights.arguments))
        return one

    def of_all(self, tools: Sequence[Tool]) -> Sequence[Tool]:
        """Return these tools as they are classified now: the same list for the same list, until that changes."""
        if self._listed is None or self._listed[0] is not tools or self._listed[1] != self.version:
            self._listed = tools, self.version, [self.of(tool) for tool in tools]
        return self._listed[2]

    def current(self, tool: Tool) -> Tool:
        """Return a tool that `of` has classified before as it is classified now: only those of servers change."""
        return tool if tool.origin is None else self.of(tool)

    def rights(self, name: str, origin: Origin, *, ruled: bool = True) -> Rights:
        """Return the classification of a server's tool by its public name and origin; if not `ruled`, without 1."""
        rule = rule_for(name, self._rules) if ruled else None
        given = list(self._declarations(origin))
        layers: list[tuple[Source, ToolRule | Trust]] = [(Source.SETTINGS, rule)] if rule else []
        layers += given
        role, role_from = _first(Role.ADMIN, ((source, one.role) for source, one in layers))
        risk, risk_from = _first(None, ((source, one.risk) for source, one in layers))
        untrusted, untrusted_from = _first(True, ((source, one.untrusted) for source, one in layers))
        hints = origin.hints
        if risk is None and given and (hinted := _hinted_risk(hints)):
            risk, risk_from = hinted, Source.HINT
        risk = risk or Risk.ADMIN
        if risk_from in OF_SERVER and (careful := _careful_risk(risk, hints)) is not risk:
            risk, risk_from = careful, Source.HINT
        if untrusted_from in OF_SERVER and hints.open_world and not untrusted:
            untrusted, untrusted_from = True, Source.HINT
        approval = rule.approval if rule else None
        sources = {"role": role_from, "risk": risk_from, "untrusted": untrusted_from}
        sources["approval"] = Source.SETTINGS if approval else Source.DEFAULT
        columns, columns_from = _first(NO_COLUMNS, ((source, one.arguments or None) for source, one in layers))
        if columns:
            sources["arguments"] = columns_from
        return Rights(role, risk, approval or "mode", untrusted=untrusted, sources=sources, arguments=dict(columns))

    def _declarations(self, origin: Origin) -> Iterator[tuple[Source, Trust]]:
        """Yield what is declared for a tool, the most decisive first."""
        for source, declared, tool in (
            (Source.DECLARED_TOOL, self._declared, origin.tool),
            (Source.DECLARED_SERVER, self._declared, SERVER),
            (Source.FILE_TOOL, self._of_file, origin.tool),
            (Source.FILE_SERVER, self._of_file, SERVER),
        ):
            if trust := declared.get((origin.server, tool)):
                yield source, trust

    def eased_by(self, name: str, origin: Origin) -> str:
        """Return what gives the tool fewer checks than an unclassified one has; empty if nothing does.

        Without a rule such a tool is for admins, has the highest risk, follows the mode, and its results are untrusted.
        """
        rights = self.rights(name, origin)
        strict = {"role": Role.ADMIN, "risk": Risk.ADMIN, "untrusted": True}
        eased = [rights.sources[field] for field, value in strict.items() if getattr(rights, field) != value]
        if rights.approval == "never":
            eased.append(Source.SETTINGS)
        if rights.arguments:
            eased.append(rights.sources["arguments"])
        if not eased:
            return "the setting search_tool" if name == self._search_tool else ""
        if Source.SETTINGS in eased and (rule := rule_for(name, self._rules)):
            return f"the rule {rule.match}"
        return f"the trust that is declared for {origin.server}"


class KnownTools(Classification):
    """The classification of tools that are classified already."""

    def of(self, tool: Tool) -> Tool:
        return tool

    def current(self, tool: Tool) -> Tool:
        return tool


NO_RULES = Classification()


def _first(default: T, given: Iterator[tuple[Source, T | None]]) -> tuple[T, Source]:
    return next(((value, source) for source, value in given if value is not None), (default, Source.DEFAULT))


def _hinted_risk(hints: Hints) -> Risk | None:
    """Return the risk of a tool that states to read only; None for others, and for one that contradicts itself."""
    if not hints.read_only or hints.destructive:
        return None
    return Risk.NETWORK if hints.open_world else Risk.READ


def _careful_risk(risk: Risk, hints: Hints) -> Risk:
    """Return the risk that is declared for the whole server, or a higher one that the tool itself states."""
    stated = [risk]
    if hints.destructive or hints.read_only is False:
        stated.append(Risk.WRITE)
    if hints.open_world:
        stated.append(Risk.NETWORK)
    return max(stated, key=_MILDEST_FIRST.index)
