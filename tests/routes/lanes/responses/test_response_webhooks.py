"""Webhooks of responses in the background: of each end its event, for those that choose it, and once over a kill."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from app.core.provider import Finished, ProviderFailed
from app.models.scripted import Pause, Raise, Scripted
from tests.support.server.receivers import receiver, verified
from tests.support.server.serving import serving

pytestmark = pytest.mark.anyio
PATH = "/v1/responses"
KINDS = ["response.completed", "response.failed", "response.cancelled", "response.incomplete"]
ENDS: dict[str, Any] = {
    "response.completed": ["Hello."],
    "response.failed": [Raise(ProviderFailed("model_failed", "It broke.", retryable=False))],
    "response.cancelled": ["Hel", Pause(asyncio.Event())],
    "response.incomplete": ["Hel", Finished("length")],
}


@pytest.mark.parametrize("kind", ENDS)
@pytest.mark.parametrize("model", ["scripted", "dragoman/agent"])
async def test_each_end_has_its_event(tmp_path: Path, kind: str, model: str) -> None:
    async with (
        receiver() as there,
        serving(tmp_path, Scripted([ENDS[kind]]), private_hosts="127.0.0.1") as served,
        asyncio.timeout(30),
    ):
        made = (await served.client.post("/webhooks", json={"url": there.url, "events": KINDS})).json()
        body = {"model": model, "input": "Hello", "background": True}
        response = (await served.client.post(PATH, json=body)).json()
        if kind == "response.cancelled":
            await served.client.post(f"{PATH}/{response['id']}/cancel")
        [hook] = await there.got(1)
        whole = (await served.client.get(f"{PATH}/{response['id']}")).json()
    assert verified(hook, made["secret"])
    event = json.loads(hook.body)
    assert (event["type"], event["object"], event["data"]) == (kind, "event", {"id": response["id"]})
    assert event["id"].startswith("evt_") and isinstance(event["created_at"], int)
    assert f"response.{whole['status']}" == kind


async def test_they_are_for_those_that_choose_them_and_of_the_background_alone(tmp_path: Path) -> None:
    async with receiver() as there, serving(tmp_path, Scripted(["One.", "Two."]), private_hosts="127.0.0.1") as served:
        usual = (await served.client.post("/webhooks", json={"url": there.url})).json()
        assert not set(usual["events"]) & set(KINDS)
        await served.client.post("/webhooks", json={"url": there.url, "events": KINDS})
        await served.client.post(PATH, json={"model": "dragoman/agent", "input": "Hello"})
        await served.client.post(PATH, json={"model": "dragoman/agent", "input": "Hello", "background": True})
        kinds = sorted(json.loads(one.body)["type"] for one in await there.got(3))
    assert kinds == ["response.completed", "run.ended", "run.ended"]
