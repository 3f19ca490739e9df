"""Permissions: which calls each bounds, that they hold after untrusted text, and that they overrule nothing firmer."""

from __future__ import annotations

import dataclasses
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from app.config.sources import SettingsError
from app.core.rules import ApprovalMode, OperatorRule, WhenAbsent
from app.policy.gate import Gate, decide
from app.policy.label_limits import LabelLimits
from app.policy.permits.bounds import Bounds, Surroundings, bounds_of, fields_of
from app.policy.permits.permissions import Permission, day_of
from app.policy.permits.proposals import proposals_of
from app.policy.policy_context import PolicyContext, Writes
from app.policy.rules.compiling import compiled_rules
from app.policy.rules.operator_rules import OperatorRules
from app.storage.principals import LOCAL_USER, Principal
from tests.support.access.operator_rules import ANN, BASH, FETCH, PYTHON, READ, WRITE, kind_of, rules, run_nothing
from tools.base.rights import Origin, Risk, Role
from tools.builtin.outbound_effects import call_sent
from tools.tool import Tool, ToolList, answering
from tools.toolbox import Allow, Ask, Refuse

BOB, EVE = "bob@example.org", "mallory@example.net"
MAIL = Tool(
    "mcp__mail__send",
    "",
    {"type": "object"},
    Risk.NETWORK,
    answering(run_nothing),
    Role.USER,
    leaves=partial(call_sent, "mail", "send"),
    origin=Origin("mail", "send"),
)
PAY = replace(MAIL, name="mcp__bank__pay", origin=Origin("bank", "pay"))
DAY_S = 86_400.0


def allowing(**row: Any) -> OperatorRules:
    return rules({"action": "allow", "reason": "It is bounded.", "tool": MAIL.name} | row)


TO_BOB = allowing(arguments={"recipients": [BOB], "subject": "*", "body": "*", "html": [False, ""]})
IN_TEAM = allowing(arguments={"recipients": ["*@example.org"], "body": "*"})
NESTED = allowing(arguments={"message.to": [BOB], "message.body": "*"})
BELOW = allowing(tool=FETCH.name, arguments={"url": ["https://example.org/reports/*"]})
HOSTS = allowing(tool=FETCH.name, hosts=["example.org", "*.example.com"])
AMOUNT = allowing(tool=PAY.name, arguments={"iban": ["DE02"]}, most={"amount": 50})
PUSH = allowing(tool="bash", commands=["git push", "make -C docs html"], network=["github.com"])
NOTES = allowing(tool="write_file", paths=["notes/**"])
ARGV, CODE = allowing(arguments={"command": ["git fetch origin"]}), allowing(arguments={"code": ["print(1)"]})
NOTHING = allowing(arguments={})

CALLS: list[tuple[OperatorRules, Tool, dict[str, Any], bool]] = [
    # recipients: each of them, exactly as written, but for the case of the host
    (TO_BOB, MAIL, {"recipients": [BOB], "subject": "Today", "body": "Three things."}, True),
    (TO_BOB, MAIL, {"recipients": BOB, "body": "x", "html": False}, True),
    (TO_BOB, MAIL, {"recipients": ["bob@EXAMPLE.org"], "body": "x"}, True),
    (TO_BOB, MAIL, {"recipients": ["Bob@example.org"], "body": "x"}, False),
    (TO_BOB, MAIL, {"recipients": ["bob+x@example.org"], "body": "x"}, False),
    (TO_BOB, MAIL, {"recipients": [BOB, EVE], "body": "x"}, False),
    (TO_BOB, MAIL, {"recipients": f"{BOB}, {EVE}", "body": "x"}, False),
    (TO_BOB, MAIL, {"recipients": [f"{BOB}\n{EVE}"], "body": "x"}, False),
    (TO_BOB, MAIL, {"recipients": [f"Bob <{EVE}>"], "body": "x"}, False),
    (TO_BOB, MAIL, {"recipients": ["b\u043eb@example.org"], "body": "x"}, False),  # a Cyrillic letter
    (TO_BOB, MAIL, {"recipients": ["\uff42ob@example.org"], "body": "x"}, False),
    (TO_BOB, MAIL, {"recipients": ["bob@example.org\u200b"], "body": "x"}, False),
    (TO_BOB, MAIL, {"recipients": ["bob%40example.org"], "body": "x"}, False),
    (TO_BOB, MAIL, {"recipients": [{"address": BOB}], "body": "x"}, False),
    (TO_BOB, MAIL, {"recipients": [[BOB]], "body": "x"}, True),
    # what is not named has to be absent
    (TO_BOB, MAIL, {"recipients": [BOB], "body": "x", "cc": [EVE]}, False),
    (TO_BOB, MAIL, {"recipients": [BOB], "body": "x", "bcc": EVE}, False),
    (TO_BOB, MAIL, {"recipients": [BOB], "body": "x", "cc": [], "bcc": "", "attachments": None}, True),
    (TO_BOB, MAIL, {"recipients": [BOB], "body": "x", "attachments": ["/etc/passwd"]}, False),
    (TO_BOB, MAIL, {"recipients": [BOB], "body": "x", "html": True}, False),
    (TO_BOB, MAIL, {"recipients": [BOB], "body": "x", "Recipients": [EVE]}, False),
    (TO_BOB, MAIL, {"recipients": [BOB], "subject": f"Hi\r\nBcc: {EVE}", "body": "x"}, False),
    (TO_BOB, MAIL, {"recipients": [BOB], "subject": "Grüße", "body": "two\nlines"}, True),
    (TO_BOB, MAIL, {"recipients": [BOB], "body": {"html": "x"}}, True),  # any body, whatever it is
    (TO_BOB, PAY, {"recipients": [BOB]}, False),
    # what is bounded has to be there: without it the server might take all
    (TO_BOB, MAIL, {"body": "x"}, False),
    (TO_BOB, MAIL, {"recipients": [], "body": "x"}, False),
    (AMOUNT, PAY, {"iban": "DE02"}, False),
    (BELOW, FETCH, {"offset": 2}, False),
    (IN_TEAM, MAIL, {"recipients": ["ann@example.org", BOB], "body": "x"}, True),
    (IN_TEAM, MAIL, {"recipients": [f"{EVE},x@example.org"], "body": "x"}, False),
    (IN_TEAM, MAIL, {"recipients": ["x@evil.example.org"], "body": "x"}, False),
    (IN_TEAM, MAIL, {"recipients": [f"{EVE} x@example.org"], "body": "x"}, False),
    (NESTED, MAIL, {"message": {"to": [BOB], "body": "x"}}, True),
    (NESTED, MAIL, {"message": {"to": [BOB], "cc": EVE}}, False),
    (NESTED, MAIL, {"message.to": BOB, "to": EVE}, False),
    (NESTED, MAIL, {"message.to": EVE}, False),
    # addresses
    (BELOW, FETCH, {"url": "https://example.org/reports/today", "offset": 20}, True),
    (BELOW, FETCH, {"url": "https://example.org/reports"}, False),
    (BELOW, FETCH, {"url": "https://example.org/reports/../secret"}, False),
    (BELOW, FETCH, {"url": "https://example.org/reports/%2e%2e/secret"}, False),
    (BELOW, FETCH, {"url": "https://example.org@evil.example.net/reports/x"}, False),
    (BELOW, FETCH, {"url": "http://example.org/reports/x"}, False),
    (BELOW, FETCH, {"url": "https://example.org.example.net/reports/x"}, False),
    (HOSTS, FETCH, {"url": "https://example.org/a?b=c"}, True),
    (HOSTS, FETCH, {"url": "http://docs.example.com"}, True),
    (HOSTS, FETCH, {"url": "https://docs.example.org/"}, False),
    (HOSTS, FETCH, {"url": "https://example.org:8443/"}, False),
    (HOSTS, FETCH, {"url": "https://example.org\\@evil.example.net/"}, False),
    # below what is open nothing decides where it goes
    (TO_BOB, MAIL, {"recipients": [BOB], "body": {"cc": EVE}}, False),
    (TO_BOB, MAIL, {"recipients": [BOB], "body": [{"bcc": EVE}]}, False),
    # numbers
    (AMOUNT, PAY, {"iban": "DE02", "amount": 50}, True),
    (AMOUNT, PAY, {"iban": "DE02", "amount": 0.5}, True),
    (AMOUNT, PAY, {"iban": "DE02", "amount": 50.01}, False),
    (AMOUNT, PAY, {"iban": "DE02", "amount": -1}, False),
    (AMOUNT, PAY, {"iban": "DE02", "amount": "1.000"}, False),
    (AMOUNT, PAY, {"iban": "DE02", "amount": True}, False),
    (AMOUNT, PAY, {"iban": "DE02", "amount": [20, 60]}, False),
    (AMOUNT, PAY, {"iban": "DE02", "amount": float("nan")}, False),
    (AMOUNT, PAY, {"iban": "DE99", "amount": 5}, False),
    # commands: every word, by both readers, and no other network
    (PUSH, BASH, {"command": "git push", "network": ["github.com"]}, True),
    (PUSH, BASH, {"command": "git  'push'", "network": "github.com", "background": True}, True),
    (PUSH, BASH, {"command": "make -C docs html && git push", "network": ["github.com"]}, True),
    (PUSH, BASH, {"command": "git push --force", "network": ["github.com"]}, False),
    (PUSH, BASH, {"command": "git push; curl evil.example.net", "network": ["github.com"]}, False),
    (PUSH, BASH, {"command": "git push $X", "network": ["github.com"]}, False),
    (PUSH, BASH, {"command": "git push", "network": ["github.com", "evil.example.net"]}, False),
    (PUSH, BASH, {"command": "git push", "network": True}, False),
    (PUSH, BASH, {"command": ["git", "push"], "network": ["github.com"]}, False),
    (ARGV, MAIL, {"command": "git fetch origin"}, True),
    (ARGV, MAIL, {"command": "git fetch origin; rm x"}, False),
    (CODE, MAIL, {"code": "print(1)"}, True),
    (CODE, MAIL, {"code": "print(12)"}, False),
    (NOTHING, MAIL, {}, True),
    (NOTHING, MAIL, {"to": EVE}, False),
]


def after_untrusted(of: OperatorRules, mode: ApprovalMode = ApprovalMode.DENY, **more: Any) -> PolicyContext:
    return PolicyContext(mode, boxed=True, workspace=Path("/w"), tainted=True, rules=of, **more)


@pytest.mark.parametrize(("of", "tool", "arguments", "covered"), CALLS)
def test_a_rule_that_allows_holds_after_untrusted_text_for_what_is_within_it_alone(
    of: OperatorRules, tool: Tool, arguments: dict[str, Any], covered: bool
) -> None:
    call = tool.normalise(arguments)
    for mode in (ApprovalMode.DENY, ApprovalMode.SANDBOXED, ApprovalMode.ASK):
        decision = decide(ANN, tool, call, after_untrusted(of, mode))
        refused = "refuse" if mode is ApprovalMode.DENY else "ask"
        assert kind_of(decision) == ("allow" if covered else refused), (mode, decision)
        assert not covered or (isinstance(decision, Allow) and decision.by == "permitted" and decision.counted)


@pytest.mark.parametrize(
    ("path", "covered"),
    [
        ("notes/today.md", True),
        ("./notes/a/b.md", True),
        ("notes/../plan.md", False),
        ("plan.md", False),
        ("notes/link/x", False),
        ("-fnotes/x", False),
        ("notes/.git/hooks/pre-commit", False),  # the owner's own programs run it: it asks in every mode
    ],
)
def test_paths_are_allowed_with_links_resolved(path: str, covered: bool, tmp_path: Path) -> None:
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes/link").symlink_to("/etc")
    policy = dataclasses.replace(after_untrusted(NOTES, ApprovalMode.ASK), workspace=tmp_path)
    decision = decide(ANN, WRITE, {"path": path, "content": "x"}, policy)
    assert kind_of(decision) == ("allow" if covered else "ask")


FULL = {"recipients": [BOB], "body": "x"}


@pytest.mark.parametrize(
    ("tool", "change", "expected"),
    [
        (replace(MAIL, approval="always"), {}, "ask"),
        (replace(MAIL, role=Role.ADMIN), {}, "refuse"),
        (replace(MAIL, needs_person=True), {"when_absent": WhenAbsent.DENY}, "refuse"),
        (MAIL, {"disabled": ("mcp__mail__*",)}, "refuse"),
        (MAIL, {"planning": True}, "refuse"),
        (MAIL, {"labels": LabelLimits(refuses=frozenset({"secret"}))}, "refuse"),
        (MAIL, {"labels": LabelLimits(asks=frozenset({"secret"}))}, "allow"),
        (MAIL, {"clock": lambda: DAY_S * 365 * 100}, "allow"),  # without `until` for ever
    ],
)
def test_a_permission_overrules_nothing_that_is_firmer(tool: Tool, change: dict[str, Any], expected: str) -> None:
    policy = dataclasses.replace(after_untrusted(TO_BOB, ApprovalMode.SANDBOXED), **change)
    assert kind_of(decide(ANN, tool, FULL, policy)) == expected


def test_rules_that_deny_or_ask_win_over_those_that_allow() -> None:
    allow = {"tool": MAIL.name, "action": "allow", "arguments": {"recipients": [BOB], "body": "*"}}
    for action, expected in (("deny", "refuse"), ("ask", "ask")):
        stricter = {"tool": MAIL.name, "action": action, "hosts": ["example.org"]}
        for of in (rules(allow, stricter), rules(stricter, allow)):
            assert kind_of(decide(ANN, MAIL, FULL, after_untrusted(of, ApprovalMode.SANDBOXED))) == expected


def test_without_a_sandbox_a_command_is_bounded_only_while_nothing_was_written() -> None:
    read = allowing(tool="bash", commands=["./deploy.sh", "git status"])
    for last, command, expected in ((0, "./deploy.sh", "allow"), (9, "./deploy.sh", "ask"), (9, "git status", "allow")):
        policy = dataclasses.replace(
            after_untrusted(read, ApprovalMode.SANDBOXED), boxed=False, writes=Writes(started=5, last=last)
        )
        assert kind_of(decide(ANN, BASH, {"command": command}, policy)) == expected
    policy = dataclasses.replace(after_untrusted(ARGV, ApprovalMode.SANDBOXED), writes=Writes(started=5, last=9))
    assert kind_of(decide(ANN, MAIL, {"command": "git fetch origin"}, policy)) == "ask"


def standing(**more: Any) -> Permission:
    bounds = Bounds(arguments=(("recipients", (BOB,)), ("body", ("*",))))
    return Permission("prm_1", MAIL.name, bounds, **more)


@pytest.mark.parametrize(
    ("who", "given", "change", "expected"),
    [
        (ANN, standing(), {}, "allow"),
        (Principal("ann", Role.GUEST), standing(), {}, "refuse"),  # whose role was lowered
        (ANN, standing(expires=100.0), {"clock": lambda: 99.0}, "allow"),
        (ANN, standing(expires=100.0), {"clock": lambda: 100.0}, "refuse"),
        (ANN, standing(), {"labels": LabelLimits(asks=frozenset({"secret"}))}, "refuse"),
        (ANN, standing(), {"used_up": (("prm_1", "1970-01-01"),), "clock": lambda: DAY_S - 1}, "refuse"),
        (ANN, standing(), {"used_up": (("prm_1", "1970-01-01"),), "clock": lambda: DAY_S}, "allow"),
    ],
)
def test_a_standing_permission_of_a_person(
    who: Principal, given: Permission, change: dict[str, Any], expected: str
) -> None:
    policy = dataclasses.replace(after_untrusted(OperatorRules(), permissions=(given,)), **change)
    assert kind_of(decide(who, replace(MAIL, role=Role.GUEST), FULL, policy)) == expected


def test_an_unattended_run_is_offered_a_tool_that_a_permission_covers_and_no_other() -> None:
    tools = ToolList([MAIL, PAY])
    gate = Gate(LOCAL_USER, after_untrusted(OperatorRules()))
    assert list(gate.offer(tools)) == []
    gate.permit([standing(expires=100.0)])
    gate.policy = dataclasses.replace(gate.policy, clock=lambda: 0.0)
    assert list(gate.offer(tools)) == [MAIL]
    gate.policy = dataclasses.replace(gate.policy, clock=lambda: 200.0)
    assert list(gate.offer(tools)) == []


def test_a_permission_without_uses_left_is_gone_whatever_the_day_of_the_policy_is() -> None:
    gate = Gate(LOCAL_USER, after_untrusted(OperatorRules(), clock=lambda: 5 * DAY_S))  # of a replay: long ago
    gate.permit([standing()])
    assert kind_of(gate.decide(MAIL, FULL)) == "allow"
    gate.use_up("prm_1")
    assert kind_of(gate.decide(MAIL, FULL)) == "refuse"


def test_until_is_a_moment_in_utc() -> None:
    row = {"tool": MAIL.name, "action": "allow", "reason": "x", "arguments": {}}
    ends = [
        compiled_rules([OperatorRule(**row, until=until)]).permissions[0].expires  # type: ignore[arg-type]
        for until in ("2027-01-01", "2027-01-01T00:00:00", "2027-01-01T01:00:00+01:00")
    ]
    assert set(ends) == {datetime(2027, 1, 1, tzinfo=UTC).timestamp()}
    assert day_of(ends[0] or 0) == "2027-01-01"


WRONG = [
    ({"arguments": {"recipients": ["*"], "body": "*"}}, "allows any recipients"),
    ({"arguments": {"body": "*"}}, "bounds nothing"),
    ({}, "bounds nothing"),
    ({"per_day": 5, "arguments": {"to": BOB}}, "no name"),
    ({"tool": "mcp__mail__*", "arguments": {"to": BOB}}, "no single tool"),
    ({"tool": "*", "arguments": {"to": BOB}}, "no single tool"),
    ({"tool": "client_tools", "arguments": {"to": BOB}}, "no single tool"),
    ({"tool": "mcp__mail__send", "hosts": ["example.org"]}, "only bound web_fetch"),
    ({"tool": "mcp__mail__send", "paths": ["notes"]}, "only bound"),
    ({"commands": ["git push"]}, "only bound bash"),
    ({"tool": "bash", "network": ["github.com"]}, "without commands"),
    ({"tool": "bash", "commands": ["git push"], "network": ["*"]}, "every host"),
    ({"tool": "bash", "commands": ["git *"]}, "too wide"),
    ({"tool": "bash", "commands": ["git push $X"]}, "not understood"),
    ({"tool": "web_fetch", "hosts": ["*"]}, "every host"),
    ({"tool": "web_fetch", "hosts": ["example.org"], "arguments": {"url": "https://a/*"}}, "twice"),
    ({"arguments": {"amount": "5"}, "most": {"amount": 5}}, "twice"),
    ({"arguments": {"subject": ["*", "x"], "to": BOB}}, "leave the others out"),
    ({"arguments": {"code": "print(*)"}}, "no pattern can bound"),
    ({"arguments": {"path": "*", "to": BOB}}, "allows any path"),
    ({"action": "deny", "per_day": 5}, 'only rows with action = "allow"'),
    ({"action": "ask", "arguments": {"to": BOB}}, 'only rows with action = "allow"'),
]


@pytest.mark.parametrize(("row", "problem"), WRONG)
def test_a_row_that_bounds_nothing_or_can_be_read_in_two_ways_stops_the_start(
    row: dict[str, Any], problem: str
) -> None:
    with pytest.raises(SettingsError) as stopped:
        allowing(**row)
    assert problem in str(stopped.value)


def test_a_row_that_never_allows_anything_stops_the_start() -> None:
    with pytest.raises(SettingsError, match="can never allow anything"):
        rules({"tool": "mcp__*"}, {"tool": MAIL.name, "action": "allow", "arguments": {"to": BOB}})


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20) | st.just(BOB),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.sampled_from(["recipients", "body", "cc", "amount", "url"]) | st.text(max_size=8), ANYTHING))
def test_bounds_never_raise_and_what_they_cover_has_no_other_recipient(arguments: dict[str, Any]) -> None:
    bounds = Bounds(arguments=(("recipients", (BOB,)), ("body", ("*",))))
    if bounds.covers(MAIL, arguments, Surroundings(boxed=True)):
        assert {"recipients", "body"}.issuperset(
            name for name, value in arguments.items() if str(value).strip("[]{}, ") not in ("", "None", "''")
        ) or not any("@" in str(value) for name, value in arguments.items() if name != "body")


def test_too_many_values_are_not_covered() -> None:
    bounds = Bounds(arguments=(("recipients", (BOB,)),))
    assert bounds.covers(MAIL, {"recipients": [BOB] * 900}, Surroundings(boxed=True))
    assert not bounds.covers(MAIL, {"recipients": [BOB] * 2000}, Surroundings(boxed=True))


PROPOSED: list[tuple[Tool, dict[str, Any], list[str]]] = [
    (
        MAIL,
        {"recipients": [BOB], "subject": "Today", "body": "Hello", "html": False},
        [
            f"recipients {BOB}; html false; any subject, body",
            f'exactly body Hello, html false, recipients ["{BOB}"], subject Today',
        ],
    ),
    (
        MAIL,
        {"to": "x; any to, body", "body": "y z"},
        ['to "x; any to, body"; any body', 'exactly body "y z", to "x; any to, body"'],
    ),
    (
        FETCH,
        {"url": "https://example.org/a b/c"},
        [
            'exactly url "https://example.org/a b/c"',
        ],
    ),
    (MAIL, {"to": BOB, "query": "x", "body": "y"}, [f"to {BOB}; query x; any body", "exactly body y"]),
    (MAIL, {"to": BOB, "note": "a@b.c"}, [f"to {BOB}; note a@b.c", "exactly note"]),
    (
        PAY,
        {"iban": "DE02", "amount": 20},
        ["iban DE02; amount at most 20", "exactly amount 20, iban DE02"],
    ),
    (
        FETCH,
        {"url": "https://example.org/reports/today.html"},
        [
            "url below https://example.org/reports/",
            "exactly url https://example.org/reports/today.html",
        ],
    ),
    (
        BASH,
        {"command": "git push", "network": ["github.com"]},
        ['the command "git push"; with network to github.com'],
    ),
    (BASH, {"command": "git push && rm x", "network": ["github.com"]}, []),
    (BASH, {"command": "git push $X", "network": ["github.com"]}, []),
    (BASH, {"command": "git push", "network": True}, []),
    (PYTHON, {"code": "1", "network": ["github.com"]}, []),
    (replace(MAIL, approval="always"), {"to": BOB}, []),
    (replace(MAIL, role=Role.ADMIN), {"to": BOB}, []),
    (replace(MAIL, handed=True), {"to": BOB}, []),
    (MAIL, {"batch": [{"to": BOB, "amount": 1}, {"to": EVE, "amount": 9}]}, ["exactly"]),
    (MAIL, {"a.b": BOB, "to": BOB}, ["exactly"]),
]


@pytest.mark.parametrize(("tool", "arguments", "words"), PROPOSED)
def test_proposals_are_bounded_by_the_call_that_they_are_for(
    tool: Tool, arguments: dict[str, Any], words: list[str]
) -> None:
    around, call = Surroundings(Path("/w"), boxed=True), tool.normalise(arguments)
    found = proposals_of(tool, call, ANN, around)
    assert len(found) == len(words)
    for one, wanted in zip(found, words, strict=True):
        assert wanted in one.words
        bounds = bounds_of(one.pattern)
        assert bounds.covers(tool, call, around) and fields_of(bounds) == one.pattern
        for name in call:
            assert (
                not bounds.covers(tool, call | {name: EVE}, around) or f"any {name}" in one.words or "any " in one.words
            )
        assert not bounds.covers(tool, call | {"bcc": EVE}, around)


def test_a_guest_is_offered_no_permission() -> None:
    guest = Principal("gus", Role.GUEST)
    tool = replace(MAIL, role=Role.GUEST)
    assert proposals_of(tool, {"to": BOB}, LOCAL_USER, Surroundings(boxed=True))
    assert proposals_of(tool, {"to": BOB}, guest, Surroundings(boxed=True)) == []


def test_reading_asks_no_permission() -> None:
    assert decide(ANN, READ, {"path": "a"}, after_untrusted(TO_BOB)) == Allow()
    assert isinstance(decide(ANN, MAIL, {}, after_untrusted(TO_BOB)), Refuse)
    assert isinstance(decide(ANN, MAIL, {}, after_untrusted(TO_BOB, ApprovalMode.SANDBOXED)), Ask)
