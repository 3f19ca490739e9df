"""The rows of the gate, in order: rights that refuse, questions that ask a person, and what becomes of a question.

Rights are an allow-list: a tool without a classification is for admins only, and a lower role is refused. The operator
vouches that tools classified READ send no data out. The exceptions are a call with an address that untrusted text may
have chosen, because the address itself can carry data out, and one that sends a text.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace  # noqa: TID251
from functools import cached_property

from app.core.rules import ApprovalMode
from app.policy.decision_table import DecisionRow, decided
from app.policy.grants import Grant, reaches_hosts, without_granted_hosts
from app.policy.label_limits import carried
from app.policy.patterns import names_address
from app.policy.policy_context import PolicyContext
from app.policy.rules.operator_rules import DENY, Finding
from app.policy.values.objections import objection, objection_in_general
from app.storage.principals import Principal
from parsing import Arguments
from tools.base.rights import CLIENT_TOOLS, OutboundEffect, Risk, Role, names_match
from tools.builtin.outbound_effects import shown
from tools.shell_policy.plain_commands import allowed, reads
from tools.tool import APP, MODEL, Tool, nothing_known
from tools.toolbox import Allow, Ask, Decision, Refuse
from tools.web.egress import hosts_wanted

ACCEPTS_PLAN = "The model asks you to accept its plan. Once you do, this run may use all of its tools."

NO_EVIDENCE = "The origin of its values is not known."

_OUTSIDE = {
    Risk.READ: "reads outside of the workspace, with the address that is named",
    Risk.WRITE: "can write outside of the workspace",
    Risk.EXECUTE: "can execute commands outside of the sandbox",
    Risk.NETWORK: "reaches the network",
    Risk.ADMIN: "is not classified: it can do all that its server can",
}


@dataclass(frozen=True)
class AccessRequest:
    """A call to decide on; without arguments (None) the tool in general, as when it is offered to a model."""

    principal: Principal
    tool: Tool
    arguments: Arguments | None
    policy: PolicyContext

    @cached_property
    def effect(self) -> OutboundEffect | None:
        """The effect that leaves the sandbox and the workspace, or is left there for other programs.

        Without arguments (None) only the effect of every call of the tool.
        """
        tool, policy = self.tool, self.policy
        if tool.confined and tool.risk is Risk.EXECUTE and not policy.boxed:
            guarded = policy.guarded or bool(policy.labels.refuses)
            return OutboundEffect(policy.way_out) if guarded or not policy.networked else None
        if self.arguments is not None and (named := tool.leaves(self.arguments, policy.workspace)):
            return named
        return None if tool.confined else OutboundEffect(f"{tool.name} {_OUTSIDE[tool.risk]}.")

    @property
    def carries_data(self) -> bool:
        """True if the effect sends a text, or names an address: that can carry data out by itself."""
        return self.effect is not None and (self.effect.carries_text or _names_address(self.arguments))

    @property
    def guarded(self) -> bool:
        """True if what leaves by this tool asks, because of untrusted text or of a label in the conversation."""
        return self.policy.tainted or bool(self.policy.labels.asking(self.tool))

    @cached_property
    def foreign(self) -> str:
        """The reason why values of the call are not the person's own; empty if all are (without arguments: may be)."""
        if self.arguments is None:
            return objection_in_general(self.tool) if self.policy.weighs else NO_EVIDENCE
        return objection(self.tool, self.arguments, self.policy.evidence) if self.policy.evidence else NO_EVIDENCE

    @cached_property
    def finding(self) -> Finding | None:
        """The operator's rule for this call."""
        rules = self.policy.rules
        return rules.find(self.tool, self.arguments, self.policy.workspace) if rules else None

    @property
    def known_name(self) -> str:
        """The name in the patterns of rights: a client names its own tools as it likes."""
        return CLIENT_TOOLS if self.tool.handed else self.tool.name


def ask_or_refuse(question: str, policy: PolicyContext, by: str = "") -> Decision:
    """Return the decision on a call that has to be asked about: a run without approvals refuses it."""
    if policy.unattended:
        return Refuse(f"{question} This run does not ask for approval ({policy.unattended}).", by=by)
    return Ask(question, by=by)


def _role(request: AccessRequest, _: Decision | None) -> Decision | None:
    principal, tool = request.principal, request.tool
    if principal.role.rank >= tool.role.rank:
        return None
    return Refuse(f"{tool.name} needs the role {tool.role}; {principal.name} is a {principal.role}.")


def _token(request: AccessRequest, _: Decision | None) -> Decision | None:
    principal = request.principal
    if principal.tools and not names_match((request.known_name,), principal.tools):
        return Refuse(f"{request.known_name} is not among the tools of {principal.name}.")
    if names_match((request.known_name, request.tool.through), principal.disabled):
        return Refuse(f"{request.tool.name} is disabled for {principal.name}.")
    return None


def _profile(request: AccessRequest, _: Decision | None) -> Decision | None:
    reason = request.policy.narrowing.objection(request.known_name, request.tool.through)
    return Refuse(reason) if reason else None


def _session(request: AccessRequest, _: Decision | None) -> Decision | None:
    if names_match((request.tool.name, request.tool.through), request.policy.disabled):
        return Refuse(f"{request.tool.name} is disabled in this session.")
    return None


def _plan(request: AccessRequest, _: Decision | None) -> Decision | None:
    tool, planning = request.tool, request.policy.planning
    if planning and (tool.risk is not Risk.READ or tool.handed):
        return Refuse(
            f"Only reading tools run until the person has accepted the plan (mode: plan), and {request.known_name} "
            "is none."
        )
    if tool.plans and not planning:
        return Refuse(f"{tool.name} is for runs that plan first (mode: plan).")
    return None


def _app(request: AccessRequest, _: Decision | None) -> Decision | None:
    tool = request.tool
    if (APP if request.policy.of_app else MODEL) in tool.visibility and (tool.origin or not request.policy.of_app):
        return None
    return Refuse(f"{tool.name} is not for {'apps' if request.policy.of_app else 'models'}.")


def _read_only(request: AccessRequest, _: Decision | None) -> Decision | None:
    tool = request.tool
    if not request.policy.narrowing.read_only or (tool.risk is Risk.READ and not tool.handed):
        return None
    return Refuse(f"This conversation is read-only, and {request.known_name} does more than read.")


def _person(request: AccessRequest, _: Decision | None) -> Decision | None:
    absent = request.policy.unattended
    if not (request.tool.needs_person and absent):
        return None
    return Refuse(f"No person answers questions in this run ({absent}). Decide yourself, or say what is missing.")


def _label(request: AccessRequest, _: Decision | None) -> Decision | None:
    tool, limits = request.tool, request.policy.labels
    if reason := limits.refusal(tool):
        return Refuse(reason)
    if request.arguments is None or not (labels := limits.refusing(tool)):
        return None
    if request.effect is None or (tool.risk is Risk.READ and not request.carries_data):
        return None
    return Refuse(
        f"{tool.name} was not run: {request.effect.what} {carried(labels)} The label's rule refuses such calls."
    )


def _rule(request: AccessRequest, _: Decision | None) -> Decision | None:
    finding, tool = request.finding, request.tool
    if finding is None:
        return None
    if finding.action == DENY:
        return Refuse(f"{tool.name} was not run. {finding.reason}", only_so=True)
    if tool.handed:
        return Refuse(
            f"{finding.reason} The client runs {tool.name} itself, so it cannot be approved here.", only_so=True
        )
    return None


def _accepts_plan(request: AccessRequest, _: Decision | None) -> Decision | None:
    return Ask(ACCEPTS_PLAN) if request.tool.plans else None


def _always(request: AccessRequest, _: Decision | None) -> Decision | None:
    if request.effect and request.effect.firm:
        return Ask(f"{request.effect.what}{_taint(request)}")
    if request.tool.approval != "always":
        return None
    effect = request.effect.what if request.effect else ""
    return Ask(f"{request.tool.name} asks each time. {effect}".rstrip())


def _reads(request: AccessRequest, _: Decision | None) -> Decision | None:
    if request.tool.risk is Risk.READ and not (request.guarded and request.carries_data):
        return Allow()
    return None


def _untrusted(request: AccessRequest, _: Decision | None) -> Decision | None:
    effect = request.effect
    if effect is None or not (effect.always or request.guarded):
        return None
    if _granted_exactly(request):
        return Allow()
    if effect.always or request.foreign:
        return Ask(f"{effect.what}{_warning(request)}")
    return Allow() if request.tool.risk is Risk.READ else None


def _never(request: AccessRequest, _: Decision | None) -> Decision | None:
    return Allow() if request.tool.approval == "never" else None


def _granted(request: AccessRequest, _: Decision | None) -> Decision | None:
    """Decide by the operator's commands, and by grants where these do not name the command."""
    if _is_named_command(request):
        return Allow() if _is_unchanged(request) else None
    return Allow() if _is_granted(request) else None


def _auto(request: AccessRequest, _: Decision | None) -> Decision | None:
    if request.policy.mode is ApprovalMode.AUTO and request.principal.role is Role.ADMIN:
        return Allow()
    return None


def _own_values(request: AccessRequest, _: Decision | None) -> Decision | None:
    if request.policy.mode is ApprovalMode.ASK or request.foreign:
        return None
    return Allow() if request.effect else None


def _outbound(request: AccessRequest, _: Decision | None) -> Decision | None:
    return Ask(request.effect.what) if request.effect else None


def _mode(request: AccessRequest, _: Decision | None) -> Decision | None:
    if request.policy.mode is not ApprovalMode.ASK or _loses_nothing(request):  # last, because it reads files
        return None
    return Ask(f"{_effect_inside(request)} This run asks first (approval: ask).")


def _permitted(request: AccessRequest, so_far: Decision | None) -> Decision | None:
    policy, tool, effect = request.policy, request.tool, request.effect
    if not isinstance(so_far, Ask) or so_far.by in FIRM or (effect and effect.always):
        return None
    for one in policy.usable_permissions:
        if not one.is_rule and (request.principal.role is Role.GUEST or policy.labels.asking(tool)):
            continue  # the person did not consider the label when giving it
        if one.covers(tool, request.arguments, policy.surroundings):
            return Allow(one.words, counted=one.id)
    return None


def _granted_hosts(request: AccessRequest, so_far: Decision | None) -> Decision | None:
    if not isinstance(so_far, Ask) or not request.arguments or not reaches_hosts(request.tool):
        return None
    rest = without_granted_hosts(request.policy.holding, request.arguments)
    if rest is request.arguments:
        return None
    return decided(QUESTIONS, replace(request, arguments=rest)) or Allow()


def _rule_asks(request: AccessRequest, so_far: Decision | None) -> Decision | None:
    if request.finding is None:
        return None
    question = so_far.reason if isinstance(so_far, Ask) else ""
    return Ask(f"{request.finding.reason} {question}".rstrip())


def _unattended(request: AccessRequest, so_far: Decision | None) -> Decision | None:
    if isinstance(so_far, Ask) and request.policy.unattended:
        return ask_or_refuse(so_far.reason, request.policy)
    return None


def _hopeless(request: AccessRequest, so_far: Decision | None) -> Decision | None:
    if not isinstance(so_far, Ask) or not request.policy.boxed or request.arguments is None:
        return None
    advice = request.tool.hopeless(request.arguments)
    return Refuse(advice, only_so=True) if advice else None


Rows = tuple[DecisionRow[AccessRequest], ...]

RIGHTS: Rows = (
    DecisionRow("role", "refuses", "of a tool that needs a higher role than the principal has", _role),
    DecisionRow("token", "refuses", "of a tool that the token leaves out or disables", _token),
    DecisionRow("profile", "refuses", "of a tool that a profile of the run leaves out", _profile),
    DecisionRow("session", "refuses", "of a tool that is disabled in the session", _session),
    DecisionRow(
        "app", "refuses", "of a tool that is for apps alone, or, made by an app, of one that is not for it", _app
    ),
    DecisionRow("read_only", "refuses", "that does more than read in a read-only conversation", _read_only),
    DecisionRow("plan", "refuses", "that does more than read in a run that plans first", _plan),
    DecisionRow("person", "refuses", "of a tool that asks the person, in a run that nobody answers", _person),
    DecisionRow("label", "refuses", "that a label of the conversation refuses", _label),
    DecisionRow("rule", "refuses", "that a rule of the operator denies", _rule),
)
# The first of these that decides ends the questions.
QUESTIONS: Rows = (
    DecisionRow("plan_accepted", "asks", "that submits a plan", _accepts_plan, opens=True),
    DecisionRow("always", "asks", 'of a tool with `approval = "always"`, or that adds a schedule', _always, opens=True),
    DecisionRow("reads", "allows", "that only reads, unless untrusted text may have chosen where", _reads, opens=True),
    DecisionRow(
        "untrusted",
        "asks",
        "that leaves files for your own programs; and that leaves the sandbox once there is untrusted text or a "
        "label that asks, unless all its values that matter are your own or exactly that call was granted since",
        _untrusted,
        opens=True,
    ),
    DecisionRow("never", "allows", 'of a tool with `approval = "never"`', _never, opens=True),
    DecisionRow("granted", "allows", "that a grant of the session or `allowed_commands` covers", _granted, opens=True),
    DecisionRow("auto", "allows", "of an admin in the mode `auto`", _auto, opens=True),
    DecisionRow(
        "own_values",
        "allows",
        "whose values that matter are all your own, but for the mode `ask`",
        _own_values,
        opens=True,
    ),
    DecisionRow("outbound", "asks", "that leaves the sandbox and the workspace", _outbound, opens=True),
    DecisionRow("mode", "asks", "that writes or executes in the mode `ask`", _mode, opens=True),
)
FIRM = frozenset({"plan_accepted", "always"})  # questions that no permission answers
OUTCOMES: Rows = (
    DecisionRow(
        "permitted",
        "allows",
        "about which a row of `untrusted`, `outbound` or `mode` asks, if a rule that allows or a standing permission "
        "bounds it",
        _permitted,
    ),
    DecisionRow(
        "granted_hosts", "asks again", "whose hosts are granted: it is asked about without them", _granted_hosts
    ),
    DecisionRow("rule_asks", "asks", "about which a rule of the operator asks, whatever is granted", _rule_asks),
    DecisionRow("unattended", "refuses", "that has to ask, in a run without approvals", _unattended),
    DecisionRow("hopeless", "refuses", "that has to ask, and cannot succeed in the sandbox", _hopeless),
)
GATE_ROWS = (*RIGHTS, *QUESTIONS, *OUTCOMES)
ANSWERABLE = frozenset(row.name for row in GATE_ROWS) - FIRM - {"rule_asks"}  # questions that a permission answers


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


def _effect_inside(request: AccessRequest) -> str:
    """Describe a call without an outbound effect."""
    tool = request.tool
    if tool.risk is Risk.EXECUTE:
        network = "with the network, as all commands here" if request.policy.networked else "without network"
        return f"{tool.name} runs in the sandbox, {network}, and can change the workspace."
    path = (request.arguments or {}).get("path")
    return f"{tool.name} changes {shown(path) if isinstance(path, str) else 'something'} in the workspace."


def _warning(request: AccessRequest) -> str:
    """Return the warning that is added to a question in a tainted or labelled conversation."""
    taint = _taint(request)
    labels = request.policy.labels.asking(request.tool)
    why = f" {request.foreign}" if request.policy.evidence else ""
    return f"{taint}{why} {carried(labels)}" if labels else f"{taint}{why}"


def _taint(request: AccessRequest) -> str:
    return " This conversation holds untrusted text, which may have asked for it." if request.policy.tainted else ""


def _is_named_command(request: AccessRequest) -> bool:
    """Return True if the operator's commands name the call (without arguments: might name one)."""
    policy, arguments = request.policy, request.arguments
    if request.tool.name != "bash" or not policy.commands:
        return False
    if arguments is None:
        return True
    command = arguments.get("command")
    return isinstance(command, str) and not hosts_wanted(arguments) and allowed(command, policy.commands)


def _is_unchanged(request: AccessRequest) -> bool:
    """Return True if no tool can have written what the command runs (without arguments: if that is open)."""
    policy, arguments = request.policy, request.arguments
    if policy.boxed or arguments is None or policy.writes.last < policy.writes.started:
        return True
    return reads(str(arguments["command"]))


def _is_granted(request: AccessRequest) -> bool:
    return _covers(_valid_grants(request.tool, request.policy.grants, request.policy), request)


def _granted_exactly(request: AccessRequest) -> bool:
    """Return True if an exact grant was given after the conversation became tainted, if it is."""
    valid = _valid_grants(request.tool, request.policy.holding, request.policy)
    return _covers([grant for grant in valid if grant.fingerprint is not None], request)


def _covers(grants: list[Grant], request: AccessRequest) -> bool:
    """Return True if one of them covers the call (without arguments: might cover one)."""
    arguments = request.arguments
    if arguments is None:
        return bool(grants)
    return any(grant.covers(request.principal.name, arguments) for grant in grants)


def _valid_grants(tool: Tool, grants: Iterable[Grant], policy: PolicyContext) -> list[Grant]:
    """Return the tool's valid grants; without a sandbox, only those given after the last write."""
    changed = max(policy.writes.started, policy.writes.last)
    kept_in = policy.boxed or tool.risk is not Risk.EXECUTE
    held = (grant for grant in grants if grant.tool == tool.name and grant.in_force)
    return [grant for grant in held if kept_in or grant.created > changed]


def _loses_nothing(request: AccessRequest) -> bool:
    """Return True if a sandboxed call only reads or makes undoable additions (without arguments: if some calls do)."""
    if not request.policy.boxed:
        return False
    if request.arguments is None:
        return request.tool.loses_nothing is not nothing_known
    return request.tool.loses_nothing(request.arguments, request.policy.workspace)
