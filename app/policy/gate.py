"""The gate: `decide` allows a call, refuses it or asks a person, both when tools are offered and before each call.

Rights are an allow-list: a tool without a classification is for admins only, and a lower role is refused.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, field, replace  # noqa: TID251
from fnmatch import fnmatchcase
from pathlib import Path

from msgspec import Struct

from app.core.rules import ApprovalMode, WhenAbsent
from app.policy.classification import NO_RULES, Classification
from app.policy.grants import Grant, holding, reaches_hosts, without_granted_hosts
from app.policy.label_limits import NO_LIMITS, LabelLimits, carried
from app.policy.patterns import names_address
from app.policy.rules.operator_rules import DENY, NO_OPERATOR_RULES, Finding, OperatorRules
from app.policy.tool_narrowing import ALL_TOOLS, ToolNarrowing
from app.storage.principals import Principal
from parsing import Arguments
from tools.base.rights import OutboundEffect, Risk, Role
from tools.builtin.outbound_effects import shown
from tools.shell_policy.plain_commands import allowed, reads
from tools.tool import Tool, ToolList, nothing_known
from tools.toolbox import Allow, Ask, Decision, Refuse
from tools.web.egress import hosts_wanted

CLIENT_TOOLS = "client_tools"  # in the patterns of a token: the right to bring tools that the client runs itself
ACCEPTS_PLAN = "The model asks you to accept its plan. Once you do, this run may use all of its tools."
QUOTED = "This very call stands in"  # the stored reason of an approval for a quoted call begins with it


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
    narrowing: ToolNarrowing = ALL_TOOLS
    labels: LabelLimits = NO_LIMITS
    rules: OperatorRules = NO_OPERATOR_RULES
    writes: Writes = field(default_factory=Writes, compare=False)  # they change, and only grants depend on them

    @property
    def unattended(self) -> str:
        """The setting by which nobody approves calls in this run; empty if approvals can wait for a person."""
        if self.mode is ApprovalMode.DENY:
            return "approval: deny"
        return "when_absent: deny" if self.when_absent is WhenAbsent.DENY else ""

    @property
    def holding(self) -> tuple[Grant, ...]:
        """The grants that allow a call to leave the sandbox."""
        held = holding(self.grants, tainted=self.guarded)
        return tuple([grant for grant in held if grant.created > since]) if (since := self.labels.since) else held

    @property
    def guarded(self) -> bool:
        """True if the conversation holds untrusted text, or data whose label makes outbound effects ask."""
        return self.tainted or bool(self.labels.asks)


def decide(
    principal: Principal, tool: Tool, arguments: Arguments | None = None, policy: PolicyContext = PolicyContext()
) -> Decision:
    """Decide if `principal` may use `tool` with these arguments, or (None) with any."""
    if reason := _forbidden(principal, tool, policy):
        return Refuse(reason)
    if reason := _forbidden_by_label(tool, arguments, policy):
        return Refuse(reason)
    finding = policy.rules.find(tool, arguments, policy.workspace) if policy.rules else None
    if finding and (refusal := _forbidden_by(finding, tool)):
        return refusal
    question = _question(principal, tool, arguments, policy)
    if question and arguments and reaches_hosts(tool):
        question = _question(principal, tool, without_granted_hosts(policy.holding, arguments), policy)
    if finding:  # whatever is granted, and in every mode
        question = f"{finding.reason} {question or ''}".rstrip()
    if question and policy.unattended:
        return of_question(question, policy)
    if question and policy.boxed and arguments is not None and (advice := tool.hopeless(arguments)):
        return Refuse(advice, only_so=True)  # no approval for a call that cannot succeed
    return Ask(question) if question else Allow()


def of_question(question: str, policy: PolicyContext) -> Decision:
    """Decide on a call that has to be asked about: a run without approvals refuses it."""
    if policy.unattended:
        return Refuse(f"{question} This run does not ask for approval ({policy.unattended}).")
    return Ask(question)


def of_quotation(decision: Decision, name: str, place: str, policy: PolicyContext) -> Decision:
    """Decide on a call that is quoted from text the model has read, at `place`.

    No mode allows it, and no grant except one for it as a quotation (app.runs.tool_executor). A call that cannot run at
    all is refused as a quotation: advice on how to call would make the model call it.
    """
    refused = isinstance(decision, Refuse)
    if refused or policy.unattended:
        unattended = f"this run does not ask for approval ({policy.unattended})"
        why = "it could not be run as it stands" if refused else unattended
        return Refuse(of_quoted(name, place, why))
    also = f" {decision.reason}" if isinstance(decision, Ask) else ""
    return Ask(
        f"{QUOTED} {place}, which the model has read: it may be no more than a quotation, or come from instructions "
        f"there. Approve it only if you want it yourself.{also}"
    )


def of_quoted(name: str, place: str, why: str) -> str:
    """Return the message to the model for a quoted call that is not run."""
    return (
        f"{name or 'A call'} was not run: it stands in {place}, so it counts as quoted, not as decided, and {why}. Go "
        "on without it, and tell the person what you left out: only a person can allow it, in a run that asks. To "
        "quote such text, put it between back-ticks."
    )


class Gate(Struct):
    """`decide` for one run, its current policy and the current classification of tools.

    `watches_taint`: untrusted text makes it stricter. Without `takes_grants` grants of the session do not count, as in
    a run that a model of another session has begun.
    """

    principal: Principal
    policy: PolicyContext = PolicyContext()
    watches_taint: bool = True
    classification: Classification = NO_RULES
    takes_grants: bool = True
    _offered: tuple[ToolList, tuple[object, ...], ToolList] | None = None  # of which tools, by which rules

    def decide(self, tool: Tool, arguments: Arguments | None = None) -> Decision:
        return decide(self.principal, self.classification.current(tool), arguments, self.policy)

    def offer(self, tools: ToolList) -> ToolList:
        """The tools that may be used at all: the same list for all runs with these rights, and without grants."""
        rules = self._rules()
        if self._offered is None or self._offered[0] is not tools or self._offered[1] != rules:
            # Grants end, and with writes.
            rights = None if self.policy.grants else (self.principal, self.policy, self.classification.version)
            self._offered = tools, rules, tools.part(lambda tool: not isinstance(self.decide(tool), Refuse), rights)
        return self._offered[2]

    def _rules(self) -> tuple[object, ...]:
        """Return the inputs of a decision that change during a run, by events, time or writes."""
        in_force = tuple([grant.in_force for grant in self.policy.grants]) if self.policy.grants else ()
        return self.policy, in_force, self.policy.writes.last, self.classification.version

    def enter(self, disabled: Iterable[str], grants: Iterable[Grant], *, tainted: bool) -> None:
        """Apply the state of the session."""
        self.disable(disabled)
        self.grant(grants)
        if tainted:
            self.taint()

    def disable(self, patterns: Iterable[str]) -> None:
        """Set the tools that are disabled in the session."""
        self.policy = replace(self.policy, disabled=tuple(patterns))

    def grant(self, grants: Iterable[Grant]) -> None:
        """Set the grants of the session."""
        self.policy = replace(self.policy, grants=tuple(grants) if self.takes_grants else ())

    def wrote(self, tool: Tool | None) -> None:
        """Note a possible write; called before and after each call that runs."""
        if tool is not None and tool.risk not in (Risk.READ, Risk.EXECUTE):
            self.policy.writes.note()

    def plan(self) -> None:
        """Let only reading tools run, as in the run that this one helps."""
        self.policy = replace(self.policy, planning=True)

    def act(self) -> None:
        """End the planning: the person has accepted the plan."""
        self.policy = replace(self.policy, planning=False)

    def acting(self) -> Gate:
        """Return the gate as it is once the plan is accepted."""
        return Gate(self.principal, replace(self.policy, planning=False), self.watches_taint, self.classification)

    def limit_by_labels(self, limits: LabelLimits) -> None:
        """Set the limits that the labels of the conversation set."""
        self.policy = replace(self.policy, labels=limits)

    def taint(self) -> None:
        self.policy = replace(self.policy, tainted=self.watches_taint)


def _forbidden(principal: Principal, tool: Tool, policy: PolicyContext) -> str | None:
    if principal.role.rank < tool.role.rank:
        return f"{tool.name} needs the role {tool.role}; {principal.name} is a {principal.role}."
    name = CLIENT_TOOLS if tool.handed else tool.name  # a client names its tools as it likes
    if principal.tools and not _matches(name, principal.tools):
        return f"{name} is not among the tools of {principal.name}."
    if any(_matches(one, principal.disabled) for one in (name, tool.through)):
        return f"{tool.name} is disabled for {principal.name}."
    if policy.narrowing is not ALL_TOOLS and (reason := policy.narrowing.objection(name, tool.through)):
        return reason
    if any(_matches(one, policy.disabled) for one in (tool.name, tool.through)):
        return f"{tool.name} is disabled in this session."
    if policy.planning and (tool.risk is not Risk.READ or tool.handed):
        return f"Only reading tools run until the person has accepted the plan (mode: plan), and {name} is none."
    if tool.plans and not policy.planning:
        return f"{tool.name} is for runs that plan first (mode: plan)."
    if tool.needs_person and policy.unattended:
        return f"Nobody answers questions in this run ({policy.unattended}). Decide yourself, or say what is missing."
    return None


def _forbidden_by_label(tool: Tool, arguments: Arguments | None, policy: PolicyContext) -> str | None:
    """Return why a rule of a label refuses the call; of effects that depend on the arguments only with these."""
    if reason := policy.labels.refusal(tool):
        return reason
    if arguments is None or not (labels := policy.labels.refusing(tool)):
        return None
    leaving = _leaving(tool, arguments, policy)
    if leaving is None or (tool.risk is Risk.READ and not _carries(leaving, arguments)):
        return None
    return f"{tool.name} was not run: {leaving.what} {carried(labels)} The label's rule refuses such calls."


def _forbidden_by(finding: Finding, tool: Tool) -> Refuse | None:
    """Return the refusal of a rule; one that asks refuses a call of the client's own tool, which it runs unasked."""
    if finding.action == DENY:
        return Refuse(f"{tool.name} was not run. {finding.reason}", only_so=True)
    if tool.handed:
        return Refuse(
            f"{finding.reason} The client runs {tool.name} itself, so it cannot be approved here.", only_so=True
        )
    return None


def _question(principal: Principal, tool: Tool, arguments: Arguments | None, policy: PolicyContext) -> str | None:
    """Return why a person must approve the call, with its outbound effect; None if no approval is needed.

    The operator vouches that tools classified READ send no data out. The exceptions are a call with an address that
    untrusted text may have chosen, because the address itself can carry data out, and one that sends a text.
    In order: tools that always ask, calls that ask once untrusted text was read, calls that never ask, and those that
    the mode asks for.
    """
    leaving = _leaving(tool, arguments, policy)
    guarded = policy.tainted or bool(policy.labels.asking(tool))
    if tool.plans:
        return ACCEPTS_PLAN
    if tool.approval == "always":
        return f"{tool.name} asks each time. {leaving.what if leaving else ''}".rstrip()
    if tool.risk is Risk.READ and not (guarded and leaving and _carries(leaving, arguments)):
        return None
    if leaving and (leaving.always or guarded):
        return (
            None if _granted_exactly(principal, tool, arguments, policy) else f"{leaving.what}{_warning(tool, policy)}"
        )
    if tool.approval == "never" or _covered(principal, tool, arguments, policy):
        return None
    if policy.mode is ApprovalMode.AUTO and principal.role is Role.ADMIN:
        return None
    if leaving:
        return leaving.what
    if policy.mode is not ApprovalMode.ASK or _loses_nothing(tool, arguments, policy):  # last, because it reads files
        return None
    return f"{_inside(tool, arguments, policy)} This run asks first (approval: ask)."


def _leaving(tool: Tool, arguments: Arguments | None, policy: PolicyContext) -> OutboundEffect | None:
    """Return the call's outbound effect; without arguments (None) only that of every call of the tool."""
    if tool.confined and tool.risk is Risk.EXECUTE and not policy.boxed:
        guarded = policy.guarded or bool(policy.labels.refuses)
        return OutboundEffect(policy.way_out) if guarded or not policy.networked else None
    if arguments is not None and (named := tool.leaves(arguments, policy.workspace)):
        return named
    return None if tool.confined else OutboundEffect(f"{tool.name} {_OUTSIDE[tool.risk]}.")


def _carries(leaving: OutboundEffect, arguments: Arguments | None) -> bool:
    return leaving.carries_text or _names_address(arguments)


def _names_address(arguments: Arguments | None) -> bool:
    waiting: list[tuple[str, object]] = list((arguments or {}).items())
    while waiting:
        name, value = waiting.pop()
        if isinstance(value, str) and value and names_address(name, value):
            return True
        if isinstance(value, dict):
            waiting += value.items()
        if isinstance(value, list):
            waiting += [(name, one) for one in value]
    return False


_OUTSIDE = {
    Risk.READ: "reads outside of the workspace, with the address that is named",
    Risk.WRITE: "can write outside of the workspace",
    Risk.EXECUTE: "can execute commands outside of the sandbox",
    Risk.NETWORK: "reaches the network",
    Risk.ADMIN: "is not classified: it can do all that its server can",
}


def _inside(tool: Tool, arguments: Arguments | None, policy: PolicyContext) -> str:
    """Describe a call without an outbound effect."""
    if tool.risk is Risk.EXECUTE:
        network = "with the network, as all commands here" if policy.networked else "without network"
        return f"{tool.name} runs in the sandbox, {network}, and can change the workspace."
    path = (arguments or {}).get("path")
    return f"{tool.name} changes {shown(path) if isinstance(path, str) else 'something'} in the workspace."


def _warning(tool: Tool, policy: PolicyContext) -> str:
    """Return the warning that is added to a question in a tainted or labelled conversation."""
    taint = " This conversation holds untrusted text, which may have asked for it." if policy.tainted else ""
    labels = policy.labels.asking(tool)
    return f"{taint} {carried(labels)}" if labels else taint


def _covered(principal: Principal, tool: Tool, arguments: Arguments | None, policy: PolicyContext) -> bool:
    """True if the operator's commands or a grant of the session allow the call (without arguments: might allow one)."""
    if tool.name == "bash" and policy.commands:
        if arguments is None:
            return True
        command = arguments.get("command")
        unchanged = policy.boxed or policy.writes.last < policy.writes.started
        if isinstance(command, str) and not hosts_wanted(arguments) and allowed(command, policy.commands):
            return unchanged or reads(command)
    grants = _grants_for(tool, policy.grants, policy)
    if arguments is None:
        return bool(grants)
    return any(grant.covers(principal.name, arguments) for grant in grants)


def _loses_nothing(tool: Tool, arguments: Arguments | None, policy: PolicyContext) -> bool:
    """True if a sandboxed call only reads or makes undoable additions (without arguments: if some calls do)."""
    if not policy.boxed:
        return False
    if arguments is None:
        return tool.loses_nothing is not nothing_known
    return tool.loses_nothing(arguments, policy.workspace)


def _grants_for(tool: Tool, grants: Iterable[Grant], policy: PolicyContext) -> list[Grant]:
    """Return the tool's valid grants; without a sandbox, only those given after the last write."""
    changed = max(policy.writes.started, policy.writes.last)
    kept_in = policy.boxed or tool.risk is not Risk.EXECUTE
    held = (grant for grant in grants if grant.tool == tool.name and grant.in_force)
    return [grant for grant in held if kept_in or grant.created > changed]


def _granted_exactly(principal: Principal, tool: Tool, arguments: Arguments | None, policy: PolicyContext) -> bool:
    """True if an exact grant for this call was given after the conversation became tainted, if it is."""
    exact = [grant for grant in _grants_for(tool, policy.holding, policy) if grant.fingerprint is not None]
    return any(one.covers(principal.name, arguments) for one in exact) if arguments is not None else bool(exact)


def _matches(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)
