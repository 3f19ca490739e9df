"""Servers on one database that are killed under load: their clients return, and nothing is lost or done twice."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest

from tests.support.databases.postgres import cluster
from tests.support.nightly import at_night
from tests.support.replicas.clients import calling, clients
from tests.support.replicas.servers import three_replicas

pytestmark = pytest.mark.anyio
KILLS = at_night(200, 20)
AT_ONCE = 2
CLIENTS = 8
LEASE = {"DRAGOMAN_LEASE_S": "15"}  # long enough for a busy machine: nobody starts a server whose lease has ended


@pytest.mark.timeout(60 + 10 * KILLS)
async def test_owners_killed_at_random_lose_no_event_and_double_no_effect(tmp_path: Path) -> None:
    chance = random.Random(22)
    with cluster() as postgres:
        url = postgres.database()
        async with calling() as model, three_replicas(tmp_path, url, model.base_url, environ=LEASE) as replicas:
            async with clients(replicas, CLIENTS) as load:
                for _ in range(KILLS // AT_ONCE):
                    victims = chance.sample(replicas.members, AT_ONCE)
                    for victim in victims:
                        await load.more_events(chance.randint(1, 30))
                        victim.kill()
                    await asyncio.gather(*(victim.restart() for victim in victims))
    load.check(tmp_path)
    assert load.takeovers > 0
    assert load.ends <= {"answered", "interrupted"}, "the last one if its servers were killed too often"
