"""The gate: allows a call, refuses it or asks a person, both when tools are offered and before each call.

`decide` is asked twice about the same call, so that neither layer has to trust the other: with the arguments None when
tools are offered to a model, and with those of the call by the dispatcher, whatever the model wrote. What decides are
the rows of `gate_rows`, walked in order; `call_rows` has those around the dispatcher. A run's `Gate` holds the inputs
that change while it goes on (the grants of its session, its taint, its plan, its labels), and each change counts for
the next call.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace  # noqa: TID251

from msgspec import Struct, structs

from app.core.rules import WhenAbsent
from app.policy.classification import NO_RULES, Classification
from app.policy.decision_table import decided
from app.policy.gate_rows import GATE_ROWS, AccessRequest
from app.policy.grants import Grant
from app.policy.label_limits import LabelLimits
from app.policy.permits.permissions import Permission, day_of
from app.policy.policy_context import NO_POLICY, PolicyContext
from app.policy.secret_rights import SecretRight, granted_with
from app.policy.values.objections import Evidence, Weighed
from app.storage.principals import Principal
from parsing import Arguments
from tools.base.rights import Risk
from tools.tool import Tool, ToolList
from tools.toolbox import Allow, Decision, Refuse


def decide(
    principal: Principal, tool: Tool, arguments: Arguments | None = None, policy: PolicyContext = NO_POLICY
) -> Decision:
    """Decide if `principal` may use `tool` with these arguments, or (None) with any."""
    policy = policy_with_secrets(principal, tool, arguments, policy)
    return decided(GATE_ROWS, AccessRequest(principal, tool, arguments, policy)) or Allow()


def policy_with_secrets(
    principal: Principal, tool: Tool, arguments: Arguments | None, policy: PolicyContext
) -> PolicyContext:
    """Return the policy for a call: with the grants and permissions that were given with all secrets it goes with."""
    given = policy.grants or policy.permissions
    if not given or not (secrets := policy.secrets.of_call(principal, tool, arguments)):
        return policy
    permissions = granted_with(policy.permissions, secrets)
    return replace(policy, grants=granted_with(policy.grants, secrets), permissions=permissions)


class Gate(Struct):
    """`decide` for one run, its current policy and the current classification of tools.

    `watches_taint`: untrusted text makes it stricter. Without `takes_grants` grants of the session do not count, as in
    a run that a model of another session has begun. Standing permissions count there, too: all of the principal's, or
    those of `chosen_permissions`.
    """

    principal: Principal
    policy: PolicyContext = NO_POLICY
    watches_taint: bool = True
    classification: Classification = NO_RULES
    takes_grants: bool = True
    chosen_permissions: Sequence[str] | None = None
    knows_permissions: bool = False
    _offered: tuple[ToolList, tuple[object, ...], ToolList] | None = None  # of which tools, by which rules

    def decide(self, tool: Tool, arguments: Arguments | None = None) -> Decision:
        return decide(self.principal, self.classification.current(tool), arguments, self.policy)

    def secrets(self, tool: Tool | None, arguments: Arguments) -> tuple[SecretRight, ...]:
        """Return the secrets that a call goes with."""
        return self.policy.secrets.of_call(self.principal, tool, arguments) if tool else ()

    @property
    def usable_secrets(self) -> list[SecretRight]:
        return self.policy.secrets.of(self.principal)

    def offer(self, tools: ToolList) -> ToolList:
        """The tools that may be used at all: the same list for all runs with these rights, and without grants."""
        rules = self._rules()
        if self._offered is None or self._offered[0] is not tools or self._offered[1] != rules:
            # Grants end, and with writes.
            policy = self.policy
            if policy.evidence is not None:  # the list is kept, and would keep the conversation
                policy = replace(policy, evidence=None)
            held = policy.grants or policy.permissions
            rights = None if held else (self.principal, policy, self.classification.version)
            offered = tools.part(lambda one: not (one.skills or isinstance(self.decide(one), Refuse)), rights)
            self._offered = tools, rules, offered
        return self._offered[2]

    def _rules(self) -> tuple[object, ...]:
        """Return the inputs of a decision that change during a run, by events, time or writes."""
        in_force = tuple([grant.in_force for grant in self.policy.grants]) if self.policy.grants else ()
        usable = tuple([one.id for one in self.policy.usable_permissions])
        return self.policy, in_force, usable, self.policy.writes.last, self.classification.version

    def enter(self, disabled: Iterable[str], grants: Iterable[Grant], *, tainted: bool) -> None:
        """Apply the state of the session."""
        self.disable(disabled)
        self.grant(grants)
        if tainted:
            self.taint()

    def weigh(self, evidence: Evidence | Weighed) -> None:
        """Decide by value, with this evidence, on which the list of tools does not depend."""
        known = self._offered if self.policy.weighs and self._offered else None
        is_current = known is not None and known[1] == self._rules()
        self.policy = replace(self.policy, weighs=True, evidence=evidence)
        if known and is_current:
            self._offered = known[0], self._rules(), known[2]

    def disable(self, patterns: Iterable[str]) -> None:
        """Set the tools that are disabled in the session."""
        self.policy = replace(self.policy, disabled=tuple(patterns))

    def grant(self, grants: Iterable[Grant]) -> None:
        """Set the grants of the session."""
        self.policy = replace(self.policy, grants=tuple(grants) if self.takes_grants else ())

    def permit(self, permissions: Iterable[Permission]) -> None:
        """Set the standing permissions of the principal."""
        self.policy = replace(self.policy, permissions=tuple(permissions))
        self.knows_permissions = True

    def use_up(self, permission: str) -> None:
        """Note that a permission has no uses left today, by the clock of the policy."""
        used = permission, day_of(self.policy.clock())
        self.policy = replace(self.policy, used_up=(*self.policy.used_up, used))

    def wrote(self, tool: Tool | None) -> None:
        """Note a possible write; called before and after each call that runs."""
        if tool is not None and tool.risk not in (Risk.READ, Risk.EXECUTE):
            self.policy.writes.note()

    def keep_reading(self, read_only: bool) -> None:
        """Set if the conversation is read-only."""
        self.policy = replace(self.policy, narrowing=structs.replace(self.policy.narrowing, read_only=read_only))

    def plan(self) -> None:
        """Let only reading tools run, as in the run that this one helps."""
        self.policy = replace(self.policy, planning=True)

    def refuse_questions(self) -> None:
        """Refuse the calls that would wait for a person: there is none who can decide."""
        self.policy = replace(self.policy, when_absent=WhenAbsent.DENY)

    def act(self) -> None:
        """End the planning: the person has accepted the plan."""
        self.policy = replace(self.policy, planning=False)

    def acting(self) -> Gate:
        """Return the gate as it is once the plan is accepted."""
        return Gate(self.principal, replace(self.policy, planning=False), self.watches_taint, self.classification)

    def limit_by_labels(self, limits: LabelLimits) -> None:
        """Set the limits that the labels of the conversation set."""
        self.policy = replace(self.policy, labels=limits)

    def serve_app(self) -> None:
        """Decide on a call of an app, whose words are untrusted."""
        self.policy = replace(self.policy, of_app=True)
        self.taint()

    def taint(self) -> None:
        self.policy = replace(self.policy, tainted=self.watches_taint)
