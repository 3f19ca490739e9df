"""The gate: one function decides, and each of its two layers holds without the other."""

from __future__ import annotations

import asyncio
import dataclasses
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from app.context.prompt import opening
from app.core.provider import CallForm, Piece, TextChunk
from app.core.rules import ApprovalMode, ToolRule, classified
from app.policy.gate import Gate, decide
from app.policy.grants import Grant
from app.policy.policy_context import PolicyContext, Writes
from app.storage.principals import LOCAL_USER, Principal
from app.transcript.reply import Reply
from parsing import Call
from tests.support.access.operator_rules import ANN, ANY, catalogue_tool, kind_of, run_nothing, some_tool
from tests.support.parsing.forms import WRITERS
from tools.base.outcome import Progress, Result
from tools.base.permit import Permit, fingerprint
from tools.base.rights import Risk, Role
from tools.catalogue import TOOLS
from tools.tool import Context, Tool, ToolList, answering
from tools.toolbox import Allow, Ask, Refuse, Toolbox

GUEST = Principal("gus", Role.GUEST)


@pytest.mark.parametrize("risk", Risk)
def test_a_tool_that_nobody_classified_belongs_to_admins(risk: Risk) -> None:
    unknown = Tool("mcp__new__thing", "", ANY, risk, answering(run_nothing))
    for principal in (GUEST, ANN):
        assert isinstance(decide(principal, unknown), Refuse)
    assert not isinstance(decide(LOCAL_USER, unknown), Refuse)


MODES = [
    # risk, confined, boxed: what sandboxed, ask, auto and deny say
    (Risk.READ, False, False, "allow allow allow allow"),
    (Risk.WRITE, True, False, "allow ask allow allow"),
    (Risk.WRITE, False, True, "ask ask allow refuse"),
    (Risk.EXECUTE, True, True, "allow ask allow allow"),
    (Risk.EXECUTE, True, False, "ask ask allow refuse"),
    (Risk.EXECUTE, False, True, "ask ask allow refuse"),
    (Risk.NETWORK, False, True, "ask ask allow refuse"),
    (Risk.ADMIN, False, True, "ask ask allow refuse"),
]


@pytest.mark.parametrize(("risk", "confined", "boxed", "said"), MODES)
def test_what_each_mode_asks(risk: Risk, confined: bool, boxed: bool, said: str) -> None:
    one = some_tool(risk, confined=confined)
    policy = [PolicyContext(mode, boxed) for mode in ApprovalMode]
    assert " ".join(kind_of(decide(LOCAL_USER, one, {}, each)) for each in policy) == said


@pytest.mark.parametrize("principal", [GUEST, ANN])
def test_auto_is_for_admins(principal: Principal) -> None:
    assert isinstance(decide(principal, some_tool(Risk.NETWORK), {}, PolicyContext(ApprovalMode.AUTO)), Ask)


@pytest.mark.parametrize(
    ("principal", "disabled"),
    [
        (dataclasses.replace(ANN, tools=("read_*", "list_files")), ()),
        (dataclasses.replace(ANN, disabled=("some_*",)), ()),
        (ANN, ("*",)),
        (dataclasses.replace(ANN, tools=("SOME_TOOL",)), ()),
    ],
)
def test_patterns_of_a_principal_and_a_session_only_narrow(principal: Principal, disabled: tuple[str, ...]) -> None:
    assert isinstance(decide(principal, some_tool(Risk.READ), None, PolicyContext(disabled=disabled)), Refuse)
    assert decide(ANN, some_tool(Risk.READ)) == Allow()


def test_the_first_rule_that_matches_classifies() -> None:
    rules = [
        ToolRule(match="mcp__files__read*", role=Role.USER, risk=Risk.READ, approval="never"),
        ToolRule(match="mcp__*", role=Role.GUEST),
    ]
    unknown = Tool("mcp__files__read_text", "", ANY, Risk.ADMIN, answering(run_nothing))
    assert decide(ANN, classified(unknown, rules)) == Allow()
    assert isinstance(decide(GUEST, classified(unknown, rules)), Refuse)
    write = classified(replace(unknown, name="mcp__files__write"), rules)
    assert (write.role, write.risk) == (Role.GUEST, Risk.ADMIN)
    assert classified(replace(unknown, name="bash"), rules).role is Role.ADMIN


GRANTS: list[tuple[Grant, dict[str, Any], bool]] = [
    (Grant("t", fingerprint("ann", "t", {"a": 1, "b": 2})), {"b": 2, "a": 1}, True),
    (Grant("t", fingerprint("ann", "t", {"a": 1})), {"a": 2}, False),
    (Grant("t", fingerprint("ann", "t", {"a": 1})), {"a": 1, "b": 0}, False),
    (Grant("t", fingerprint("ann", "t", {"a": 1})), {"a": "1"}, False),
    (Grant("t", fingerprint("bob", "t", {"a": 1})), {"a": 1}, False),
    (Grant("t", pattern={"path": "notes/*"}), {"path": "notes/a.txt"}, True),
    (Grant("t", pattern={"path": "notes/*"}), {"path": "notes/../plan.txt"}, False),
    (Grant("t", pattern={"path": "notes/*"}), {"path": "notes/a.txt", "mode": "w"}, False),
    (Grant("t", pattern={"path": "notes/*", "mode": "r"}), {"path": "notes/a.txt"}, False),
    (Grant("t", pattern={"path": "*"}), {"path": ["a"]}, True),
    (Grant("t", pattern={}), {}, False),
    (Grant("t"), {}, False),
]


@pytest.mark.parametrize(("grant", "arguments", "covered"), GRANTS)
def test_a_grant_covers_what_the_person_saw(grant: Grant, arguments: dict[str, Any], covered: bool) -> None:
    assert grant.covers("ann", arguments) is covered


@pytest.mark.parametrize(
    ("command", "covered"),
    [("git status", True), ("git status -s", True), ("git status; rm -rf .", False), ("git push", False)],
)
def test_a_pattern_for_commands_is_read_as_the_shell_reads_it(command: str, covered: bool) -> None:
    assert Grant("bash", pattern={"command": "git status *"}).covers("ann", {"command": command}) is covered


def test_a_grant_does_not_renew_an_operators_command_after_a_write() -> None:
    """Without a sandbox, a command that the operator names may run what was written: it asks, whatever is granted."""
    call, bash = {"command": "make test"}, catalogue_tool("bash")
    grant = Grant("bash", fingerprint=fingerprint("ann", "bash", call), created=3)
    policy = PolicyContext(commands=("make test",), grants=(grant,), writes=Writes(started=1, last=2))
    assert isinstance(decide(ANN, bash, call, policy), Ask)
    assert decide(ANN, bash, call, dataclasses.replace(policy, commands=())) == Allow()
    assert decide(ANN, bash, call, dataclasses.replace(policy, writes=Writes(started=1))) == Allow()


def test_the_operators_commands_never_ask() -> None:
    bash = catalogue_tool("bash")
    policy = PolicyContext(ApprovalMode.ASK, commands=("git status *",))
    assert decide(ANN, bash, {"command": "git status -s"}, policy) == Allow()
    assert isinstance(decide(ANN, bash, {"command": "git status $(id)"}, policy), Ask)
    assert isinstance(decide(ANN, bash, {"command": ["git status"]}, policy), Ask)
    tainted = dataclasses.replace(policy, tainted=True)
    assert isinstance(decide(ANN, bash, {"command": "git status -s"}, tainted), Ask)


# Layer 1: what is refused is not in what a model is told.


def hidden_from(hidden: str) -> Toolbox:
    rules = [ToolRule(match=hidden, role=Role.ADMIN)]
    return Toolbox([classified(one, rules) for one in TOOLS], Gate(ANN, PolicyContext(boxed=True)).decide, "ann")


@pytest.mark.parametrize("name", [one.name for one in TOOLS])
def test_layer_1_a_tool_that_is_refused_is_never_mentioned(name: str) -> None:
    toolbox = hidden_from(name)
    told = opening(toolbox.offered, call_form=CallForm.FENCED, workspace=Path("/w"), today=date(2026, 1, 1))
    words = " ".join(str(message) for message in told).replace("(", " ").replace("'", " ").replace("`", " ").split()
    assert name not in toolbox.schemas and name not in words
    assert len(toolbox.offered) == len(TOOLS) - 1


# Layer 2: the dispatcher refuses what a model names anyway, in whatever dialect.


def spying(one: Tool, ran: list[str]) -> Tool:
    async def run(_: dict[str, Any], __: Context) -> AsyncGenerator[Progress | Result, None]:
        ran.append(one.name)
        yield Result(True, "ran")

    return replace(one, run=run)


def forged(name: str) -> dict[str, Piece]:
    """The same call in every dialect that can be written, and as a native one."""
    arguments = {"command": "id", "path": "x", "content": "y", "code": "1", "old": "a", "new": "b", "id": "j"}
    written: dict[str, Piece] = {key: TextChunk(write([(name, arguments)])) for key, write in WRITERS.items()}
    return written | {"native": Call(0, name, arguments, "native")}


async def answered(toolbox: Toolbox, name: str, arguments: dict[str, Any], permit: Permit | None = None) -> Result:
    async with aclosing(toolbox.run(name, arguments, Context(Path("/")), permit)) as news:
        last = [seen async for seen in news][-1]
    assert isinstance(last, Result)
    return last


@pytest.mark.parametrize("name", [one.name for one in TOOLS])
def test_layer_2_a_forged_call_is_refused_in_every_dialect(name: str) -> None:
    ran: list[str] = []
    rules = [ToolRule(match=name, role=Role.ADMIN)]
    tools = [spying(classified(one, rules), ran) for one in TOOLS]
    toolbox = Toolbox(tools, Gate(ANN, PolicyContext(ApprovalMode.SANDBOXED, True)).decide, "ann")
    refused = 0
    for piece in forged(name).values():
        reply = Reply(toolbox.schemas, fences=lambda: True, new_id=lambda: "c1")
        list(reply.add(piece))
        list(reply.end())
        for call in (call for call in reply.calls if call.id not in reply.refused and call.name == name):
            result = asyncio.run(answered(toolbox, call.name, call.arguments))
            assert not result.ok and "needs the role admin" in result.text
            refused += 1
    assert refused >= 10 and ran == []


@pytest.mark.parametrize("name", ["BASH", "Bash", "bash ", "functions.bash", "mcp__x__bash", "ｂash", "bash\u200b"])
def test_layer_2_another_spelling_is_another_tool(name: str) -> None:
    ran: list[str] = []
    toolbox = Toolbox([spying(one, ran) for one in TOOLS], Gate(GUEST, PolicyContext(boxed=True)).decide)
    assert not asyncio.run(answered(toolbox, name, {"command": "id"})).ok and ran == []


def test_layer_2_what_needs_approval_needs_a_permit_for_this_very_call_once() -> None:
    ran: list[str] = []
    tools = [spying(one, ran) for one in TOOLS]
    toolbox = Toolbox(tools, Gate(ANN, PolicyContext(ApprovalMode.ASK)).decide, "ann")
    call = {"path": "x", "content": "y"}
    wrong = [
        None,
        Permit(fingerprint("ann", "write_file", call | {"content": "z"}, "absent")),
        Permit(fingerprint("ann", "edit_file", call, "absent")),
        Permit(fingerprint("bob", "write_file", call, "absent")),
        Permit(fingerprint("ann", "write_file", call)),
        Permit(fingerprint("ann", "write_file", call, "another file than there is")),
    ]
    for permit in wrong:
        assert "is not approved" in asyncio.run(answered(toolbox, "write_file", call, permit)).text
    right = Permit(fingerprint("ann", "write_file", call, "absent"))
    assert asyncio.run(answered(toolbox, "write_file", call, right)).ok
    assert not asyncio.run(answered(toolbox, "write_file", call, right)).ok
    assert ran == ["write_file"]


BOX = PolicyContext(boxed=True)


@pytest.mark.parametrize(
    ("principal", "policy"),
    [
        (dataclasses.replace(ANN, role=Role.GUEST), BOX),
        (dataclasses.replace(ANN, tools=("read_*",)), BOX),
        (dataclasses.replace(ANN, disabled=("bash",)), BOX),
        (ANN, dataclasses.replace(BOX, disabled=("bash",))),
        (ANN, PolicyContext(ApprovalMode.DENY)),
    ],
)
def test_runs_with_the_same_rights_share_a_list_of_tools_and_no_others_do(
    principal: Principal, policy: PolicyContext
) -> None:
    tools = ToolList(TOOLS)
    offered = Gate(ANN, BOX).offer(tools)
    assert Gate(dataclasses.replace(ANN), dataclasses.replace(BOX, writes=Writes())).offer(tools) is offered
    others = Gate(principal, policy).offer(tools)
    assert others is not offered
    assert list(others) == [one for one in TOOLS if not isinstance(decide(principal, one, policy=policy), Refuse)]
    assert list(others) != list(offered)
    assert Gate(ANN, BOX).offer(ToolList(TOOLS[1:])) is not offered, "a server of tools has come or gone"


def test_what_a_session_loses_is_offered_no_longer_in_its_run() -> None:
    gate, tools = Gate(ANN, BOX), ToolList(TOOLS)
    assert "bash" in gate.offer(tools).by_name
    gate.disable(["bash"])
    assert "bash" not in gate.offer(tools).by_name
    assert "bash" in Gate(ANN, BOX).offer(tools).by_name


def test_what_only_a_grant_allows_is_offered_as_long_as_it_holds() -> None:
    policy = PolicyContext(
        ApprovalMode.DENY, grants=(Grant("bash", pattern={"command": "*"}, created=time.time() + 1),)
    )
    gate, tools = Gate(ANN, policy), ToolList(TOOLS)
    assert "bash" in gate.offer(tools).by_name
    policy.writes.last = time.time() + 2
    assert "bash" not in gate.offer(tools).by_name
    policy.writes.last = 0.0
    assert "bash" in Gate(ANN, policy).offer(tools).by_name and "bash" in gate.offer(tools).by_name
    assert "bash" not in Gate(ANN, dataclasses.replace(policy, grants=())).offer(tools).by_name
