"""All jobs of a client through a server of ours, run once; its tests look at what was seen."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.clients.checks import CHECKS, Check, problems
from tests.clients.harness import (
    EACH_CLIENT,
    LIMIT_S,
    MODELS,
    Client,
    dragoman,
    is_installed,
    job_id,
    jobs,
    models_of,
    needed,
    observed,
    seconds_to_leave,
)
from tests.clients.results import record

Found = dict[str, list[str]]  # the problems of each job
# The first test waits for the jobs of all clients, of which each has a limit of its own.
TIMEOUT_S = 4 * LIMIT_S


class Observations:
    """Of all clients whose tests are to run, when the first asks: programs take longer to start than jobs do."""

    def __init__(self, home: Path, clients: Iterable[Client]) -> None:
        self._home = home
        self._clients = [client for client in clients if is_installed(client)]
        self._found: dict[str, Found | BaseException] = {}

    def of(self, client: Client) -> Found:
        if not self._found:
            self._found = asyncio.run(self._observe_all())
        found = self._found[client.name]
        if isinstance(found, BaseException):
            raise AssertionError(f"{client.name} has no observations: {found!r}") from found
        return found

    async def _observe_all(self) -> dict[str, Found | BaseException]:
        """Two at a time: each waits half of its time."""
        free = asyncio.Semaphore(2)

        async def one(client: Client) -> Found:
            async with free:
                return await _observe(client, self._home / client.name)

        found = await asyncio.gather(*map(one, self._clients), return_exceptions=True)
        return {client.name: each for client, each in zip(self._clients, found, strict=True)}


async def _observe(client: Client, home: Path) -> Found:
    (home / "work").mkdir(parents=True)
    found: Found = {}
    async with dragoman(home, lane_disconnect="cancel") as target:  # that of clients that return has tests of its own
        for name, seen in (await observed(client, jobs(client, target, MODELS, client.ways), home)).items():
            way, model, check_name = name.split(":")
            check = next(check for check in CHECKS if check.name == check_name)
            found[name] = problems(check, way, model, seen)
            if check.job.get("leave") and seen["left"]:
                try:
                    await seconds_to_leave(target, client, seen)
                except TimeoutError:
                    found[name].append("the model went on after the client had left")
    record(client.name, found)
    return found


def assert_no_problems(observations: Observations, client: Client, way: str, check: Check) -> None:
    """With each of the models."""
    needed(client)
    found = observations.of(client)
    jobs = {model: found[job_id(way, model, check)] for model in models_of(check)}
    wrong = {model: problems for model, problems in jobs.items() if problems}
    assert not wrong, wrong


def clients_of(request: pytest.FixtureRequest) -> list[Client]:
    """Those of the tests of this module that are to run."""
    params = [item.callspec.params for item in request.session.items if item.path == request.path]  # type: ignore[attr-defined]
    return list({one["client"].name: one["client"] for one in params}.values())


def cases(clients: tuple[Client, ...]) -> list[object]:
    return [
        pytest.param(client, way, check, id=f"{client.name}-{way}-{check.name}")
        for client in clients
        if client.daily or EACH_CLIENT
        for way in client.ways
        for check in CHECKS
        if client.applies(way, check)
    ]
