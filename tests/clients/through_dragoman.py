"""All jobs of a client through a server of ours, run once; its tests look at what was seen."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.clients.checks import CHECKS, Check, problems
from tests.clients.harness import (
    MODELS,
    Client,
    dragoman,
    job_id,
    jobs,
    models_of,
    needed,
    observed,
    seconds_to_leave,
)

Found = dict[str, list[str]]  # the problems of each job


class Observations:
    """Of each client, all at once when its first test asks: programs take longer to start than jobs do."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._found: dict[str, Found] = {}

    def of(self, client: Client) -> Found:
        if client.name not in self._found:
            self._found[client.name] = asyncio.run(_observe(client, self._home / client.name))
        return self._found[client.name]


async def _observe(client: Client, home: Path) -> Found:
    (home / "work").mkdir(parents=True)
    found: Found = {}
    async with dragoman(home) as target:
        for name, seen in (await observed(client, jobs(client, target, MODELS, client.ways), home)).items():
            way, model, check_name = name.split(":")
            check = next(check for check in CHECKS if check.name == check_name)
            found[name] = problems(check, way, model, seen)
            if check.job.get("leave") and seen["left"]:
                try:
                    await seconds_to_leave(target, client, seen)
                except TimeoutError:
                    found[name].append("the model went on after the client had left")
    return found


def assert_no_problems(observations: Observations, client: Client, way: str, check: Check) -> None:
    """With each of the models."""
    needed(client)
    found = observations.of(client)
    jobs = {model: found[job_id(way, model, check)] for model in models_of(check)}
    wrong = {model: problems for model, problems in jobs.items() if problems}
    assert not wrong, wrong


def cases(clients: tuple[Client, ...]) -> list[object]:
    return [
        pytest.param(client, way, check, id=f"{client.name}-{way}-{check.name}")
        for client in clients
        for way in client.ways
        for check in CHECKS
        if client.applies(way, check)
    ]
