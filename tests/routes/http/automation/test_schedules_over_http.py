"""Schedules over HTTP and on the command line: what is refused says what to do, and there are so many at most."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest

from app.models.scripted import Scripted
from routes.cli.main import main
from tests.support.access.people import bearer
from tests.support.server.serving import serving

pytestmark = pytest.mark.anyio
LIMIT_S = 30
GOOD: dict[str, Any] = {"name": "morning", "message": "Look.", "cron": "0 7 * * *"}
# changes of a good body -> words of the message
BAD: list[tuple[dict[str, Any], str]] = [
    ({"cron": None}, "exactly one of cron, every and once"),
    ({"every": "5m"}, "exactly one of cron, every and once"),
    ({"cron": "0 7 * *"}, "Write five fields"),
    ({"time_zone": "Mars"}, "Choose a name of the time zone database"),
    ({"message": " "}, "send what the model is to do"),
    ({"message": "x" * 32_001}, "at most 32000"),
    ({"name": ""}, "send 1 to 80"),
    ({"tools": ["nothing"]}, "there is no 'nothing'"),
    ({"model": "nothing"}, "there is no 'nothing'"),
    ({"profile": "nothing"}, "nothing"),
    ({"approval": "auto"}, "auto is for admins"),
    ({"approval": "yes"}, "approval"),
    ({"jitter_s": -1}, "jitter_s"),
    ({"jitter_s": "1"}, "jitter_s"),
    ({"missed": "later"}, "'run' or 'skip'"),
    ({"owner": "bob"}, "unknown field owner"),
    ({"next": 1}, "unknown field next"),
]


async def test_schedules_over_http(tmp_path: Path) -> None:
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, Scripted([["Well."]] * 3), max_schedules="2") as served:
        served.client.headers |= await bearer(served, "ann")
        for changes, words in BAD:
            answer = await served.client.post("/schedules", json=GOOD | changes)
            assert answer.status_code == 422 and words in answer.json()["error"]["message"], answer.text
        made = (await served.client.post("/schedules", json=GOOD | {"jitter_s": 5, "time_zone": "Asia/Tokyo"})).json()
        path = f"/schedules/{made['id']}"
        assert made["approval"] == "deny" and made["next"] % 86_400 // 3600 == 22, "seven in Tokyo"
        off = (await served.client.patch(path, json={"enabled": False})).json()
        assert off["next"] is None and off["cron"] == GOOD["cron"]
        changed = await served.client.patch(path, json={"every": "90m", "enabled": True, "session": "one"})
        assert changed.json()["cron"] is None and changed.json()["created"] > made["created"]
        assert (await served.client.patch(path, json={"once": "2001-01-01"})).status_code == 422
        run = await served.client.post(f"{path}/run")
        assert run.status_code == 202
        await served.services.runs.ended(run.json()["run"])
        shown = (await served.client.get(path)).json()
        assert [(one["run"], one["state"]) for one in shown["last"]] == [(run.json()["run"], "answered")]
        assert (await served.client.post("/schedules", json=GOOD)).status_code == 201
        full = await served.client.post("/schedules", json=GOOD)
        assert (full.status_code, full.json()["error"]["code"]) == (409, "too_many_schedules")
        assert (await served.client.delete(path)).status_code == 204
        assert (await served.client.get(path)).status_code == 404
        assert (await served.client.post("/schedules", json=GOOD)).status_code == 201, "there is room again"


async def test_a_slow_change_does_not_bring_back_a_deleted_schedule(tmp_path: Path) -> None:
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, Scripted([])) as served:
        path = f"/schedules/{(await served.client.post('/schedules', json=GOOD)).json()['id']}"

        async def body() -> AsyncGenerator[bytes]:
            yield b'{"message":'
            assert (await served.client.delete(path)).status_code == 204
            yield b'"Look again."}'

        assert (await served.client.patch(path, content=body())).status_code == 404
        assert (await served.client.get("/schedules")).json() == {"schedules": []}


async def test_slow_additions_at_the_same_time_do_not_pass_the_limit(tmp_path: Path) -> None:
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, Scripted([]), max_schedules="1") as served:
        for path, good in (("/schedules", GOOD), ("/triggers", {"name": "x", "message": "x"})):

            async def body(path: str = path, good: dict[str, Any] = good) -> AsyncGenerator[bytes]:
                assert (await served.client.post(path, json=good)).status_code == 201
                yield json.dumps(good).encode()

            assert (await served.client.post(path, content=body())).status_code == 409


async def test_the_profile_of_a_schedule_narrows_its_runs(tmp_path: Path) -> None:
    model = Scripted([["Well."]] * 3)
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, model) as served:
        served.client.headers |= await bearer(served, "ann")
        spec = {"tools": ["list_files"], "max_rounds": 2, "prompt": "Answer in Latin."}
        assert (await served.client.put("/profiles/narrow", json=spec)).is_success
        wide = await served.client.post("/schedules", json=GOOD | {"profile": "narrow", "tools": ["read_file"]})
        assert wide.status_code == 422 and "there is no 'read_file'" in wide.text
        made = (await served.client.post("/schedules", json=GOOD | {"profile": "narrow"})).json()
        run = (await served.client.post(f"/schedules/{made['id']}/run")).json()["run"]
        await served.services.runs.ended(run)
        row = await served.services.store.run(run)
        assert row and json.loads(row.policy)["tools"] == ["list_files"]
        [request] = model.requests
        assert [tool.name for tool in request.tools] == ["list_files"]
        assert "Answer in Latin." in "".join(message.text for message in request.opening())
        assert (await served.client.delete("/profiles/narrow")).is_success
        gone = await served.client.post(f"/schedules/{made['id']}/run")
        assert (gone.status_code, gone.json()["error"]["code"]) == (409, "run_refused") and "narrow" in gone.text


async def test_switched_off_there_are_none(tmp_path: Path) -> None:
    async with serving(tmp_path, Scripted([]), max_schedules="0") as served:
        for path, body in (("/schedules", GOOD), ("/triggers", {"name": "x", "message": "x"})):
            answer = await served.client.post(path, json=body)
            assert (answer.status_code, answer.json()["error"]["code"]) == (403, "schedules_off")
        assert (await served.client.get("/schedules")).json() == {"schedules": []}


async def test_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, Scripted([["Well."]])) as served:
        environ = {"HOME": str(tmp_path), "DRAGOMAN_DATA_DIR": str(tmp_path / "data")}
        environ |= {"DRAGOMAN_URL": str(served.client.base_url), "DRAGOMAN_WORKSPACE": str(tmp_path / "work")}

        async def printed(*words: str, code: int = 0) -> str:
            assert await asyncio.to_thread(main, words, environ) == code
            captured = capsys.readouterr()
            return captured.err if code else captured.out

        assert await printed("schedule", "list") == "You have no schedules.\n"
        assert "Write five fields" in await printed("schedule", "add", "m", "Look.", "--cron", "x", code=1)
        flags = ("--time-zone", "Asia/Tokyo", "--tools", "read_file, list_files", "--jitter-s", "5", "--missed", "skip")
        made = await printed("schedule", "add", "m", "Look.", "--cron", "0 7 * * *", *flags)
        assert "times: cron 0 7 * * *" in made and "tools: ['read_file', 'list_files']" in made
        name = made.split()[1]
        run = (await printed("schedule", "run", name)).split()[1]
        await served.services.runs.ended(run)
        assert f"started {run} answered" in await printed("schedule", "show", name)
        assert "state: off" in await printed("schedule", "disable", name)
        assert "off" in await printed("schedule", "list")
        assert "is removed" in await printed("schedule", "remove", name)
        assert "There is no schedule" in await printed("schedule", "show", name, code=1)
        made = await printed("trigger", "add", "d", "Sum up.", "--template", "{{ref}}", "--scheme", "standard")
        secret, name = made.split()[-1], made.split()[1]
        assert secret.startswith("whsec_") and "deliveries: POST http://localhost" in made
        assert secret not in await printed("trigger", "show", name)
        assert "whsec_" in (renewed := await printed("trigger", "secret", name)) and secret not in renewed
        assert "standard" in await printed("trigger", "list")
