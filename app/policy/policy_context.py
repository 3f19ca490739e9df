"""The inputs of a decision besides the call: the mode of the run, its sandbox, its conversation, grants and rules."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from app.core.rules import ApprovalMode, WhenAbsent
from app.policy.grants import Grant
from app.policy.label_limits import NO_LIMITS, LabelLimits
from app.policy.permits.bounds import Surroundings
from app.policy.permits.permissions import Permission, day_of
from app.policy.rules.operator_rules import NO_OPERATOR_RULES, OperatorRules
from app.policy.secret_rights import SecretRights
from app.policy.tool_narrowing import ALL_TOOLS, ToolNarrowing
from app.policy.values.objections import Evidence, Weighed


@dataclass(slots=True)
class Writes:
    """The time of the last write of a tool into a workspace of this server.

    Without a sandbox, a command may run what was written: a grant to execute is valid until the next write. Writes
    before the start of this server are unknown, so earlier grants are not valid either. With `last` in the far future
    none is: of servers that share a workspace each knows its own writes only.
    """

    started: float = field(default_factory=time.time)
    last: float = 0.0

    def note(self) -> None:
        self.last = max(self.last, time.time())


@dataclass(frozen=True, slots=True)
class PolicyContext:
    """The inputs of a decision besides the principal, the tool and the arguments.

    `boxed`: commands run in a sandbox without network; otherwise `way_out` says what they can reach.
    `networked`: they can reach only the public network, which the operator allows for all commands: that alone is no
    reason to ask, unless untrusted text may have requested it.
    `tainted`: the conversation contains untrusted text. `commands` are patterns of shell commands that never ask.
    `disabled` are patterns of tools that are disabled in the session. `planning`: only reading tools may run, until a
    person has accepted the plan. `narrowing` is that of the run's profiles, `rules` are the operator's, on arguments.
    `weighs`: values that are the person's own decide, by the `evidence` that comes with the conversation.
    `permissions` are those of the principal; `used_up` are ids of any whose uses are gone, each with the day.
    `secrets` are those that calls may go with. `of_app`: an app of an MCP server makes the call, and no model.
    """

    mode: ApprovalMode = ApprovalMode.SANDBOXED
    boxed: bool = False
    networked: bool = False
    way_out: str = "No sandbox keeps it in."
    workspace: Path = Path("/")
    tainted: bool = False
    commands: tuple[str, ...] = ()
    disabled: tuple[str, ...] = ()
    grants: tuple[Grant, ...] = ()
    when_absent: WhenAbsent = WhenAbsent.WAIT
    planning: bool = False
    of_app: bool = False
    narrowing: ToolNarrowing = ALL_TOOLS
    labels: LabelLimits = NO_LIMITS
    rules: OperatorRules = NO_OPERATOR_RULES
    weighs: bool = False
    evidence: Evidence | Weighed | None = field(default=None, compare=False)  # it follows its conversation
    permissions: tuple[Permission, ...] = ()
    used_up: tuple[tuple[str, str], ...] = ()
    clock: Callable[[], float] = field(default=time.time, compare=False)
    writes: Writes = field(default_factory=Writes, compare=False)  # they change, and only grants depend on them
    secrets: SecretRights = field(default_factory=SecretRights, compare=False)  # no tool is offered by them

    @property
    def unattended(self) -> str:
        """The setting by which nobody approves calls in this run; empty if approvals can wait for a person."""
        if self.mode is ApprovalMode.DENY:
            return "approval: deny"
        return "when_absent: deny" if self.when_absent is WhenAbsent.DENY else ""

    @property
    def holding(self) -> tuple[Grant, ...]:
        """The grants that allow a call to leave the sandbox: in a tainted conversation only those given since."""
        guarded = self.guarded
        held = tuple(grant for grant in self.grants if grant.in_force and (grant.tainted or not guarded))
        return tuple([grant for grant in held if grant.created > since]) if (since := self.labels.since) else held

    @property
    def usable_permissions(self) -> tuple[Permission, ...]:
        """The permissions in force, those of rules first, with uses left as far as is known."""
        if not (given := (*self.rules.permissions, *self.permissions)):
            return ()
        now = self.clock()
        return tuple(one for one in given if one.is_in_force(now) and (one.id, day_of(now)) not in self.used_up)

    def permission(self, id: str) -> Permission | None:
        return next((one for one in (*self.rules.permissions, *self.permissions) if one.id == id), None)

    @property
    def surroundings(self) -> Surroundings:
        unchanged = self.writes.last < self.writes.started
        return Surroundings(self.workspace, self.boxed, unchanged, self.rules.links)

    @property
    def guarded(self) -> bool:
        """True if the conversation holds untrusted text, or data whose label makes outbound effects ask."""
        return self.tainted or bool(self.labels.asks)


NO_POLICY = PolicyContext()
