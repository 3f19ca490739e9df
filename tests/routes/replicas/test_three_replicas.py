"""Three servers on one PostgreSQL, behind a real nginx and behind a balancer that knows no HTTP."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.support.databases.postgres import cluster
from tests.support.models.chatting import DONE, chunk, says
from tests.support.models.upstream import stream, upstream
from tests.support.nightly import at_night, only_at_night
from tests.support.replicas.nginx import needs_nginx
from tests.support.replicas.servers import Balancer, three_replicas

pytestmark = pytest.mark.anyio


@needs_nginx
@pytest.mark.parametrize("balancer", at_night(("tcp", "nginx"), ("nginx",)))
async def test_what_one_replica_has_done_every_other_shows(tmp_path: Path, balancer: Balancer) -> None:
    said = stream(says("Hello."), chunk(finish="stop"), DONE)
    with cluster() as postgres:
        async with asyncio.timeout(90), upstream(said, repeat=True, chats=True) as model:
            url = postgres.database()
            async with three_replicas(tmp_path, url, model.base_url, balancer=balancer) as replicas:
                response = await replicas.client.post("/chat", json={"message": "Hi"})
                assert response.text.count("event: run.finished") == 1
                run, session = response.headers["x-run-id"], response.headers["x-session-id"]
                for one in replicas:
                    assert (await one.client.get(f"/runs/{run}/events")).text == response.text
                    assert (await one.client.get(f"/runs/{run}")).json()["state"] == "answered"
                assert await replicas.owner_of(run) is None
                first, *others = replicas.members
                first.kill()
                await first.process.wait()
                assert (await replicas.client.get("/livez")).status_code == 200
                again = await replicas.client.post("/chat", json={"message": "And?", "session": session})
                assert again.text.count("event: run.finished") == 1
                await first.restart()
                messages = (await first.client.get(f"/sessions/{session}")).json()["messages"]
                assert [one["role"] for one in messages] == ["user", "assistant"] * 2
                assert len(others) == 2


@only_at_night
async def test_a_branch_of_one_replica_goes_on_at_another(tmp_path: Path) -> None:
    said = stream(says("Hello."), chunk(finish="stop"), DONE)
    with cluster() as postgres:
        async with asyncio.timeout(90), upstream(said, repeat=True, chats=True) as model:
            async with three_replicas(tmp_path, postgres.database(), model.base_url, count=2) as replicas:
                one, other = replicas.members
                response = await one.client.post("/chat", json={"message": "Hi"})
                run, session = response.headers["x-run-id"], response.headers["x-session-id"]
                path, key = f"/sessions/{session}/fork", {"Idempotency-Key": "once"}
                both = await asyncio.gather(
                    *(each.client.post(path, json={"after": run}, headers=key) for each in (one, other))
                )
                [branch] = {answer.json()["id"] for answer in both}
                again = await other.client.post("/chat", json={"message": "And?", "session": branch})
                assert again.text.count("event: run.finished") == 1
                assert (await one.client.delete(f"/sessions/{session}")).status_code == 204
                for each in (one, other):
                    log = (await each.client.get(f"/sessions/{branch}/log")).json()
                    assert [row["message"]["text"] for row in log["runs"]] == ["Hi", "And?"]
                    assert log["runs"][0]["events"]
