"""Facts that a decision on a call rested on, besides the call, the settings and the run's options.

They are stored with the decision's audit row, so that it can be made again under other rules (`app.replay.backtest`):
`facts_of` takes them from the gate that decides, `gate_of` makes a gate of them. An input of the gate that changes
during a run has its field here and its line in both. Of texts there is nothing: a grant is that it covers the call.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
from msgspec import Struct

from app.core.labels import LabelPolicy
from app.core.rules import ApprovalMode, WhenAbsent
from app.policy.call_rows import CallRequest
from app.policy.classification import Classification, KnownTools
from app.policy.gate import Gate, policy_with_secrets
from app.policy.gate_rows import AccessRequest
from app.policy.grants import Grant, reaches_hosts
from app.policy.label_limits import NO_LIMITS, limits_of
from app.policy.permits.bounds import Bounds
from app.policy.permits.permissions import OF_RULES, Permission, day_of
from app.policy.policy_context import PolicyContext, Writes
from app.policy.rules.operator_rules import OperatorRules
from app.policy.tool_narrowing import ALL_TOOLS, ToolNarrowing
from app.policy.values.objections import Weighed
from app.storage.principals import Principal
from parsing import Arguments
from tools.base.rights import Approval, Risk, Role
from tools.base.workspace import OwnFolder, home_of
from tools.catalogue import CATALOGUE
from tools.tool import Tool, nothing_known
from tools.toolbox import Ask
from tools.web.egress import NETWORK

NOT_OWN = "Not all of its values that matter are the person's own."
CATALOGUED = frozenset(tool.name for tool in CATALOGUE)


class HeldGrant(Grant, frozen=True, omit_defaults=True):
    """A grant that was in force, without what it allows: if it covers the call, whole or without its `network`.

    Its `fingerprint` only says that it allows exactly one call.
    """

    whole: bool = False
    rest: bool = False

    def covers(self, principal: str, arguments: Arguments) -> bool:
        return self.whole if NETWORK in arguments else self.rest


class HeldPermission(Permission, frozen=True):
    """A standing permission that covered the call."""

    def covers(self, *_: object) -> bool:
        return True


HELD = HeldPermission("", "", Bounds())


class OtherTool(Struct, frozen=True, omit_defaults=True):
    """A tool that is none of the catalogue's; one of an MCP server as it is classified without the setting `tools`."""

    role: Role
    risk: Risk
    approval: Approval = "mode"
    confined: bool = False
    untrusted: bool = False
    server: str = ""
    tool: str = ""


class Facts(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`objection` is the guard that objected, `hook` the verdict and the name of a hook; `quoted`: it is a quotation.

    `began` and `wrote` are the times of the server's start and of the last write where commands run without a sandbox;
    None: no grant is later. `harmless`: the workspace of then has shown that nothing can be lost. `through` is the
    tool's, `other` is one of no catalogue. `own`: all values are the person's own; None: they were not weighed.
    `permitted`: a standing permission covered the call; `used_up` are the rules that allow without uses left.
    """

    role: Role
    tools: tuple[str, ...] = ()  # of the token
    off: tuple[str, ...] = ()
    workspace: str = "/"
    home: str = ""  # the whole workspace, if that is a folder of it
    mode: ApprovalMode = ApprovalMode.SANDBOXED
    when_absent: WhenAbsent = WhenAbsent.WAIT
    boxed: bool = False
    networked: bool = False
    tainted: bool = False
    own: bool | None = None
    planning: bool = False
    disabled: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    labelled: float = 0.0  # when the last label was added
    began: float = 0.0
    wrote: float | None = 0.0
    grants: tuple[HeldGrant, ...] = ()
    permitted: bool = False
    used_up: tuple[str, ...] = ()
    harmless: bool = False
    objection: str = ""
    hook: tuple[str, str] | None = None
    quoted: bool = False
    handed: bool = False
    through: str = ""
    other: OtherTool | None = None

    @property
    def folder(self) -> Path:
        """The folder in which the run worked."""
        if not self.home:
            return Path(self.workspace)
        return OwnFolder.below(Path(self.home), os.path.relpath(self.workspace, self.home))


class InForce(Struct, frozen=True):
    """Rules that a call is decided by: those of the settings, or others that are tried."""

    rules: OperatorRules
    commands: tuple[str, ...] = ()
    labels: LabelPolicy = LabelPolicy()


def facts_of(request: CallRequest, gate: Gate, tool: Tool | None, arguments: Arguments) -> str:
    """Return the facts of a decision, as they are stored. Where no file may be lost in mode `ask`, it looks again."""
    policy, principal = request.policy, gate.principal
    if tool:
        policy = policy_with_secrets(principal, tool, arguments, policy)
    hook = request.hook and ("ask" if isinstance(request.hook, Ask) else "refuse", request.hook.by)
    facts = Facts(
        role=principal.role,
        tools=principal.tools,
        off=principal.disabled,
        workspace=str(policy.workspace),
        home=str(home) if (home := home_of(policy.workspace)) != policy.workspace else "",
        mode=policy.mode,
        when_absent=policy.when_absent,
        boxed=policy.boxed,
        networked=policy.networked,
        tainted=policy.tainted,
        own=_is_own(AccessRequest(principal, tool, arguments, policy)) if tool and policy.evidence else None,
        planning=policy.planning,
        disabled=policy.disabled,
        labels=tuple(sorted(policy.labels.labels)),
        labelled=policy.labels.since if policy.labels.labels else 0.0,
        began=0.0 if policy.boxed else policy.writes.started,
        wrote=0.0 if policy.boxed else _known(policy.writes.last),
        grants=tuple(_held(principal.name, policy, tool, arguments)) if tool else (),
        permitted=tool is not None and _is_permitted(policy, tool, arguments),
        used_up=tuple(id for id, _ in policy.used_up if id.startswith(OF_RULES)),
        harmless=tool is not None and _is_harmless(policy, tool, arguments),
        objection=request.objection.by if request.objection else "",
        hook=hook or None,
        quoted=bool(request.quoted_in),
        handed=request.is_handed,
        through=tool.through if tool else "",
        other=_other_tool(gate.classification, tool),
    )
    return msgspec.json.encode(facts).decode()


def gate_of(
    facts: Facts,
    name: str,
    in_force: InForce,
    narrowing: ToolNarrowing = ALL_TOOLS,
    *,
    at: float,
) -> Gate:
    """Return the gate of that time with the rules of `in_force`, for one call of the principal with this name."""
    limits = limits_of(in_force.labels, facts.labels, facts.labelled) if facts.labels else NO_LIMITS
    policy = PolicyContext(
        facts.mode,
        facts.boxed,
        facts.networked,
        workspace=facts.folder,
        tainted=facts.tainted,
        commands=in_force.commands,
        disabled=facts.disabled,
        grants=facts.grants,
        when_absent=facts.when_absent,
        planning=facts.planning,
        narrowing=narrowing,
        labels=limits,
        rules=in_force.rules,
        weighs=facts.own is not None,
        evidence=None if facts.own is None else Weighed("" if facts.own else NOT_OWN),
        permissions=(HELD,) if facts.permitted else (),
        used_up=tuple((id, day_of(at)) for id in facts.used_up),
        clock=lambda: at,
        writes=Writes(facts.began, math.inf if facts.wrote is None else facts.wrote),
    )
    return Gate(Principal(name, facts.role, facts.tools, facts.off), policy, classification=KnownTools())


def _known(at: float) -> float | None:
    return at if math.isfinite(at) else None  # JSON has no word for infinity


def _held(principal: str, policy: PolicyContext, tool: Tool, arguments: Arguments) -> Iterator[HeldGrant]:
    """Yield the grants in force that can count for a call: those that cover it, and those of hosts."""
    for grant in policy.grants:
        if not grant.in_force or not (grant.hosts or grant.tool == tool.name):
            continue
        whole = grant.covers(principal, arguments)
        rest = whole
        if NETWORK in arguments:
            rest = grant.covers(principal, {name: value for name, value in arguments.items() if name != NETWORK})
        if whole or rest or (grant.hosts and reaches_hosts(tool)):
            yield HeldGrant(
                grant.tool,
                fingerprint=None if grant.fingerprint is None else "exact",
                hosts=grant.hosts,
                tainted=grant.tainted,
                created=min(grant.created, time.time()),
                whole=whole,
                rest=rest,
            )


def _is_own(request: AccessRequest) -> bool:
    """Return whether the values of a call are the person's own; False where it has no effect for which that counts."""
    return request.effect is not None and not request.foreign


def _is_permitted(policy: PolicyContext, tool: Tool, arguments: Arguments) -> bool:
    usable = (one for one in policy.usable_permissions if not one.is_rule)
    return any(one.covers(tool, arguments, policy.surroundings) for one in usable)


def _is_harmless(policy: PolicyContext, tool: Tool, arguments: Arguments) -> bool:
    looks = policy.mode is ApprovalMode.ASK and policy.boxed and tool.loses_nothing is not nothing_known
    return looks and tool.loses_nothing(arguments, policy.workspace)


def _other_tool(classification: Classification, tool: Tool | None) -> OtherTool | None:
    if tool is None or tool.handed or tool.name in CATALOGUED:
        return None
    if (origin := tool.origin) is None:
        return OtherTool(tool.role, tool.risk, tool.approval, tool.confined, tool.untrusted)
    rights = classification.rights(tool.name, origin, ruled=False)
    return OtherTool(rights.role, rights.risk, untrusted=rights.untrusted, server=origin.server, tool=origin.tool)
