"""The table of decisions: its order, and that nothing undoes a refusal."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.core.messages import Message
from app.core.rules import ApprovalMode, WhenAbsent
from app.policy.call_rows import CALL_ROWS, TABLE, CallRequest, author_of, decide_call
from app.policy.decision_table import DecisionRow, decided
from app.policy.gate import decide
from app.policy.gate_rows import GATE_ROWS, QUESTIONS, AccessRequest
from app.policy.grants import Grant
from app.policy.label_limits import NO_LIMITS, LabelLimits
from app.policy.permits.bounds import Bounds
from app.policy.permits.permissions import Permission
from app.policy.policy_context import PolicyContext
from app.policy.rules.operator_rules import NO_OPERATOR_RULES
from app.policy.tool_narrowing import ALL_TOOLS, ToolNarrowing
from app.provenance.own_values import OwnValues
from app.storage.principals import LOCAL_USER, Principal
from tests.support.access.operator_rules import rules
from tools.base.permit import fingerprint
from tools.base.rights import OutboundEffect, Risk, Role
from tools.tool import Context, Tool, answering
from tools.toolbox import Allow, Ask, Decision, Refuse

ANN = Principal("ann", Role.USER)
PII = frozenset({"pii"})
PERMITTED = Permission("prm_1", "some_tool", Bounds((("path", ("notes/a.md",)), ("url", ("https://example.org/",)))))
NOTES = {"tool": "*", "paths": ["notes/**"]}
CALL = {"path": "notes/a.md", "url": "https://example.org/"}


async def nothing(_: Mapping[str, Any], __: Context) -> str:
    return ""


def sends(always: bool) -> Any:
    return lambda arguments, _: OutboundEffect("It sends the page.", always=always) if arguments else None


def advice(_: Mapping[str, Any]) -> str:
    return "There is no network: read the copy."


def granted(tainted: bool) -> Grant:
    return Grant("some_tool", fingerprint("ann", "some_tool", CALL), tainted=tainted)


tools = st.builds(
    Tool,
    name=st.just("some_tool"),
    description=st.just(""),
    parameters=st.just({"type": "object"}),
    risk=st.sampled_from(Risk),
    run=st.just(answering(nothing)),
    role=st.sampled_from(Role),
    approval=st.sampled_from(["mode", "never", "always"]),
    confined=st.booleans(),
    leaves=st.sampled_from([sends(False), sends(True), lambda _, __: None]),
    loses_nothing=st.sampled_from([lambda _, __: False, lambda _, __: True]),
    hopeless=st.sampled_from([lambda _: None, advice]),
    handed=st.booleans(),
    needs_person=st.booleans(),
    plans=st.booleans(),
)
OWN = OwnValues([Message("user", "Write notes/a.md and read https://example.org/")], lambda _: None)
policies = st.builds(
    PolicyContext,
    mode=st.sampled_from(ApprovalMode),
    boxed=st.booleans(),
    networked=st.booleans(),
    workspace=st.just(Path("/nowhere")),
    tainted=st.booleans(),
    disabled=st.sampled_from([(), (), ("some_*",)]),
    grants=st.sampled_from([(), (granted(False),), (granted(True),)]),
    when_absent=st.sampled_from(WhenAbsent),
    planning=st.booleans(),
    narrowing=st.sampled_from([ALL_TOOLS, ToolNarrowing("mild", disabled=("some_*",)), ToolNarrowing(read_only=True)]),
    labels=st.sampled_from([NO_LIMITS, LabelLimits(PII, asks=PII), LabelLimits(PII, refuses=PII)]),
    evidence=st.sampled_from([None, OWN]),
    rules=st.sampled_from([NO_OPERATOR_RULES, *(rules({**NOTES, "action": action}) for action in ("ask", "deny"))]),
    permissions=st.sampled_from([(), (PERMITTED,)]),
)
requests = st.builds(
    AccessRequest,
    principal=st.sampled_from([ANN, LOCAL_USER, Principal("gus", Role.GUEST), Principal("bo", Role.USER, ("read_*",))]),
    tool=tools,
    arguments=st.sampled_from([None, {}, CALL]),
    policy=policies,
)
decisions = st.sampled_from([Allow(), Ask("It asks.", by="mode"), Refuse("It refuses.", by="role")])


def test_the_rows_and_their_order() -> None:
    """An order that changes is a decision about what wins: change this list with the reason for it."""
    assert " ".join(name for name, *_ in TABLE).split() == [
        *("canary", "screen", "judge", "unknown_tool"),
        *("role", "token", "profile", "session", "app", "read_only", "plan", "person", "label", "rule"),
        *("plan_accepted", "always", "reads", "untrusted", "never", "granted", "auto", "own_values", "outbound"),
        *("mode", "permitted", "granted_hosts", "rule_asks", "unattended", "hopeless"),
        *("arguments", "hook", "provenance"),
    ]


@given(requests)
def test_no_later_row_turns_a_refusal_into_a_yes(request: AccessRequest) -> None:
    whole = decided(GATE_ROWS, request)
    for end in range(len(GATE_ROWS)):
        if isinstance(before := decided(GATE_ROWS[:end], request), Refuse):
            assert whole == before, GATE_ROWS[end].name


@given(requests)
def test_only_hosts_that_are_granted_take_a_question_back(request: AccessRequest) -> None:
    so_far: Decision | None = None
    for row in GATE_ROWS:
        before, so_far = so_far, decided([row], request, so_far)
        if isinstance(before, Ask) and isinstance(so_far, Allow):
            assert row.name == "granted_hosts"


@given(requests)
def test_each_question_and_refusal_names_its_row(request: AccessRequest) -> None:
    decision = decide(request.principal, request.tool, request.arguments, request.policy)
    if not isinstance(decision, Allow):
        gives = {name: gives for name, gives, _ in TABLE}[decision.by]
        assert ("asks" if isinstance(decision, Ask) else "refuses") in gives and decision.reason


@given(requests)
def test_what_a_person_is_asked_is_refused_where_none_is_there(request: AccessRequest) -> None:
    decision = decide(request.principal, request.tool, request.arguments, request.policy)
    assert not (isinstance(decision, Ask) and request.policy.unattended)


@given(
    decisions, policies, st.booleans(), st.sampled_from(["", "your message"]), st.sampled_from([None, "ask", "deny"])
)
def test_nothing_around_the_dispatcher_allows_more_than_it(
    dispatched: Decision, policy: PolicyContext, is_handed: bool, quoted_in: str, hook: str | None
) -> None:
    verdict = {None: None, "ask": Ask("Look.", by="hook h"), "deny": Refuse("Never.", by="hook h")}[hook]
    request = CallRequest(
        name="some_tool",
        policy=policy,
        dispatch=lambda: dispatched,
        hook=verdict,
        quoted_in=quoted_in,
        is_handed=is_handed,
    )
    decision, order = decide_call(request), [Allow, Ask, Refuse]
    assert order.index(type(decision)) >= order.index(type(dispatched))
    if verdict:
        assert order.index(type(decision)) >= order.index(type(verdict))
    if quoted_in:
        assert not isinstance(decision, Allow) and not (is_handed and isinstance(decision, Ask))


@pytest.mark.parametrize("quoted_in", ["", "your message"])
def test_a_guards_refusal_stays_as_it_is(quoted_in: str) -> None:
    objection = Refuse("It carries the code.", by="canary")
    request = CallRequest(name="x", policy=PolicyContext(), dispatch=Allow, objection=objection, quoted_in=quoted_in)
    assert decide_call(request) == objection


@pytest.mark.parametrize(
    ("by", "author"),
    [
        *((name, "policy") for name in ("role", "session", "arguments", "unknown_tool", "unattended")),
        *((name, name) for name in ("canary", "judge", "screen", "provenance", "hook strict")),
    ],
)
def test_a_person_reads_of_the_policy_as_a_whole(by: str, author: str) -> None:
    assert author_of(Refuse("No.", by=by)) == author


def test_the_first_question_that_decides_ends_the_questions() -> None:
    settled = [DecisionRow("first", "allows", "", lambda *_: Allow(), opens=True), *QUESTIONS]
    asks = AccessRequest(ANN, Tool("t", "", {}, Risk.NETWORK, answering(nothing), Role.USER), {}, PolicyContext())
    assert decided(QUESTIONS, asks) == Ask("t reaches the network.", by="outbound")
    assert decided(settled, asks) == Allow()
    assert all(row.opens for row in QUESTIONS) and not any(row.opens for row in CALL_ROWS)
