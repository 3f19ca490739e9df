"""Limits on lanes: tokens, rates, budgets, the kill switch and broken code, each answered in the lane's own shape."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from app.core.provider import Finished, TextChunk, TokenUsage
from app.models.scripted import Line, Pause, Scripted
from routes.lanes.lane import LaneRequest
from tests.support.access.people import bearer
from tests.support.lanes.small_lane import PATH, PLAIN, holds, serving_plain, streamed, user, whole

pytestmark = pytest.mark.anyio

CHAT, MESSAGES = "/v1/chat/completions", "/v1/messages"
HELLO: dict[str, Any] = {"messages": [user("Hi")], "model": "scripted", "max_tokens": 100}
COUNTED: list[Line] = [TextChunk("Hi."), TokenUsage(99_900, 90), Finished("stop")]


@pytest.mark.parametrize(
    ("path", "error"),
    [
        (PATH, {"plain": {"code": "unauthorized"}}),
        (CHAT, {"error": {"code": "invalid_api_key", "type": "invalid_request_error", "param": None}}),
        (MESSAGES, {"type": "error", "error": {"type": "authentication_error"}}),
    ],
)
async def test_who_has_no_token_is_told_so_in_the_lanes_shape(tmp_path: Path, path: str, error: dict[str, Any]) -> None:
    async with serving_plain(tmp_path, Scripted([])) as served:
        await bearer(served, "ann")
        response = await served.client.post(path, json=HELLO, headers={"authorization": "Bearer sk-wrong"})
    assert response.status_code == 401 and response.headers["www-authenticate"] == "Bearer"
    assert response.headers["x-should-retry"] == "false"
    assert without_message(response.json()) == error


def without_message(body: Mapping[str, Any]) -> dict[str, Any]:
    """The same; each message says something."""
    fields = {name: dict(value) if isinstance(value, dict) else value for name, value in body.items()}
    for inner in fields.values():
        if isinstance(inner, dict):
            assert inner.pop("message")
    return fields


@pytest.mark.parametrize(("path", "code"), [(PATH, "too_many_requests"), (CHAT, "rate_limit_exceeded")])
async def test_a_rate_is_limited(tmp_path: Path, path: str, code: str) -> None:
    async with serving_plain(tmp_path, Scripted(["Hi."]), requests_per_minute="1") as served:
        assert (await served.client.post(path, json=HELLO)).status_code == 200
        response = await served.client.post(path, json=HELLO)
    assert response.status_code == 429 and int(response.headers["retry-after"]) >= 1
    [error] = response.json().values()
    assert error["code"] == code


@pytest.mark.parametrize("model", ["scripted", "dragoman/agent"])
@pytest.mark.parametrize(("path", "code"), [(PATH, "budget"), (CHAT, "insufficient_quota")])
async def test_a_budget_is_spent_and_then_refused(tmp_path: Path, path: str, code: str, model: str) -> None:
    async with serving_plain(tmp_path, Scripted([COUNTED] * 2), tokens_per_month="100_000") as served:
        await served.client.post(path, json=HELLO | {"model": model})
        response = await served.client.post(path, json=HELLO | {"model": model})
    assert response.status_code == 429
    [error] = response.json().values()
    assert error["code"] == code


@pytest.mark.parametrize("model", ["scripted", "dragoman/agent"])
async def test_the_kill_switch_holds(tmp_path: Path, model: str) -> None:
    pause = asyncio.Event()
    async with serving_plain(tmp_path, Scripted([["One", Pause(pause)]])) as served:
        stream = asyncio.create_task(streamed(served, user("Hi"), model=model))
        await holds(lambda: bool(served.services.runs.at_work()))
        assert (await served.client.post("/pause", json={"cancel": True})).status_code == 200
        assert (await stream)[-1]["reason"] == "paused"
        response = await served.client.post(PATH, json=HELLO | {"model": model})
    assert (response.status_code, response.json()["plain"]["code"]) == (503, "paused")


async def test_a_bug_is_answered_in_the_lanes_shape(tmp_path: Path) -> None:
    def broken(_: Mapping[str, Any]) -> LaneRequest:
        raise RuntimeError("secret detail")

    async with serving_plain(tmp_path, Scripted([]), replace(PLAIN, read=broken)) as served:
        response = await served.client.post(PATH, json={})
    assert (response.status_code, response.json()["plain"]["code"]) == (500, "internal")
    assert "secret detail" not in response.text


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("model", ["scripted", "dragoman/agent"])
async def test_a_revoked_token_ends_its_runs(tmp_path: Path, model: str, stream: bool) -> None:
    async with serving_plain(tmp_path, Scripted([["One", Pause(asyncio.Event())]])) as served:
        root = await bearer(served, "root", "admin")
        ann = await bearer(served, "ann")
        body = HELLO | {"model": model, "stream": stream}
        request = asyncio.create_task(served.client.post(PATH, json=body, headers=ann))
        await holds(lambda: "ann" in served.services.runs.at_work())
        assert (await served.client.delete("/tokens/ann", headers=root)).status_code == 204
        response = await request
    assert "revoked" in response.text
    assert stream or response.status_code == 401  # half an answer is none
    assert served.services.presence.streams("ann") == 0


async def test_a_model_name_that_none_can_have(tmp_path: Path) -> None:
    async with serving_plain(tmp_path, Scripted([])) as served:
        for name in ("x" * 300, "dragoman/" + "x" * 300):
            response = await served.client.post(PATH, json=HELLO | {"model": name})
            assert response.json()["plain"]["code"] == "unknown_model"


async def test_as_many_streams_as_allowed(tmp_path: Path) -> None:
    pause = asyncio.Event()
    async with serving_plain(tmp_path, Scripted([["One", Pause(pause)]]), max_streams="1") as served:
        first = asyncio.create_task(whole(served, user("Hi"), model="scripted"))
        await holds(lambda: bool(served.services.runs.at_work()))
        response = await served.client.post(PATH, json=HELLO)
        pause.set()
        await first
    assert (response.status_code, response.json()["plain"]["code"]) == (429, "too_many_streams")


async def test_what_an_agent_of_a_lane_did_is_audited(tmp_path: Path) -> None:
    async with serving_plain(tmp_path, Scripted(["```bash\necho hi\n```", "Done."])) as served:
        answer = await whole(served, user("Run it"), model="dragoman/agent")
        rows = (await served.client.get("/audit")).json()["audit"]
    assert [row["run"] for row in rows if row["action"] == "bash"] == [answer["run"]]
