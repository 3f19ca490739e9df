"""The checks of clients, at the model's server itself: it speaks chat completions, so that its clients must pass."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.clients.catalogue import CLIENTS
from tests.clients.checks import CHECKS, problems
from tests.clients.harness import EVERYTHING, LIMIT_S, Client, directly, jobs, needed, observed, seconds_to_leave

pytestmark = pytest.mark.timeout(LIMIT_S + 10)
AT_CHAT = [client for client in CLIENTS if any(way.startswith("chat") for way in client.ways)]
# What only a server between can do: no client gets half a call, and there is an agent.
IMPOSSIBLE = ("cut-call", *(check.name for check in CHECKS if check.agent))


async def found(client: Client, home: Path) -> list[str]:
    ways = [way for way in client.ways if way.startswith("chat")]
    wrong = []
    async with directly() as target:
        wanted = [job for job in jobs(client, target, ["native"], ways) if not job["id"].endswith(IMPOSSIBLE)]
        for name, seen in (await observed(client, wanted, home)).items():
            way, model, check_name = name.split(":")
            check = next(check for check in CHECKS if check.name == check_name)
            wrong += [f"{name}: {problem}" for problem in problems(check, way, model, seen)]
            if seen["left"]:
                await seconds_to_leave(target, client, seen)
    return wrong


@pytest.mark.parametrize("client", AT_CHAT if EVERYTHING else AT_CHAT[:1], ids=lambda client: client.name)
def test_a_client_passes_its_checks_at_a_right_server(client: Client, tmp_path: Path) -> None:
    needed(client)
    assert asyncio.run(found(client, tmp_path)) == []
