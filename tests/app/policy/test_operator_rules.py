"""The operator's rules on arguments: what each row matches, that nothing overrules it, and that evasions are seen."""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncGenerator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from app.config.settings import load_settings
from app.config.sources import SettingsError
from app.core.rules import ApprovalMode, WhenAbsent
from app.policy.gate import Gate, decide
from app.policy.grants import Grant
from app.policy.policy_context import PolicyContext
from app.policy.rules.operator_rules import OperatorRules
from app.storage.principals import LOCAL_USER
from tests.support.access.operator_rules import BASH, NO_EVIL, NO_RM, NO_SECRETS, rules, run_nothing, verdict
from tools.base.outcome import Progress, Result
from tools.base.permit import Permit, fingerprint
from tools.base.rights import Risk, Role
from tools.catalogue import TOOLS
from tools.tool import Context, Tool, ToolList, answering
from tools.toolbox import Allow, Ask, Refuse, Toolbox

pytestmark = pytest.mark.anyio


async def ran(_: dict[str, Any], __: Context) -> AsyncGenerator[Progress | Result, None]:
    yield Result(ok=True, text="ran")


# A tool of a server that is not known: each argument may be anything.
MCP = Tool("mcp__x__y", "", {"type": "object"}, Risk.EXECUTE, answering(run_nothing), Role.GUEST, approval="never")


@pytest.mark.parametrize(
    ("of", "arguments", "expected"),
    [
        (NO_SECRETS, {"where": {"deep": ["secrets/key"]}}, "refuse"),
        (NO_SECRETS, {"uri": "file:///etc/shadow"}, "refuse"),
        (NO_EVIL, {"q": [{"u": "see http://evil.example.org/x"}]}, "refuse"),
        (NO_EVIL, {"http://evil.example.org": 1}, "refuse"),
        (rules({"tool": "mcp__*", "commands": ["rm"]}), {"argv": ["rm", "-rf", "x"]}, "refuse"),
        (rules({"tool": "mcp__*", "commands": ["rm"]}), {"command": "sh -c 'rm x'"}, "refuse"),
        (rules({"tool": "mcp__*", "commands": ["rm"]}), {"command": "$X"}, "ask"),
        (rules({"tool": "mcp__*", "commands": ["rm"]}), {"code": "x"}, "ask"),
        (rules({"tool": "mcp__*", "commands": ["rm"]}), {"note": "it's $5"}, "allow"),
    ],
)
def test_all_arguments_of_other_tools_are_searched(of: OperatorRules, arguments: dict[str, Any], expected: str) -> None:
    assert verdict(of, MCP, arguments) == expected


def test_a_tool_of_the_client_is_refused_where_a_rule_asks() -> None:
    handed = replace(MCP, name="anything", handed=True)
    for row in (
        {"tool": "client_tools", "action": "ask"},
        {"tool": "client_tools", "action": "ask", "commands": ["rm"]},
    ):
        assert verdict(rules(row), handed, {"command": "rm x"}) == "refuse"
    assert verdict(rules({"tool": "bash"}), replace(handed, name="bash"), {"command": "x"}) == "refuse"


@pytest.mark.parametrize("mode", [ApprovalMode.SANDBOXED, ApprovalMode.ASK, ApprovalMode.AUTO])
def test_no_mode_and_no_grant_overrules_a_rule(mode: ApprovalMode) -> None:
    allowed = {"command": "git status"}
    asks = rules({"tool": "bash", "commands": ["git"], "action": "ask"})
    denies = rules({"tool": "bash", "commands": ["git"]})
    grant = Grant("bash", fingerprint=fingerprint(LOCAL_USER.name, "bash", allowed))
    policy = PolicyContext(mode, boxed=True, commands=("git status",), grants=(grant,))
    assert isinstance(decide(LOCAL_USER, BASH, allowed, policy), Allow)
    assert isinstance(decide(LOCAL_USER, BASH, allowed, dataclasses.replace(policy, rules=asks)), Ask)
    assert isinstance(decide(LOCAL_USER, BASH, allowed, dataclasses.replace(policy, rules=denies)), Refuse)
    unattended = dataclasses.replace(policy, rules=asks, when_absent=WhenAbsent.DENY)
    assert isinstance(decide(LOCAL_USER, BASH, allowed, unattended), Refuse)


async def test_the_dispatcher_refuses_a_denied_call_even_with_a_permit() -> None:
    policy = PolicyContext(ApprovalMode.AUTO, boxed=True, rules=NO_RM)
    toolbox = Toolbox([replace(BASH, run=ran)], lambda tool, given: decide(LOCAL_USER, tool, given, policy), "local")
    arguments = {"command": "rm x"}
    permit = Permit(fingerprint("local", "bash", arguments))
    async with aclosing(toolbox.run("bash", arguments, Context(Path("/w")), permit)) as results:
        found = [one async for one in results]
    assert [one.ok for one in found if isinstance(one, Result)] == [False]


def test_a_tool_that_a_rule_denies_altogether_is_not_offered() -> None:
    policy = PolicyContext(ApprovalMode.AUTO, boxed=True, rules=rules({"tool": "bash"}))
    offered = Gate(LOCAL_USER, policy).offer(ToolList(TOOLS)).by_name
    assert "bash" not in offered and "python" in offered


def test_the_strictest_rule_decides_and_all_conditions_of_a_row_have_to_match(tmp_path: Path) -> None:
    both = rules({"tool": "bash", "commands": ["cp"], "paths": ["secrets"]})
    assert verdict(both, BASH, {"command": "cp secrets/a b"}, tmp_path) == "refuse"
    assert verdict(both, BASH, {"command": "cat secrets/a"}, tmp_path) == "allow"
    assert verdict(both, BASH, {"command": "cp a b"}, tmp_path) == "allow"
    assert verdict(both, BASH, {"command": "cp $X b"}, tmp_path) == "ask"
    order = [{"tool": "bash", "commands": ["git"], "action": "ask"}, {"tool": "bash", "commands": ["git push"]}]
    for row in (order, order[::-1]):
        assert verdict(rules(*row), BASH, {"command": "git push"}) == "refuse"
        assert verdict(rules(*row), BASH, {"command": "git log"}) == "ask"


WRONG = [
    ({"tool": "bsh"}, "names no tool"),
    ({"tool": "zz*"}, "names no tool"),
    ({"tool": "read_file", "paths": ["a**b"]}, "cannot be understood"),
    ({"tool": "read_file", "paths": ["a[b"]}, "cannot be understood"),
    ({"tool": "read_file", "paths": [""]}, "cannot be understood"),
    ({"tool": "read_file", "paths": ["{a,b}"]}, "cannot be understood"),
    ({"tool": "bash", "hosts": ["a b"]}, "cannot be understood"),
    ({"tool": "bash", "hosts": ["10.0.0.0/8"]}, "cannot be understood"),
    ({"tool": "bash", "hosts": ["a:99999"]}, "cannot be understood"),
    ({"tool": "bash", "commands": ["/bin/rm"]}, "cannot be understood"),
    ({"tool": "bash", "commands": ["rm; ls"]}, "cannot be understood"),
    ({"tool": "bash", "commands": [" "]}, "cannot be understood"),
    ({"tool": "read_file", "commands": ["rm"]}, "can never match"),
    ({"tool": "read_file", "hosts": ["a.example"]}, "can never match"),
    ({"tool": "web_fetch", "paths": ["a"]}, "can never match"),
    ({"tool": "ask_user", "paths": ["a"]}, "can never match"),
]


@pytest.mark.parametrize(("row", "why"), WRONG)
def test_a_row_that_cannot_be_understood_stops_the_start(row: dict[str, Any], why: str) -> None:
    good = {"tool": "bash", "commands": ["rm"]}
    with pytest.raises(SettingsError, match=rf"rules entry 2 \(bad\) .*{why}"):
        rules(good, row | {"name": "bad"})


def test_a_row_that_another_one_covers_stops_the_start() -> None:
    wide, narrow = {"tool": "bash", "commands": ["rm", "mv"]}, {"tool": "bash", "commands": ["rm"]}
    for rows in ((wide, narrow), (narrow, wide | {"action": "deny"}, narrow), ({"tool": "*"}, narrow)):
        with pytest.raises(SettingsError, match="can never decide anything"):
            rules(*rows)
    with pytest.raises(SettingsError, match="entry 1 can never decide anything: entry 2"):
        rules(narrow | {"action": "ask"}, wide)
    rules(wide | {"action": "ask"}, narrow)  # the second decides more strictly
    with pytest.raises(SettingsError, match="same name"):
        rules(narrow | {"name": "a"}, {"tool": "python", "name": "a"})


@pytest.mark.parametrize(
    "text",
    [
        '[[rules]]\ntool = "bash"\naction = "permit"\nreason = "x"',
        '[[rules]]\ntool = "bash"\naction = "deny"',
        '[[rules]]\ntool = "bash"\naction = "deny"\nreason = "x"\ncomands = ["rm"]',
        '[[rules]]\ntool = "bash"\naction = "deny"\nreason = "x"\ncommands = "rm"',
        'rules = "x"',
    ],
)
def test_settings_refuse_a_row_with_an_unknown_key_or_value(text: str, tmp_path: Path) -> None:
    (tmp_path / "dragoman.toml").write_text(text)
    with pytest.raises(SettingsError, match="rules"):
        load_settings({}, {"HOME": str(tmp_path)}, folder=tmp_path)


def test_rules_are_set_in_the_file_only(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="DRAGOMAN_RULES"):
        load_settings({}, {"HOME": str(tmp_path), "DRAGOMAN_RULES": "[]"}, folder=tmp_path)


@given(st.text(max_size=60))
@settings(max_examples=200, deadline=None)
def test_any_text_can_be_read(text: str) -> None:
    for of in (NO_RM, NO_SECRETS, NO_EVIL):
        verdict(of, BASH, {"command": text})


def test_reading_is_bounded() -> None:
    for text in ("sudo " * 20_000, "$(" * 5_000, "sh -c '" * 500, "a" * 1_000_000, "{" * 9_000):
        assert verdict(NO_RM, BASH, {"command": text}) in ("ask", "refuse")
