"""Rules of the settings: approval modes, the classification of tools, and the operator's rules on arguments."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Literal

from msgspec.structs import replace
from pydantic import BaseModel, ConfigDict, Field

from tools.base.rights import Approval, Column, Risk, Role, names_match

if TYPE_CHECKING:  # it imports asyncio, which the settings do without
    from tools.tool import Tool

MAX_PATTERN = 200
MOST_CONDITIONS = 200  # of an operator's rule


class ApprovalMode(StrEnum):
    """The calls of a run that need approval."""

    SANDBOXED = "sandboxed"  # calls inside of the sandbox and the workspace run at once, others need approval
    ASK = "ask"  # calls that write, execute or reach the network need approval, except harmless ones in the sandbox
    AUTO = "auto"  # only calls that need approval in every mode; for admins
    DENY = "deny"  # as sandboxed, with WhenAbsent.DENY: calls that need approval are refused


class WhenAbsent(StrEnum):
    """The treatment of a call that needs approval."""

    WAIT = "wait"  # it waits for a decision, up to the time limit of the settings, if there is one
    DENY = "deny"  # it is refused at once


class ToolRule(BaseModel, defer_build=True):
    """The classification of tools whose names match (`mcp__files__*`). None keeps the tool's own value.

    `arguments`: the columns of arguments by name, dotted for nested ones (`to`, `attachments.id`).
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    match: str = Field(min_length=1)
    role: Role | None = None
    risk: Risk | None = None
    approval: Approval | None = None
    untrusted: bool | None = None
    arguments: dict[str, Column] = Field(default_factory=dict, max_length=MOST_CONDITIONS)

    def applied(self, tool: Tool) -> Tool:
        return replace(
            tool,
            role=self.role or tool.role,
            risk=self.risk or tool.risk,
            approval=self.approval or tool.approval,
            untrusted=tool.untrusted if self.untrusted is None else self.untrusted,
            columns={**tool.columns, **self.arguments} if self.arguments else tool.columns,
        )


class OperatorRule(BaseModel, defer_build=True):
    """A row of `rules`. It matches if each condition that it has matches one of its entries; without any, always."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    tool: str = Field(min_length=1, max_length=200)
    action: Literal["deny", "ask"]
    reason: str = Field(min_length=1, max_length=400)
    name: str = Field("", max_length=64)
    paths: tuple[str, ...] = Field((), max_length=MOST_CONDITIONS)
    hosts: tuple[str, ...] = Field((), max_length=MOST_CONDITIONS)
    commands: tuple[str, ...] = Field((), max_length=MOST_CONDITIONS)


def rule_for(name: str, rules: Sequence[ToolRule]) -> ToolRule | None:
    """The first rule that matches the name of a tool."""
    return next((rule for rule in rules if names_match((name,), (rule.match,))), None)


def classified(tool: Tool, rules: Sequence[ToolRule]) -> Tool:
    """The tool, as its rule classifies it."""
    rule = rule_for(tool.name, rules)
    return rule.applied(tool) if rule else tool


def checked_pattern(pattern: str) -> str:
    """A pattern of tool names. Raises ValueError."""
    if not pattern.strip() or not pattern.isprintable() or len(pattern) > MAX_PATTERN:
        raise ValueError(f"a pattern of tools has 1 to {MAX_PATTERN} printable characters, such as mcp__files__*")
    return pattern
