"""Notifications through a whole server: added over HTTP, delivered, and none lost or invented by a kill."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from app.models.scripted import Scripted
from tests.support.models.chatting import DONE, chunk, says
from tests.support.models.replies import in_background
from tests.support.models.upstream import stream, upstream
from tests.support.server.background_jobs import job_of
from tests.support.server.dragoman_process import run_dragoman, server
from tests.support.server.receivers import HANG, receiver, verified
from tests.support.server.serving import serving, until

pytestmark = pytest.mark.anyio

HERE = "127.0.0.1"
DELIVERY_TIMES = ("attempts", "created", "error")
BAD: Mapping[str, tuple[dict[str, Any], int, str]] = {
    "no url": ({}, 422, "url"),
    "another type": ({"url": 7}, 422, "url"),
    "not public": ({"url": "https://10.0.0.1/"}, 422, "private_hosts"),
    "an unknown event": ({"url": "https://example.org", "events": ["all"]}, 422, "run.ended"),
    "an unknown field": ({"url": "https://example.org", "secret": "mine"}, 422, "secret"),
    "an unknown channel": ({"url": "https://example.org", "channel": "pigeon"}, 422, "ntfy"),
    "a long name": ({"url": "https://example.org", "name": "x" * 65}, 422, "name"),
}


async def test_webhooks_over_http(tmp_path: Path) -> None:
    call = "```write_file\nnote.txt\nfirst\n```"
    async with receiver() as there, serving(tmp_path, Scripted([call, "Done.", "Good."]), private_hosts=HERE) as served:
        client = served.client
        for name, (body, status, words) in BAD.items():
            refused = await client.post("/webhooks", json=body)
            assert (refused.status_code, words in refused.json()["error"]["message"]) == (status, True), name
        made = (await client.post("/webhooks", json={"url": f"{there.url}?key=hidden", "name": "chat"})).json()
        secret, hook = made.pop("secret"), made["id"]
        assert made["url"] == there.url
        async with aclosing(served.turn(message="Write", approval="ask")) as turn:
            question = await until(turn, "approval.required")
            [waits] = await there.got(1)
            run = json.loads(waits.body)["data"]["run"]
            await client.post(f"/runs/{run}/approvals/{question['call']}", json={"decision": "approve"})
            await until(turn, "run.finished")
        tested = (await client.post(f"/webhooks/{hook}/test")).json()
        assert (tested["delivered"], tested["status"]) == (True, 200)
        requests = await there.got(3)
        assert all(verified(request, secret) for request in requests)
        kinds = [json.loads(request.body)["type"] for request in requests]
        assert sorted(kinds) == ["approval.required", "run.ended", "test"]
        listed = (await client.get(f"/webhooks/{hook}/deliveries")).json()["deliveries"]
        assert [(one["type"], one["detail"]) for one in listed] == [
            ("run.ended", "answered"),
            ("approval.required", question["call"]),
        ]
        renewed = (await client.post(f"/webhooks/{hook}/secret")).json()["secret"]
        assert renewed != secret
        off = await client.patch(f"/webhooks/{hook}", json={"enabled": False, "events": ["job.ended"]})
        assert (off.json()["state"], off.json()["events"]) == ("disabled", ["job.ended"])
        seen = (await client.get("/webhooks")).text + (await client.get(f"/webhooks/{hook}")).text
        assert "whsec_" not in seen and "hidden" not in seen
        assert (await client.patch(f"/webhooks/{hook}", json={})).status_code == 422
    database = b"".join(path.read_bytes() for path in (tmp_path / "data").glob("dragoman.db*"))
    assert secret.encode() not in database and hook.encode() in database


async def test_a_kill_neither_loses_nor_invents_a_delivery(tmp_path: Path) -> None:
    """The server dies after the run has ended and before its receiver has answered."""
    (tmp_path / "work").mkdir()
    flags = ("--private-hosts", "127.0.0.1")
    async with (
        asyncio.timeout(90),
        receiver(200, HANG) as there,
        upstream(stream(says("Done."), chunk(finish="stop"), DONE), repeat=True, chats=True) as model,
    ):
        async with server(tmp_path, model.base_url, *flags) as (client, process):
            made = (await client.post("/webhooks", json={"url": there.url, "events": ["run.ended"]})).json()
            answer = await client.post("/chat", json={"message": "Go"})
            await there.got(1)
            process.kill()
            await process.wait()
        async with server(tmp_path, model.base_url, *flags) as (client, _):
            first, second = await there.got(2)
            assert first.headers["webhook-id"] == second.headers["webhook-id"]
            assert json.loads(second.body)["data"]["run"] == answer.headers["x-run-id"]
            assert verified(first, made["secret"]) and verified(second, made["secret"])
            await client.post("/chat", json={"message": "And?"})
            await there.got(3)
            listed = (await client.get(f"/webhooks/{made['id']}/deliveries")).json()["deliveries"]
            assert len(listed) == 2, "one for each run"


async def test_webhooks_on_the_command_line(tmp_path: Path) -> None:
    async with receiver() as there, receiver(500) as broken, serving(tmp_path, None, private_hosts=HERE) as served:

        async def dragoman(*words: str) -> tuple[int, str, str]:
            environ = {"HOME": str(tmp_path), "PATH": "/usr/bin", "DRAGOMAN_URL": str(served.client.base_url)}
            environ["DRAGOMAN_DATA_DIR"] = str(tmp_path / "data")
            done = await asyncio.to_thread(run_dragoman, "webhook", *words, environ=environ)
            return done.returncode, done.stdout, done.stderr

        code, out, _ = await dragoman("add", there.url, "--name", "chat", "--events", "run.ended, job.ended")
        assert (code, out.startswith("whsec_")) == (0, True)
        [hook] = (await served.client.get("/webhooks")).json()["webhooks"]
        assert (hook["name"], hook["events"]) == ("chat", ["run.ended", "job.ended"])
        assert (await dragoman("test", hook["id"]))[0] == 0
        assert verified((await there.got(1))[0], out.split()[0])
        await dragoman("add", broken.url)
        listed = (await dragoman("list"))[1].splitlines()
        assert len(listed) == 3 and hook["id"] in listed[1]
        code, _, error = await dragoman("test", listed[2].split()[0])
        assert (code, "500" in error) == (1, True)
        assert (await dragoman("deliveries", hook["id"]))[1].split() == ["id", "type", "state", *DELIVERY_TIMES]
        code, out, _ = await dragoman("add", there.url, "--channel", "ntfy")
        assert (code, out.startswith("whk_"), "whsec_" in out) == (0, True, False)
        assert (await dragoman("test", out.split()[0]))[0] == 0
        assert (await there.got(2))[1].headers["title"] == "This is a test."
        assert (await dragoman("remove", hook["id"]))[0] == 0
        code, _, error = await dragoman("remove", hook["id"])
        assert (code, "GET /webhooks" in error) == (1, True)
        code, _, error = await dragoman("add", "https://10.0.0.1/")
        assert (code, "private_hosts" in error) == (1, True)


async def test_jobs_and_budgets_notify(tmp_path: Path) -> None:
    """A job that ends, and a budget that the run before has nearly spent."""
    provider = Scripted([in_background("true"), "It runs."])
    settings = {"tokens_per_month": "100000", "budget_notice_percent": "1", "job_follow_up": "false"}
    async with receiver() as there, serving(tmp_path, provider, None, private_hosts=HERE, **settings) as served:
        wanted = {"url": there.url, "events": ["job.ended", "budget.low"]}
        await served.client.post("/webhooks", json=wanted)
        _, job = await job_of(served)
        bodies = [json.loads(request.body) for request in await there.got(2)]
        found = {body["type"]: body["data"] for body in bodies}
        assert (found["job.ended"]["job"], found["job.ended"]["state"]) == (job, "exited")
        assert found["budget.low"] == {"budget": "tokens_per_month", "used": "1%"}
