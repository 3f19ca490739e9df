"""Management by the agent: the server's own routes as tools of admins, each call of which a person approves."""

from __future__ import annotations

import asyncio
import json
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from app.models.scripted import Scripted
from app.storage.state import StateRow
from routes.cli.main import main
from routes.management.actions import AREAS, SCHEDULES
from tests.support.access.people import bearer
from tests.support.documented.routes import ROUTES
from tests.support.server.serving import Served, serving, until

pytestmark = pytest.mark.anyio
LIMIT_S = 30


def calling(area: str, **arguments: object) -> str:
    return f"<tool_call>{json.dumps({'name': f'manage_{area}', 'arguments': arguments})}</tool_call>"


async def managed(served: Served, decision: str = "approve", **more: object) -> list[dict[str, Any]]:
    """The events of a turn whose one call is decided so."""
    async with aclosing(served.turn(message="Manage.", **more)) as turn:
        run = (await until(turn, "run.started"))["run"]
        question = await until(turn, "approval.required")
        await served.client.post(f"/runs/{run}/approvals/{question['call']}", json={"decision": decision})
        return [question, *[event async for event in turn]]


def result(events: list[dict[str, Any]]) -> dict[str, Any]:
    [finished] = [event for event in events if event["type"] == "tool.finished"]
    return finished


async def test_no_management_tool_is_offered_unless_switched_on(tmp_path: Path) -> None:
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, Scripted([])) as served:
        tools = (await served.client.get("/tools")).json()["tools"]
    assert [tool["name"] for tool in tools if tool["name"].startswith("manage_")] == ["manage_schedules"]


async def test_each_area_is_a_tool_that_always_asks(tmp_path: Path) -> None:
    """In mode `auto`, too."""
    provider = Scripted([calling("sessions", action="list"), "There is one."])
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, provider, management_tools=True) as served:
        tools = {tool["name"]: tool for tool in (await served.client.get("/tools")).json()["tools"]}
        areas = [f"manage_{area.name}" for area in AREAS]
        assert [(tools[name]["role"], tools[name]["approval"]) for name in areas] == [("admin", "always")] * len(areas)
        events = await managed(served, approval="auto")
    listed = json.loads(result(events)["text"])
    assert [session["title"] for session in listed["sessions"]] == ["Manage."]


async def test_a_denied_call_changes_nothing(tmp_path: Path) -> None:
    provider = Scripted([calling("server", action="pause"), "Not done."])
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, provider, management_tools=True) as served:
        events = await managed(served, "deny")
        assert not served.services.switch.paused
    assert "tool.rejected" in [event["type"] for event in events]


async def test_an_agent_changes_a_setting_and_it_is_audited(tmp_path: Path) -> None:
    provider = Scripted([calling("server", action="change_settings", changes={"max_rounds": 7}), "Done."])
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, provider, management_tools=True) as served:
        events = await managed(served)
        [started] = [event for event in await served.chat("Again.") if event["type"] == "run.started"]
        audit = (await served.client.get("/audit")).json()["audit"]
    assert result(events)["ok"] and started["limits"]["max_rounds"] == 7
    assert ("setting max_rounds", "changed", "7") in [(row["action"], row["decision"], row["why"]) for row in audit]


@pytest.mark.parametrize(
    ("area", "arguments", "expected"),
    [
        ("sessions", {"action": "show"}, "show needs session"),
        ("sessions", {"action": "list", "session": "x"}, "list has no 'session'; it is list(q?, before?)"),
        ("sessions", {"action": "show", "session": "../tokens"}, "not_found"),
        ("jobs", {"action": "cancel", "job": "job_1"}, "GET /jobs lists yours"),
        ("tokens", {"action": "revoke", "name": "ann"}, "No active token is named 'ann'"),
        ("endpoints", {"action": "add", "name": "x", "url": "ftp://x"}, "url"),
        ("mcp", {"action": "enable", "name": "none"}, "none"),
        ("server", {"action": "change_settings", "changes": {"port": 1}}, "'port' cannot be changed"),
        ("server", {"action": "audit", "before": 10**30}, "before"),
    ],
)
async def test_an_error_of_the_route_is_the_result(
    tmp_path: Path, area: str, arguments: dict[str, Any], expected: str
) -> None:
    provider = Scripted([calling(area, **arguments), "So it is."])
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, provider, management_tools=True) as served:
        events = await managed(served)
    assert not result(events)["ok"] and expected in result(events)["text"]
    assert events[-1]["type"] == "run.finished"


async def test_users_are_not_offered_them_and_refused_in_any_dialect(tmp_path: Path) -> None:
    provider = Scripted([calling("tokens", action="list"), "Refused."])
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, provider, management_tools=True) as served:
        served.client.headers |= await bearer(served, "bob")
        tools = (await served.client.get("/tools")).json()["tools"]
        events = await served.chat("List the tokens.")
    assert [tool["name"] for tool in tools if tool["name"].startswith("manage_")] == ["manage_schedules"]
    assert "tool.started" not in [event["type"] for event in events]
    assert "tool.rejected" in [event["type"] for event in events]


def test_each_action_has_its_route() -> None:
    named = {route.name for route in ROUTES}
    assert {f"{action.method} {action.path}" for area in (SCHEDULES, *AREAS) for action in area.actions} <= named


async def test_runtime_settings_hold_after_a_restart_until_withdrawn(tmp_path: Path) -> None:
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, Scripted([])) as served:
        wrong = await served.client.patch("/settings", json={"changes": {"max_rounds": 5, "max_calls": -1}})
        assert wrong.status_code == 422 and "max_calls" in wrong.json()["error"]["message"]
        assert served.services.factory.settings.max_rounds == 20
        await served.client.patch("/settings", json={"changes": {"max_rounds": 5, "pty": "off"}})
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, Scripted([])) as served:
        assert served.services.factory.settings.max_rounds == 5
        answer = await served.client.patch("/settings", json={"changes": {"max_rounds": None}})
        rows = {row["name"]: row for row in answer.json()["settings"]}
        assert (rows["max_rounds"]["value"], rows["max_rounds"]["changed"]) == (20, False)
        assert (rows["pty"]["value"], rows["pty"]["started_with"], rows["pty"]["changed"]) == ("off", "auto", True)
        assert served.services.factory.settings.pty == "off"


async def test_changes_at_the_same_time_are_all_kept(tmp_path: Path) -> None:
    changes = {"max_rounds": 5, "max_calls": 6, "verify": True}
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, Scripted([])) as served:
        each = (served.client.patch("/settings", json={"changes": {name: value}}) for name, value in changes.items())
        assert {answer.status_code for answer in await asyncio.gather(*each)} == {200}
        assert served.services.runtime_settings.changes == changes
        stored = await served.services.store.state("settings")
    assert json.loads(stored or "") == changes


async def test_a_stored_change_that_no_longer_fits_is_left_out(tmp_path: Path) -> None:
    async with serving(tmp_path, Scripted([])) as served:
        await served.services.store.write([StateRow("settings", json.dumps({"max_rounds": 9000, "verify": True}))])
    async with serving(tmp_path, Scripted([])) as served:
        assert served.services.runtime_settings.changes == {"verify": True}


async def test_stored_changes_are_seen_on_the_command_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["config", "--data-dir", str(tmp_path / "data"), "--workspace", str(tmp_path / "work")]
    assert await asyncio.to_thread(main, words) == 0
    assert not (tmp_path / "data").exists() and "PATCH" not in capsys.readouterr().out
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, Scripted([])) as served:
        await served.client.patch("/settings", json={"changes": {"max_rounds": 5}})
    assert await asyncio.to_thread(main, words) == 0
    [line] = [line for line in capsys.readouterr().out.splitlines() if line.startswith("max_rounds ")]
    assert line.split() == ["max_rounds", "5", "changed", "while", "the", "server", "ran", "(PATCH", "/settings)"]
