"""Rules of the settings: approval modes, the classification of tools, and the operator's rules on arguments."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, date, datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Literal

from msgspec.structs import replace
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

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


def _texts(given: object) -> object:
    """Return the patterns of an argument as a list of texts: one may stand alone, numbers and truth are JSON."""
    listed = given if isinstance(given, list | tuple) else [given]
    return [one if isinstance(one, str) else json.dumps(one) for one in listed]


def _moment(given: object) -> object:
    """Return a date, or a time without a zone, as one in UTC; a date stands for its first moment."""
    if isinstance(given, str):
        given = datetime.fromisoformat(given)
    if isinstance(given, date) and not isinstance(given, datetime):
        given = datetime(given.year, given.month, given.day)
    return given.replace(tzinfo=UTC) if isinstance(given, datetime) and given.tzinfo is None else given


Patterns = Annotated[
    tuple[Annotated[str, Field(max_length=2_000)], ...], BeforeValidator(_texts), Field(min_length=1, max_length=200)
]


class OperatorRule(BaseModel, defer_build=True):
    """A row of `rules`. It matches if each condition that it has matches one of its entries; without any, always.

    A row that allows covers calls whose arguments are all within it: each is in `arguments` (name -> patterns), in
    `most` (name -> largest number), or what `paths`, `hosts` or `commands` with `network` bound. It holds until
    `until`, for `per_day` calls of all principals in a day (UTC).
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    tool: str = Field(min_length=1, max_length=200)
    action: Literal["deny", "ask", "allow"]
    reason: str = Field(min_length=1, max_length=400)
    name: str = Field("", max_length=64)
    paths: tuple[str, ...] = Field((), max_length=MOST_CONDITIONS)
    hosts: tuple[str, ...] = Field((), max_length=MOST_CONDITIONS)
    commands: tuple[str, ...] = Field((), max_length=MOST_CONDITIONS)
    network: tuple[str, ...] = Field((), max_length=MOST_CONDITIONS)
    arguments: dict[str, Patterns] | None = Field(None, max_length=64)
    most: dict[str, Annotated[float, Field(ge=0, allow_inf_nan=False)]] = Field({}, max_length=64)
    per_day: int | None = Field(None, ge=1, le=1_000_000)
    until: Annotated[datetime | None, BeforeValidator(_moment)] = None

    @property
    def allowing(self) -> tuple[str, ...]:
        """The conditions given that only a row that allows can have."""
        given = {"network": self.network, "arguments": self.arguments is not None, "most": self.most}
        given |= {"per_day": self.per_day, "until": self.until}
        return tuple(name for name, value in given.items() if value)


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
