"""Clients of a lane that leave: their run is cancelled, unless a retry joins it."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import httpx2
import pytest

from app.core.provider import ProviderFailed
from app.models.scripted import Pause, Raise, Scripted
from tests.support.lanes.small_lane import PATH, Plain, holds, serving_plain, user, whole

pytestmark = pytest.mark.anyio

LIMIT_S = 60
LONG_S = 3600.0  # no test waits so long
RETRY = {"x-stainless-retry-count": "1"}
MODELS = ["scripted", "dragoman/agent"]
HELLO = [user("Hello")]


class Begun(Scripted):
    """Says when a request has come, and when its stream was closed."""

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self.asked = asyncio.Event()
        self.closed_early = asyncio.Event()

    async def stream(self, request: Any) -> Any:
        self.asked.set()
        try:
            async for piece in super().stream(request):
                yield piece
        except (GeneratorExit, asyncio.CancelledError):
            self.closed_early.set()
            raise


class Lingering(Begun):
    """Stops only when it may."""

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self.may_stop = asyncio.Event()

    async def stream(self, request: Any) -> Any:
        try:
            async for piece in super().stream(request):
                yield piece
        except (GeneratorExit, asyncio.CancelledError):
            await self.may_stop.wait()
            raise


async def sent(served: Plain, headers: dict[str, str] | None = None, **more: Any) -> httpx2.Response:
    return await served.client.post(PATH, json={"messages": HELLO} | more, headers=headers)


async def left(served: Plain, begun: Begun, **more: Any) -> None:
    """Send a request, and leave when the model has it."""
    task = asyncio.create_task(sent(served, **more))
    await begun.asked.wait()
    task.cancel()
    await asyncio.wait([task])


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("stream", [True, False])
async def test_a_run_whose_client_has_left_is_cancelled(tmp_path: Path, name: str, stream: bool) -> None:
    model = Begun([["Hel", Pause(asyncio.Event()), "lo"]])
    async with serving_plain(tmp_path, model) as served:
        assert served.attendance.leaving_s == 1
        async with asyncio.timeout(LIMIT_S):  # else the model would never end
            await left(served, model, model=name, stream=stream)
            await model.closed_early.wait()
        assert served.services.presence.streams("local") == 0


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("stream", [True, False])
async def test_a_retry_joins_the_run_under_way(tmp_path: Path, name: str, stream: bool) -> None:
    pause = asyncio.Event()
    model = Begun([["Hel", Pause(pause), "lo"]])
    async with serving_plain(tmp_path, model) as served:
        served.attendance.leaving_s = LONG_S
        await left(served, model, model=name, stream=stream)
        await holds(lambda: served.services.presence.streams("local") == 0)
        retry = asyncio.create_task(sent(served, RETRY, model=name, stream=stream))
        await holds(lambda: served.services.presence.streams("local") > 0)
        pause.set()
        response = await retry
    assert response.status_code == 200
    text = text_of(response.text) if stream else response.json()["text"]
    assert text == "Hello"  # from its beginning
    assert len(model.requests) == 1


def text_of(stream: str) -> str:
    events = [json.loads(block.removeprefix("data: ")) for block in stream.split("\n\n") if block]
    return "".join(event["text"] for event in events if event["type"] == "text.delta")


@pytest.mark.parametrize(
    ("headers", "more"), [({}, {}), ({"x-stainless-retry-count": "0"}, {}), (RETRY, {"parameters": {"seed": 1}})]
)
async def test_what_is_no_retry_of_the_same_request_begins_a_run(
    tmp_path: Path, headers: dict[str, str], more: dict[str, Any]
) -> None:
    model = Begun(["One.", "Two."])
    async with serving_plain(tmp_path, model) as served:
        first = (await sent(served, model="dragoman/agent")).json()
        then = (await sent(served, headers, model="dragoman/agent", **more)).json()
    assert first["run"] != then["run"]
    assert (first["text"], then["text"]) == ("One.", "Two.")


@pytest.mark.parametrize("name", MODELS)
async def test_an_answer_that_was_lost_is_given_again(tmp_path: Path, name: str) -> None:
    model = Begun(["One.", "Two."])
    async with serving_plain(tmp_path, model) as served:
        first = (await sent(served, model=name)).json()
        assert (await sent(served, RETRY, model=name)).json() == first


@pytest.mark.parametrize("name", MODELS)
async def test_a_retry_of_what_failed_is_another_try(tmp_path: Path, name: str) -> None:
    failure = Raise(ProviderFailed("model_garbled", "No.", retryable=False))
    model = Begun([[failure], "Two."])
    async with serving_plain(tmp_path, model) as served:
        assert (await sent(served, model=name)).status_code >= 500
        assert (await sent(served, RETRY, model=name)).json()["text"] == "Two."


@pytest.mark.parametrize("name", MODELS)
async def test_a_retry_joins_no_run_that_is_being_stopped(tmp_path: Path, name: str) -> None:
    model = Lingering([["Hel", Pause(asyncio.Event())], "Two."])
    async with serving_plain(tmp_path, model) as served:
        served.attendance.leaving_s = 0
        await left(served, model, model=name)
        await model.closed_early.wait()
        retry = asyncio.create_task(sent(served, RETRY, model=name))
        await holds(lambda: served.services.presence.streams("local") == 1)
        model.may_stop.set()
        assert (await retry).json()["text"] == "Two."


async def test_a_run_in_the_background_stays(tmp_path: Path) -> None:
    pause = asyncio.Event()
    model = Begun([["Hel", Pause(pause), "lo"]])
    more = {"model": "dragoman/agent", "stream": True, "background": True, "store": True}
    async with serving_plain(tmp_path, model) as served:
        served.attendance.leaving_s = 0
        await left(served, model, **more)
        await holds(lambda: served.services.presence.streams("local") == 0)
        pause.set()
        [run] = await served.services.runs.of("local")
        await served.services.runs.ended(run.id)
        assert (await served.client.get(f"/runs/{run.id}")).json()["state"] == "answered"


async def test_a_run_whose_response_is_read_goes_on(tmp_path: Path) -> None:
    pause = asyncio.Event()
    model = Begun([["Hel", Pause(pause), "lo"]])
    async with serving_plain(tmp_path, model) as served:
        served.attendance.leaving_s = 0
        body = {"model": "scripted", "input": "Hello", "stream": True}
        async with served.client.stream("POST", "/v1/responses", json=body) as response:
            path = f"/v1/responses/{response.headers['x-run-id'].replace('run_', 'resp_')}"
            reading = asyncio.create_task(served.client.get(path, params={"stream": "true"}))
            await holds(lambda: served.services.presence.streams("local") == 2)
        await holds(lambda: served.services.presence.streams("local") == 1)
        assert (await served.client.get(path)).json()["status"] == "in_progress"
        pause.set()
        assert "response.completed" in (await reading).text


async def test_a_request_of_a_busy_session_waits_for_its_turn(tmp_path: Path) -> None:
    pause = asyncio.Event()
    model = Begun([["One", Pause(pause), "."], "Two."])
    more = {"model": "dragoman/agent", "thread": "t"}
    async with serving_plain(tmp_path, model) as served:
        first = asyncio.create_task(whole(served, user("One"), **more))
        await model.asked.wait()
        second = asyncio.create_task(whole(served, user("Two"), **more))
        while len(await served.services.runs.of("local")) < 2:  # noqa: ASYNC110 (what is waited for has no event)
            await asyncio.sleep(0)
        pause.set()
        assert (await first)["session"] == (await second)["session"]
    assert (await second)["text"] == "Two."
