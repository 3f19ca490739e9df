"""A task of an MCP server whose owner is killed: another replica goes on with it, and makes no second call."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from pathlib import Path

import pytest

from tests.support.databases.postgres import Cluster
from tests.support.mcp.tasks import ERAS, TaskServer, requested, until_requested
from tests.support.models.chatting import DONE, chunk, says
from tests.support.models.upstream import stream, upstream
from tests.support.replicas.servers import three_replicas
from tests.support.server.approvals import follow

pytestmark = pytest.mark.anyio
LIMIT_S = 110
LEASE = {"DRAGOMAN_LEASE_S": "8"}  # a machine that is busy for two seconds must not take the run from its owner


async def test_another_replica_goes_on_with_a_task(tmp_path: Path, postgres: Cluster) -> None:
    mcp, flags = TaskServer(ERAS[0]), ("--unsafe-no-sandbox", "--mcp-config", str(tmp_path / "mcp.json"))
    acts = [stream(says(text), chunk(finish="stop"), DONE) for text in ("```mcp__s__wait\n```", "Done.")]
    async with asyncio.timeout(LIMIT_S), upstream(*acts, chats=True) as model, mcp.started() as tasks:
        mcp.listed_in(tmp_path)
        environ = LEASE | {"DRAGOMAN_GENERATED_TITLES": "never"}
        url = postgres.database()
        async with three_replicas(tmp_path, url, model.base_url, *flags, environ=environ, count=2) as replicas:
            for one in replicas:
                while not (await one.client.get("/mcp/servers")).json()["servers"][0]["tools"]:
                    pass  # each request waits; the test is bounded
            body = {"message": "Go", "approval": "auto"}
            async with replicas.members[0].client.stream("POST", "/chat", json=body) as response:
                run = response.headers["x-run-id"]
                await until_requested(tasks, "tasks/get")
                owner = await replicas.owned(run)
                owner.kill()
            other = await replicas.owned(run, by_other_than=owner)
            await tasks.post("/finish")
            async with aclosing(follow(other.client, run, 0)) as stored:
                events = [event async for event in stored]
        kinds = [event["type"] for event in events]
        assert [one["text"] for one in events if one["type"] == "tool.finished" and one["ok"]]
        assert (kinds.count("tool.started"), events[-1]["reason"]) == (1, "answered")
        assert len(await requested(tasks, "tools/call")) == 1
        assert not await requested(tasks, "tasks/cancel")
