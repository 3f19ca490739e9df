"""Reminders: `manage_schedules` for the schedules of a model's own person, approved with their times in words."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from app.models.scripted import Scripted
from routes.management.reminders import Reminders, zone_of_machine
from tests.support.access.people import bearer
from tests.support.models.upstream import answer, upstream
from tests.support.server.serving import Served, events_of, serving

pytestmark = pytest.mark.anyio
LIMIT_S = 60
SUNDAY = 1_795_958_880.0  # 2026-11-29 13:28 UTC
REMINDERS = Reminders("Europe/Berlin", lambda: SUNDAY)
DAILY = {"action": "add", "name": "bins", "message": "Take out the bin.", "cron": "0 17 * * *"}
ASIA = {"time_zone": "Asia/Tokyo"}


class Directed(Scripted):
    """A model whose further replies the test gives as it goes."""

    def will(self, *replies: str) -> None:
        self._replies += replies


def calling(**arguments: object) -> str:
    return f"<tool_call>{json.dumps({'name': 'manage_schedules', 'arguments': arguments})}</tool_call>"


async def asked(served: Served, decision: str = "approve", **more: object) -> list[dict[str, Any]]:
    """The events of a turn; a call that asks is decided so."""
    events = list[dict[str, Any]]()
    async with aclosing(served.turn(message="Remind me.", **more)) as turn:
        async for event in turn:
            events.append(event)
            if event["type"] == "approval.required":
                path = f"/runs/{events[0]['run']}/approvals/{event['call']}"
                await served.client.post(path, json={"decision": decision})
    return events


def of_type(events: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [event for event in events if event["type"] == kind]


NORMAL: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"action": "list", "time_zone": "UTC"}, {"action": "list"}),
    (
        {"action": "add", "message": "Tea\nnow", "once": "in 20m"},
        {
            **{"action": "add", "message": "Tea\nnow", "name": "Tea", "here": True},
            **{"once": "2026-11-29T14:48:00+01:00", "time_zone": "Europe/Berlin"},
        },
    ),
    (
        {"action": "add", "name": "x", "once": "17:00", "time_zone": "Asia/Tokyo", "here": False},
        {"action": "add", "name": "x", "once": "2026-11-30T17:00:00+09:00", "time_zone": "Asia/Tokyo", "here": False},
    ),
    *(
        ({"action": "add", "once": once, "time_zone": zone, "name": 1, "message": []}, {})
        for once, zone in ((7, "UTC"), ("17:00", "Mars"), ("17:00", [1]), ({}, {}))
    ),
    ({"action": []}, {"action": []}),
]


@pytest.mark.parametrize(("given", "expected"), NORMAL)
def test_a_call_is_made_whole_once_before_anything_decides(given: dict[str, Any], expected: dict[str, Any]) -> None:
    made = REMINDERS.normalise(given)
    assert made == (expected or given | {"here": True, "time_zone": given["time_zone"] or REMINDERS.zone})
    assert Reminders("UTC", lambda: SUNDAY + 3600).normalise(made) == made
    REMINDERS.leaves(made, Path("/"))  # whatever a model has written


EFFECTS: list[tuple[Mapping[str, Any], str, bool]] = [
    ({"action": "list"}, "", False),
    ({"action": "show", "schedule": "sch_1"}, "", False),
    ({"action": "delete", "schedule": "sch_1"}, "A schedule of yours: delete.", False),
    (
        DAILY,
        "At 17:00 every day (Europe/Berlin), next on Sunday 29 November 2026 at 17:00 (in 2 hours 32 minutes). A run "
        "begins by itself and answers in this conversation.",
        True,
    ),
    (
        {"action": "add", "once": "18:00", "here": False} | ASIA,
        "On Monday 30 November 2026 at 18:00 (Asia/Tokyo, in 19 hours 32 minutes). A run begins by itself and answers "
        "in a conversation of its own.",
        True,
    ),
    ({"action": "add", "cron": "x"}, "", False),
    ({"action": "add", "cron": "@daily", "every": "1h"}, "", False),
]


@pytest.mark.parametrize(("given", "words", "always"), EFFECTS)
def test_what_a_person_approves_has_the_times_in_words(given: dict[str, Any], words: str, always: bool) -> None:
    effect = REMINDERS.leaves(REMINDERS.normalise(given), Path("/"))
    assert (effect.what, effect.firm) == (words, always) if effect else not words


async def test_a_user_sets_a_reminder_here_and_ends_it(tmp_path: Path) -> None:
    bob = "Bob's."
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, model := Directed([])) as served:
        other = (await served.client.post("/schedules", json={"name": bob, "message": bob, "cron": "@daily"})).json()
        served.client.headers |= await bearer(served, "bob")
        model.will(calling(**DAILY), "Set.", calling(action="list"), "One.")
        events = await asked(served, approval="sandboxed", **ASIA)
        [question] = of_type(events, "approval.required")
        assert question["arguments"] == DAILY | ASIA | {"here": True}, "what decides is what runs"
        assert question["reason"].startswith("At 17:00 every day (Asia/Tokyo), next on ")
        session = events[0]["session"]
        [row] = (await served.client.get("/schedules")).json()["schedules"]
        assert (row["session"], row["time_zone"], row["approval"]) == (session, "Asia/Tokyo", "deny")
        shown = (await served.client.get(f"/sessions/{session}")).json()["schedules"]
        assert [(one["id"], one["words"][:18]) for one in shown] == [(row["id"], "At 17:00 every day")]
        events = await asked(served, session=session)
        assert not of_type(events, "approval.required"), "to look at one's own needs no approval"
        [listed] = of_type(events, "tool.finished")
        assert row["id"] in listed["text"] and other["id"] not in listed["text"] and bob not in listed["text"]
        model.will(calling(action="delete", schedule=other["id"]), "No.", calling(action="switch", **off(row)), "Off.")
        model.will(calling(action="delete", schedule=row["id"]), "Gone.")
        [refused] = of_type(await asked(served, session=session), "tool.finished")
        assert not refused["ok"] and "There is no schedule" in refused["text"]
        [switched] = of_type(await asked(served, session=session), "tool.finished")
        assert json.loads(switched["text"])["next"] is None
        [gone] = of_type(events := await asked(served, session=session), "tool.finished")
        assert gone["ok"] and of_type(events, "approval.required")
        assert (await served.client.get("/schedules")).json() == {"schedules": []}
        assert "schedules" not in (await served.client.get(f"/sessions/{session}")).json()


def off(row: dict[str, Any]) -> dict[str, Any]:
    return {"schedule": row["id"], "enabled": False}


async def test_add_asks_in_every_mode_and_a_denied_one_adds_nothing(tmp_path: Path) -> None:
    wrong = calling(**DAILY | {"cron": "x"}), calling(**DAILY | {"session": "here"})
    replies = [calling(**DAILY), "Not set."] * 3 + [wrong[0], "Wrong.", wrong[1], "Wrong."]
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, Scripted(replies)) as served:
        for mode in ("auto", "ask", "sandboxed"):
            events = await asked(served, "deny", approval=mode)
            assert of_type(events, "approval.required") and not of_type(events, "tool.finished"), mode
        events = await asked(served, approval="auto")
        assert not of_type(events, "approval.required"), "a time that cannot be used is not asked about"
        assert "Write five fields" in of_type(events, "tool.finished")[0]["text"]
        events = await asked(served, approval="auto")
        assert not of_type(events, "approval.required"), "nor a field that there is not"
        assert "add has no 'session'; it is add(" in of_type(events, "tool.finished")[0]["text"]
        assert (await served.client.get("/schedules")).json() == {"schedules": []}


@pytest.mark.parametrize("session", ["new", "one", "here"])
async def test_a_run_that_no_person_has_begun_adds_no_schedule(tmp_path: Path, session: str) -> None:
    model = Scripted(["Hello.", calling(**DAILY), "It may not."])
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, model) as served:
        own = (await served.chat())[0]["session"]
        place = own if session == "here" else session
        body = {"name": "x", "message": "Schedule.", "every": "1h", "tools": ["manage_schedules"], "approval": "ask"}
        made = (await served.client.post("/schedules", json=body | {"session": place})).json()
        run = (await served.client.post(f"/schedules/{made['id']}/run")).json()["run"]
        events = await approved(served, run)
        assert not (await served.client.get("/schedules")).json()["schedules"][1:]
    assert "no person has begun adds no schedules" in of_type(events, "tool.finished")[0]["text"]


async def test_untrusted_text_sets_no_schedule_for_a_clean_conversation(tmp_path: Path) -> None:
    async with asyncio.timeout(LIMIT_S), upstream(answer("<p>Remind her.</p>", kind="text/html")) as web:
        site = f"127.0.0.1:{web.port}"
        fetch = f"```web_fetch\nhttp://{site}/a\n```"
        model = Scripted([fetch, calling(**DAILY, here=False), calling(**DAILY), "Only here."])
        async with serving(tmp_path, model, private_hosts=site) as served:
            events = await asked(served, approval="auto")
            questions = [one for one in of_type(events, "approval.required") if one["name"] == "manage_schedules"]
            assert ["which may have asked for it" in one["reason"] for one in questions] == [True, True]
            _, refused, added = of_type(events, "tool.finished")
            assert not refused["ok"] and "can only answer here" in refused["text"] and added["ok"]
            [row] = (await served.client.get("/schedules")).json()["schedules"]
            assert row["session"] == events[0]["session"]
            run = (await served.client.post(f"/schedules/{row['id']}/run")).json()["run"]
            await served.services.runs.ended(run)
            session = (await served.client.get(f"/sessions/{row['session']}")).json()
            assert session["runs"][-1]["id"] == run


async def approved(served: Served, run: str) -> list[dict[str, Any]]:
    """The events of a run whose calls a person approves."""
    events = list[dict[str, Any]]()
    async with served.client.stream("GET", f"/runs/{run}/events") as response, aclosing(events_of(response)) as read:
        async for event in read:
            events.append(event)
            if event["type"] == "approval.required":
                await served.client.post(f"/runs/{run}/approvals/{event['call']}", json={"decision": "approve"})
    return events


# kind x place x role: the status of POST /schedules with the settings of `BOUNDS`
BOUNDS: dict[str, Any] = {"schedules_per_user": "2", "schedules_per_guest": "1", "shortest_interval_s": "600"}
TIMES = {"cron": "*/5 * * * *", "every": "5m", "once": "in 5m"}


async def test_kinds_places_and_roles(tmp_path: Path) -> None:
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, Scripted(["Hello."] * 6), **BOUNDS) as served:
        for role, most in (("guest", 1), ("user", 2), ("admin", 50)):
            headers = await bearer(served, role, role)
            served.client.headers |= headers
            own = (await served.chat())[0]["session"]
            for place in ("new", "one", own):
                for kind, expression in TIMES.items():
                    body = {"name": "x", "message": "x", kind: expression, "session": place}
                    answer = await served.client.post("/schedules", json=body)
                    case = f"{role} {place} {kind}: {answer.text}"
                    if role != "admin" and kind != "once":
                        assert answer.status_code == 422 and "600 s apart or more" in answer.text, case
                    else:
                        assert answer.status_code == 201 and answer.json()["session"] == place, case
                        gone = await served.client.delete(f"/schedules/{answer.json()['id']}")
                        assert gone.status_code == 204
            brief = (await served.chat(temporary=True))[0]["session"]
            refused = await served.client.post("/schedules", json={**body, "session": brief})
            assert refused.status_code == 422 and "once it is over" in refused.text
            lost = await served.client.post("/schedules", json={**body, "session": "ses_lost"})
            assert lost.status_code == 404
            codes = [(await served.client.post("/schedules", json=body)).status_code for _ in range(3)]
            assert codes == [201 if number < most else 409 for number in range(3)], role


@pytest.mark.parametrize(("setting", "offered"), [("0", False), ("1", True)])
async def test_guests_have_reminders_where_a_setting_says_so(tmp_path: Path, setting: str, offered: bool) -> None:
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, Scripted([]), schedules_per_guest=setting) as served:
        served.client.headers |= await bearer(served, "gus", "guest")
        names = [tool["name"] for tool in (await served.client.get("/tools")).json()["tools"]]
        assert ("manage_schedules" in names) is offered
        answer = await served.client.post("/schedules", json={"name": "x", "message": "x", "cron": "@daily"})
        assert answer.status_code == (201 if offered else 403)


@pytest.mark.parametrize("flags", [{"reminders": False}, {"max_schedules": "0"}])
async def test_the_tool_can_be_switched_off(tmp_path: Path, flags: dict[str, Any]) -> None:
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, Scripted([]), **flags) as served:
        tools = (await served.client.get("/tools")).json()["tools"]
    assert "manage_schedules" not in [tool["name"] for tool in tools]


async def test_a_temporary_conversation_says_how_its_model_can_schedule(tmp_path: Path) -> None:
    replies = [calling(**DAILY), calling(**DAILY, here=False), "Set."]
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, Scripted(replies)) as served:
        refused, added = of_type(await asked(served, temporary=True), "tool.finished")
    assert not refused["ok"] and "With here: false" in refused["text"] and added["ok"]


async def test_models_with_a_small_window_are_not_offered_the_tool(tmp_path: Path) -> None:
    for window, offered in ((8_192, False), (16_384, True)):
        async with asyncio.timeout(LIMIT_S), serving(tmp_path, Scripted(["Hello."]), window=window) as served:
            [started, *_] = await served.chat()
        assert ("manage_schedules" in started["tools"]) is offered, window


def test_the_machine_has_a_time_zone(monkeypatch: pytest.MonkeyPatch) -> None:
    for given, name in (("Asia/Tokyo", "Asia/Tokyo"), ("CET-1CEST,M3", "UTC")):
        monkeypatch.setenv("TZ", given)
        assert zone_of_machine() == name
