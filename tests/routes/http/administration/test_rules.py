"""The operator's rules on arguments in a whole server: nothing of a run passes by them."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from app.config.sources import SettingsError
from app.models.scripted import Scripted
from tests.support.access.operator_rules import RULES_FILE
from tests.support.models.replies import tool_call
from tests.support.server.serving import serving, until

pytestmark = pytest.mark.anyio
LIMIT_S = 30
WRITE = "```write_file\nsecrets/../secrets/key\nmine\n```"
LIST = "```bash\nls\n```"
TOUCH = "```bash\ntouch one\n```"
SHELL = {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]}


async def test_a_denied_call_is_answered_and_audited_with_the_rule(tmp_path: Path) -> None:
    (tmp_path / "dragoman.toml").write_text(RULES_FILE)
    provider = Scripted([WRITE, "Not done."])
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, provider) as served:
        events = await served.chat("Write.", approval="auto")
        rows = (await served.client.get("/audit")).json()["audit"]
        rules = (await served.client.get("/rules")).json()["rules"]
    reason = next(event for event in events if event["type"] == "tool.rejected")["reason"]
    assert "(keys): Keys are not for agents." in reason and events[-1]["reason"] == "answered"
    assert [(row["action"], row["decision"]) for row in rows if "keys" in (row["why"] or "")] == [
        ("write_file", "refuse")
    ]
    assert not (tmp_path / "work" / "secrets").exists()
    assert [(rule["name"], rule["action"], rule["paths"]) for rule in rules[:2]] == [
        ("keys", "deny", ["secrets/**"]),
        ("rules[2]", "ask", []),
    ]


async def test_a_rule_asks_in_every_mode_and_an_approval_cannot_bring_in_a_denied_call(tmp_path: Path) -> None:
    (tmp_path / "dragoman.toml").write_text(RULES_FILE)
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, Scripted([TOUCH, TOUCH, "Done."])) as served:
        async with aclosing(served.turn(message="Go.", approval="auto")) as turn:
            asked = await until(turn, "run.started") | await until(turn, "approval.required")
            assert "(rules[2]): It makes files." in asked["reason"]
            path = f"/runs/{asked['run']}/approvals/{asked['call']}"
            changed = {"decision": "approve", "arguments": {"command": "touch secrets/key"}}
            wrong = await served.client.post(path, json=changed)
            assert wrong.status_code == 422 and "(keys)" in wrong.json()["error"]["message"]
            granted = {"decision": "approve", "scope": "session"}
            assert (await served.client.post(path, json=granted)).status_code == 200
            again = await until(turn, "approval.required")  # although it was granted for the session
            await served.client.post(f"/runs/{asked['run']}/approvals/{again['call']}", json={"decision": "deny"})
            assert (await until(turn, "run.finished"))["reason"] == "answered"


@pytest.mark.parametrize(
    ("command", "handed"), [("ls", True), ("sudo rm x", False), ("$X", False), ("cat secrets/k", False)]
)
async def test_calls_of_a_clients_tools_are_not_handed_over_by_the_relay(
    tmp_path: Path, command: str, handed: bool
) -> None:
    (tmp_path / "dragoman.toml").write_text(RULES_FILE)
    tools = [{"type": "function", "function": {"name": "shell", "parameters": SHELL}}]
    body = {"messages": [{"role": "user", "content": "Go."}], "tools": tools, "model": "scripted"}
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, Scripted([tool_call("shell", command=command)])) as served:
        answer = (await served.client.post("/v1/chat/completions", json=body)).json()
    message: dict[str, Any] = answer["choices"][0]["message"]
    assert bool(message.get("tool_calls")) is handed


async def test_a_wrong_row_stops_the_start(tmp_path: Path) -> None:
    (tmp_path / "dragoman.toml").write_text(RULES_FILE.replace('tool = "bash"', 'tool = "bsh"'))
    with pytest.raises(SettingsError, match=r"rules entry 2 names no tool with 'bsh'"):
        async with serving(tmp_path, Scripted([])):
            pass


async def test_rules_are_tried_on_the_past_by_admins_and_nothing_is_run_or_kept(tmp_path: Path) -> None:
    (tmp_path / "dragoman.toml").write_text(RULES_FILE)
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, Scripted([LIST, WRITE, "Done."])) as served:
        await served.chat("Go.", approval="auto")
        audit = (await served.client.get("/audit")).json()
        same = (await served.client.post("/rules/backtest")).json()
        no_lists = {"tool": "bash", "action": "deny", "commands": ["ls"], "reason": "No.", "name": "lists"}
        other = (await served.client.post("/rules/backtest", json={"rules": [no_lists], "days": 1})).json()
        wrong: list[dict[str, Any]] = [
            {"days": 0},
            {"days": 1e9},
            {"rule": []},
            {"rules": [no_lists | {"tool": "bsh"}]},
            {"rules": [no_lists | {"colour": "red"}]},
            {"tools": [{"match": "bash", "risk": "none"}]},
        ]
        refused = [(await served.client.post("/rules/backtest", json=body)).status_code for body in wrong]
        assert (await served.client.get("/audit")).json() == audit
        assert "facts" not in audit["audit"][0]
    counts = {"allow": 1, "ask": 0, "refuse": 1}
    assert (same["then"], same["now"], same["changed"], same["complete"]) == (counts, counts, 0, True)
    assert same["rules"] == {"keys": 1}
    changes = {(one["tool"], one["then"], one["now"], one["rule"]) for one in other["groups"]}
    assert changes == {("bash", "allow", "refuse", "lists"), ("write_file", "refuse", "allow", "")}
    assert other["groups"][0]["examples"][0]["arguments"] == '{"command":"ls"}'
    assert refused == [422] * len(wrong)
