"""The doors of `test_doors_race`, each at any of two servers that share a database, of which one is killed."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import httpx2
import pytest

from tests.support.databases.postgres import Cluster
from tests.support.nightly import at_night
from tests.support.replicas.servers import three_replicas
from tests.support.server.doors import RACERS, RACING, calling_once, check_decided, race, waiting_calls
from tests.support.server.receivers import receiver

pytestmark = pytest.mark.anyio

CALLS, KILLS = at_night((1000, 4), (30, 1))
LIMIT_S = at_night(2400, 150)
HURRIED = {"DRAGOMAN_LEASE_S": "6"}


@pytest.mark.timeout(LIMIT_S + 30)
async def test_doors_at_any_replica_race_for_each_call_and_one_wins(tmp_path: Path, postgres: Cluster) -> None:
    chance = random.Random(11)
    async with asyncio.timeout(LIMIT_S), receiver() as there, calling_once() as model:
        database = postgres.database()
        async with three_replicas(tmp_path, database, model.base_url, *RACING, count=2, environ=HURRIED) as replicas:

            async def kill() -> None:
                one = chance.choice(replicas.members)
                one.kill()
                await one.restart()

            def client() -> httpx2.AsyncClient:
                return chance.choice(replicas.members).client

            calls = await waiting_calls(client, there, CALLS)
            await race(client, calls, random.Random(7), kill, KILLS)
            won = await check_decided(client, calls, tmp_path / "work")
    assert won.total() == CALLS and len(won) == len(RACERS), won
