"""Who may do what: one function, asked for what to offer a model and again before each call is run.

Rights are an allow-list: a tool that nobody classified belongs to admins, and a role that is not high enough may not.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase

from app.grants import Grant
from app.people import Principal
from app.rules import Mode
from parsing import Arguments
from tools.commands import allowed
from tools.rights import Risk, Role
from tools.tool import Tool
from tools.toolbox import Allow, Ask, Decision, Refuse


@dataclass(frozen=True, slots=True)
class Circumstances:
    """What a decision depends on beside the principal and the tool.

    `boxed`: commands run in a sandbox without network. `tainted`: the conversation holds strangers' words. `commands`
    are patterns of shell commands that never ask. `disabled` are patterns of tools that the session goes without.
    """

    mode: Mode = Mode.SANDBOXED
    boxed: bool = False
    tainted: bool = False
    commands: tuple[str, ...] = ()
    disabled: tuple[str, ...] = ()
    grants: tuple[Grant, ...] = ()


def decide(
    principal: Principal, tool: Tool, arguments: Arguments | None = None, under: Circumstances = Circumstances()
) -> Decision:
    """May `principal` use `tool`, with these arguments or (None) at all?"""
    if reason := _forbidden(principal, tool, under):
        return Refuse(reason)
    question = _question(principal, tool, arguments, under)
    if question and under.mode is Mode.DENY:
        return Refuse(f"{question} This run asks nobody (approval: deny).")
    return Ask(question) if question else Allow()


@dataclass(slots=True)
class Gate:
    """`decide` for one run, in its circumstances of the moment. `watches_taint`: strangers' words make it stricter."""

    principal: Principal
    under: Circumstances = Circumstances()
    watches_taint: bool = True
    _at_all: dict[int, tuple[Tool, Circumstances, Decision]] = field(default_factory=dict)  # by id of the tool

    def decide(self, tool: Tool, arguments: Arguments | None = None) -> Decision:
        if arguments is not None:
            return decide(self.principal, tool, arguments, self.under)
        known = self._at_all.get(id(tool))  # what to offer is asked again and again
        if known is None or known[1] is not self.under:
            known = tool, self.under, decide(self.principal, tool, None, self.under)
            self._at_all[id(tool)] = known
        return known[2]

    def enter(self, disabled: Iterable[str], grants: Iterable[Grant], *, tainted: bool) -> None:
        """What the session brings with it."""
        self.disable(disabled)
        self.grant(grants)
        if tainted:
            self.taint()

    def disable(self, patterns: Iterable[str]) -> None:
        """All that the session goes without."""
        self.under = replace(self.under, disabled=tuple(patterns))

    def grant(self, grants: Iterable[Grant]) -> None:
        """All that the session's person has granted."""
        self.under = replace(self.under, grants=tuple(grants))

    def taint(self) -> None:
        self.under = replace(self.under, tainted=self.watches_taint)


def _forbidden(principal: Principal, tool: Tool, under: Circumstances) -> str | None:
    if principal.role.rank < tool.role.rank:
        return f"{tool.name} needs the role {tool.role}; {principal.name} is a {principal.role}."
    if principal.tools and not _matches(tool.name, principal.tools):
        return f"{tool.name} is not among the tools of {principal.name}."
    if _matches(tool.name, principal.disabled):
        return f"{tool.name} is disabled for {principal.name}."
    if _matches(tool.name, under.disabled):
        return f"{tool.name} is disabled in this session."
    return None


def _question(principal: Principal, tool: Tool, arguments: Arguments | None, under: Circumstances) -> str | None:
    """Why a person is to be asked; None when nobody has to be."""
    if tool.approval == "always":
        return f"{tool.name} asks each time."
    if tool.risk is Risk.READ:
        return None
    if under.tainted:
        return f"This conversation holds text from strangers, and {tool.name} could be their doing."
    if tool.approval == "never" or _covered(principal, tool, arguments, under):
        return None
    if under.mode is Mode.AUTO and principal.role is Role.ADMIN:
        return None
    if under.mode is Mode.ASK:
        return f"{tool.name} is a tool that can {_VERBS[tool.risk]}, and this run asks first."
    if tool.confined and (under.boxed or tool.risk is not Risk.EXECUTE):
        return None
    where = "no sandbox keeps it in" if tool.confined else "it reaches beyond the sandbox and the workspace"
    return f"{tool.name} can {_VERBS[tool.risk]}, and {where}."


_VERBS = {
    Risk.READ: "read",
    Risk.WRITE: "write",
    Risk.EXECUTE: "execute commands",
    Risk.NETWORK: "reach the network",
    Risk.ADMIN: "change the server",
}


def _covered(principal: Principal, tool: Tool, arguments: Arguments | None, under: Circumstances) -> bool:
    """Whether the operator's list of commands or a grant of the session allows the call; perhaps, without arguments."""
    if tool.name == "bash" and under.commands:
        if arguments is None:
            return True
        command = arguments.get("command")
        if isinstance(command, str) and allowed(command, under.commands):
            return True
    grants = [grant for grant in under.grants if grant.tool == tool.name]
    if arguments is None:
        return bool(grants)
    return any(grant.covers(principal.name, arguments) for grant in grants)


def _matches(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)
