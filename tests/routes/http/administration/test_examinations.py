"""POST /endpoints/{endpoint}/examination: progress and a report, one at a time, for admins."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from app.models.scripted import Scripted
from tests.support.access.people import bearer
from tests.support.models.endpoints import LIMIT_S, running_server
from tests.support.models.engines import FAULTY, engine
from tests.support.models.upstream import announced, left, upstream
from tests.support.server.serving import Served, serving

pytestmark = pytest.mark.anyio
PATH = "/endpoints/mine/examination"
LOST = FAULTY["https://github.com/vllm-project/vllm/issues/31501"][1]


def events(text: str) -> list[tuple[str, Any]]:
    frames = [dict(line.split(": ", 1) for line in frame.splitlines() if ": " in line) for frame in text.split("\n\n")]
    return [(frame["event"], json.loads(frame["data"])) for frame in frames if "event" in frame]


async def added(served: Served, url: str) -> None:
    assert (await served.client.post("/endpoints", json={"name": "mine", "url": url})).status_code == 201


async def test_an_examination(tmp_path: Path) -> None:
    async with asyncio.timeout(LIMIT_S), engine(LOST) as server, serving(tmp_path, Scripted(["x"])) as served:
        await added(served, server.base_url)
        answer = await served.client.post(PATH, json={"quick": True})
        *steps, (kind, fields) = events(answer.text)
        assert {step for step, _ in steps} == {"progress"}
        assert kind == "report"
        assert "arguments_lost" in [found["code"] for found in fields["report"]["defects"]]
        assert fields["markdown"].startswith("# `m` on")
        again = await served.client.post(PATH, json={"quick": True})
        assert again.status_code == 200  # the first one has ended


async def test_one_at_a_time_and_it_ends_when_the_client_leaves(tmp_path: Path) -> None:
    begun, gone = asyncio.Event(), asyncio.Event()
    model = announced(begun, left(gone))
    async with (
        asyncio.timeout(LIMIT_S),
        upstream(model, chats=True) as server,
        serving(tmp_path, Scripted([])) as served,
    ):
        await added(served, server.base_url)
        async with served.client.stream("POST", PATH, json={"model": "m"}) as answer:
            assert answer.status_code == 200
            await begun.wait()
            busy = await served.client.post(PATH, json={})
            assert (busy.status_code, busy.json()["error"]["code"]) == (409, "examination_busy")
        await gone.wait()
        assert len(server.chats) == 1


async def test_what_is_refused(tmp_path: Path) -> None:
    flags = {"endpoints": json.dumps({"mine": running_server(models=["a"])})}
    async with asyncio.timeout(LIMIT_S), serving(tmp_path, Scripted(["x"]), None, **flags) as served:
        unknown = await served.client.post("/endpoints/other/examination", json={})
        model = await served.client.post(PATH, json={"model": "b"})
        scripted = await served.client.post("/endpoints/default/examination", json={})
        down = await served.client.post(PATH, json={})
        user = await served.client.post(PATH, json={}, headers=await bearer(served, "user", "user"))
    assert (unknown.status_code, model.status_code, user.status_code) == (404, 422, 403)
    [(kind, fields)] = events(scripted.text)
    assert (kind, "does not speak chat completions" in fields["message"]) == ("none", True)
    assert [kind for kind, _ in events(down.text)] == ["none"]
