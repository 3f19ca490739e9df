"""A server that is killed refunds nothing, holds nothing that could be free again, and frees its places."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.support.databases.postgres import cluster
from tests.support.models.upstream import announced, hang, upstream
from tests.support.nightly import only_at_night
from tests.support.replicas.servers import Replica, three_replicas

pytestmark = pytest.mark.anyio
FLAGS = ("--tokens-per-month", "100000", "--max-runs", "1")


async def usage_of(replica: Replica) -> dict[str, Any]:
    usage: dict[str, Any] = (await replica.client.get("/usage")).json()["usage"]
    return usage


@only_at_night
async def test_a_server_that_is_killed_refunds_nothing_and_frees_its_places(tmp_path: Path) -> None:
    asked = [asyncio.Event(), asyncio.Event()]
    acts = [announced(one, hang) for one in asked]
    with cluster() as postgres:
        async with asyncio.timeout(90), upstream(*acts, chats=True) as model:
            url, lease = postgres.database(), {"DRAGOMAN_LEASE_S": "10"}
            async with three_replicas(tmp_path, url, model.base_url, *FLAGS, environ=lease, count=2) as replicas:
                first, second = replicas.members
                made = await first.client.post("/chat", json={"message": "Hi"}, headers={"Prefer": "respond-async"})
                run = made.json()["run"]
                await asked[0].wait()
                seen = [(await usage_of(one))["tokens_per_month"] for one in replicas]
                assert seen[0] == seen[1] and seen[0]["used"] == 0 and seen[0]["reserved"] > 4096
                refused = await second.client.post("/chat", json={"message": "And?"})
                assert refused.status_code == 429, refused.text  # a place is held, wherever
                first.kill()
                await replicas.owned(run, by_other_than=first)
                await asked[1].wait()
                tokens = (await usage_of(second))["tokens_per_month"]
                assert tokens["used"] >= seen[0]["reserved"] and tokens["reserved"] > 4096
                assert (await second.client.post(f"/runs/{run}/cancel")).is_success
                ended = await usage_of(second)
                assert ended["tokens_per_month"]["used"] >= seen[0]["reserved"]
                assert ended["tokens_per_month"]["reserved"] == 0 and ended["runs"]["used"] == 0
