"""What an operator says of tools and of asking, in the settings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from pydantic import BaseModel, ConfigDict, Field

from tools.base.rights import Approval, Risk, Role

if TYPE_CHECKING:  # it imports asyncio, which the settings do without
    from tools.tool import Tool


class ApprovalMode(StrEnum):
    """What a run does with calls that a person may want to see first."""

    SANDBOXED = "sandboxed"  # what stays in the sandbox and the workspace runs at once, whatever leaves them asks
    ASK = "ask"  # whatever writes, executes or reaches the network asks, but for what a box keeps from doing harm
    AUTO = "auto"  # nothing asks but what asks in every mode; for admins
    DENY = "deny"  # as sandboxed, and nobody is there (WhenAbsent.DENY): what would ask is refused


class WhenAbsent(StrEnum):
    """What becomes of a call that a person should decide on."""

    WAIT = "wait"  # it waits for them, however long that takes, or as long as the settings say
    DENY = "deny"  # nobody will come: it is refused at once


class ToolRule(BaseModel):
    """How the tools whose names match (`mcp__files__*`) are classified. What is None stays as the tool says."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    match: str = Field(min_length=1)
    role: Role | None = None
    risk: Risk | None = None
    approval: Approval | None = None
    untrusted: bool | None = None

    def applied(self, tool: Tool) -> Tool:
        return replace(
            tool,
            role=self.role or tool.role,
            risk=self.risk or tool.risk,
            approval=self.approval or tool.approval,
            untrusted=tool.untrusted if self.untrusted is None else self.untrusted,
        )


def easing_rule(name: str, rules: Sequence[ToolRule]) -> str:
    """The pattern of the rule that gives an MCP tool of this name fewer checks than it has unclassified; else empty.

    Such a tool belongs to admins, has the highest risk, asks as the mode says, and its results are untrusted.
    """
    rule = next((rule for rule in rules if fnmatchcase(name, rule.match)), None)
    if rule is None:
        return ""
    kept = (None, Role.ADMIN), (None, Risk.ADMIN), (None, "mode", "always"), (None, True)
    said = rule.role, rule.risk, rule.approval, rule.untrusted
    return "" if all(one in unchanged for one, unchanged in zip(said, kept, strict=True)) else rule.match


def classified(tool: Tool, rules: Sequence[ToolRule]) -> Tool:
    """The tool as the first rule that matches its name says."""
    return next((rule.applied(tool) for rule in rules if fnmatchcase(tool.name, rule.match)), tool)
