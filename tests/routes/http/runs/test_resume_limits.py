"""What holds for a run that goes on in the next server: pauses, limits, plans, models and rights of then."""

from __future__ import annotations

import asyncio
import json
import shutil
import sqlite3
from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager, closing
from pathlib import Path
from typing import Any

import pytest

from app.models.scripted import Pause, Scripted
from app.runs.recovery.left_off import CRASHED, STOPPED_BEFORE
from app.storage.runs import ALL
from tests.support.server.serving import Served, answer_in, serving, until

pytestmark = pytest.mark.anyio

LIMIT_S = 30
READ = "```read_file\na.txt\n```\n"


def endless() -> Pause:
    return Pause(asyncio.Event())


async def cut_off(folder: Path, provider: Scripted, kind: str, number: int = 1, **body: object) -> dict[str, Any]:
    """Begin a run, and copy the data at its `number`th event of this type, as a kill would leave it."""
    async with serving(folder, provider) as served:
        (folder / "work" / "a.txt").write_text("A")
        async with aclosing(served.turn(**({"message": "Go"} | body))) as turn:
            started = await until(turn, "run.started")
            for _ in range(number):
                await until(turn, kind)
            shutil.copytree(folder / "data", folder / "killed")
    shutil.rmtree(folder / "data")
    (folder / "killed").rename(folder / "data")
    return started


@asynccontextmanager
async def resumed(folder: Path, *replies: Any, **flags: str) -> AsyncGenerator[tuple[Served, Scripted], None]:
    provider = Scripted(replies)
    async with asyncio.timeout(LIMIT_S), serving(folder, provider, None, **flags) as served:
        yield served, provider


async def test_a_paused_server_goes_on_once_it_is_resumed(tmp_path: Path) -> None:
    async with serving(tmp_path, Scripted([["Half", endless()]])) as served:
        async with aclosing(served.turn(message="Go")) as turn:
            run = (await until(turn, "run.started"))["run"]
            await until(turn, "text.delta")
            await served.services.runs.close()
        await served.services.switch.set(paused=True)
    async with resumed(tmp_path, " a day.") as (served, provider):
        assert not provider.requests and await served.services.runs.is_active(run)
        assert (await served.client.post("/resume")).is_success
        events = await served.events(run)
    assert events[-1]["text"] == "Half a day."
    assert [event["message"] for event in events if event.get("code") == "resumed"] == [STOPPED_BEFORE]
    assert [event["code"] for event in events if event["type"] == "notice"] == ["suspended", "resumed", "continued"]


async def test_what_a_run_has_used_goes_on_counting(tmp_path: Path) -> None:
    begun = await cut_off(tmp_path, Scripted([READ, READ, [endless()]]), "round.started", 3, max_rounds=3)
    async with resumed(tmp_path, ["So it is."]) as (served, provider):
        events = await served.events(begun["run"])
    end = events[-1]
    assert (end["reason"], end["rounds"], end["calls"]) == ("round_limit", 3, 2)
    assert "No tools can be used any more" in provider.requests[0].messages[-1].text
    assert [event["message"] for event in events if event.get("code") == "resumed"] == [CRASHED]


async def test_a_whole_answer_is_not_asked_for_again(tmp_path: Path) -> None:
    begun = await cut_off(tmp_path, Scripted([["All said."]]), "usage")
    async with resumed(tmp_path) as (served, provider):
        end = (await served.events(begun["run"]))[-1]
    assert (end["reason"], end["text"], end["rounds"], provider.requests) == ("answered", "All said.", 1, [])


async def test_time_without_a_server_is_not_the_runs(tmp_path: Path) -> None:
    begun = await cut_off(tmp_path, Scripted([READ, [endless()]]), "round.started", 2, time_limit_s=600)
    with closing(sqlite3.connect(tmp_path / "data" / "dragoman.db")) as connection, connection:
        connection.execute("UPDATE runs SET created = created - 3600")
        older = "json_set(message, '$.at', json_extract(message, '$.at') - 3600)"
        connection.execute(f"UPDATE messages SET message = {older} WHERE json_extract(message, '$.at') IS NOT NULL")
    async with resumed(tmp_path, ["Done."]) as (served, _):
        end = (await served.events(begun["run"]))[-1]
    assert (end["reason"], answer_in(end["text"])) == ("answered", "Done.")


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ('UPDATE runs SET policy = \'{"model": "gone"}\'', "model_not_found"),
        ("UPDATE runs SET principal = 'ann'", "interrupted"),
    ],
)
async def test_a_run_without_its_model_or_its_principal_ends(tmp_path: Path, change: str, code: str) -> None:
    begun = await cut_off(tmp_path, Scripted([["Half", endless()]]), "text.delta")
    with closing(sqlite3.connect(tmp_path / "data" / "dragoman.db")) as connection, connection:
        connection.execute(change)
    async with resumed(tmp_path) as (served, provider):
        [last] = (await served.services.store.events(begun["run"], 0, ALL))[-1:]
        row = await served.services.store.run(begun["run"])
    assert json.loads(last.data)["code"] == code and row and row.state == code and not provider.requests


async def test_calls_are_decided_on_by_the_rules_of_now(tmp_path: Path) -> None:
    write = "```write_file\nnote.txt\nfirst\n```"
    async with serving(tmp_path, Scripted([write])) as served:
        async with aclosing(served.turn(message="Write.", approval="ask")) as turn:
            question = await until(turn, "approval.required")
            run = (await served.client.get("/approvals")).json()["approvals"][0]["run"]
            shutil.copytree(tmp_path / "data", tmp_path / "killed")
        await served.services.runs.cancel(run)
    shutil.rmtree(tmp_path / "data")
    (tmp_path / "killed").rename(tmp_path / "data")
    denied = '[{"match": "write_file", "role": "admin", "risk": "admin", "approval": "always"}]'
    async with resumed(tmp_path, ["Well."], tools=denied) as (served, _):
        await served.client.post(f"/runs/{run}/approvals/{question['call']}", json={"decision": "deny"})
        events = await served.events(run)
    assert events[-1]["type"] == "run.finished" and not (tmp_path / "work" / "note.txt").exists()
