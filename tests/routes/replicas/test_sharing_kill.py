"""The server on duty is killed when a time has come: one run begins all the same, at another server."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path

import pytest

from tests.support.databases.postgres import cluster
from tests.support.models.chatting import DONE, chunk, says
from tests.support.models.upstream import stream, upstream
from tests.support.nightly import only_at_night
from tests.support.replicas.servers import three_replicas
from tests.support.server.receivers import receiver

pytestmark = [pytest.mark.anyio, only_at_night]
DUE = "UPDATE schedules SET next = $1, reckoned = $1 WHERE id = $2 RETURNING id"
CHANGED = "SELECT pg_notify('dragoman', $1)"
OCCURRENCES = "SELECT outcome, run FROM occurrences WHERE origin = $1"


async def test_a_time_begins_one_run_though_the_server_on_duty_is_killed(tmp_path: Path) -> None:
    said = stream(says("Hello."), chunk(finish="stop"), DONE)
    with cluster() as postgres:
        async with asyncio.timeout(90), upstream(said, repeat=True, chats=True) as model, receiver() as there:
            url, environ = postgres.database(), {"DRAGOMAN_LEASE_S": "10"}
            flags = ("--max-schedules", "3", "--private-hosts", "127.0.0.1")
            async with three_replicas(tmp_path, url, model.base_url, *flags, environ=environ) as replicas:
                hook = await replicas.client.post("/webhooks", json={"url": there.url})
                assert hook.status_code == 201, hook.text
                wish = {"name": "often", "message": "Look.", "every": "90m"}
                made = (await replicas.client.post("/schedules", json=wish)).json()["id"]
                now = time.time()
                assert await replicas.query(DUE, now - 1, made)
                first = replicas.members[0]  # it started first, so all duties are its
                await replicas.query(CHANGED, json.dumps({"kind": "changed", "kinds": {"schedules": []}, "by": ""}))
                first.kill()
                while not (rows := await replicas.query(OCCURRENCES, made)):
                    await first.process.wait()
                [(outcome, run)] = rows
                assert outcome == "started"
                requests = await there.got(1)
                assert {json.loads(one.body)["data"]["run"] for one in requests} == {run}
                assert len({one.headers["webhook-id"] for one in requests}) == 1
                assert await replicas.query(OCCURRENCES, made) == rows
