"""Six doors race for each waiting call while the server dies: one wins, all report that, no call runs twice."""

from __future__ import annotations

import asyncio
import random
from contextlib import AsyncExitStack
from pathlib import Path

import httpx2
import pytest

from tests.support.nightly import at_night
from tests.support.server.doors import RACERS, RACING, calling_once, check_decided, race, waiting_calls
from tests.support.server.dragoman_process import DragomanProcess, server
from tests.support.server.receivers import receiver

pytestmark = [pytest.mark.anyio]

CALLS, KILLS = at_night((1000, 5), (30, 1))
LIMIT_S = at_night(1800, 120)


class Restarted:
    """A server on one data directory that is started again after each kill."""

    def __init__(self, folder: Path, model_url: str, stack: AsyncExitStack) -> None:
        self._folder, self._model_url, self._stack = folder, model_url, stack
        self._client: httpx2.AsyncClient
        self._process: DragomanProcess

    async def start(self) -> None:
        made = server(self._folder, self._model_url, *RACING)
        self._client, self._process = await self._stack.enter_async_context(made)

    def client(self) -> httpx2.AsyncClient:
        return self._client

    async def kill(self) -> None:
        self._process.kill()
        await self._process.wait()
        await self.start()


@pytest.mark.timeout(LIMIT_S + 30)
async def test_six_doors_race_for_each_call_and_one_wins(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    async with asyncio.timeout(LIMIT_S), receiver() as there, calling_once() as model, AsyncExitStack() as stack:
        restarted = Restarted(tmp_path, model.base_url, stack)
        await restarted.start()
        calls = await waiting_calls(restarted.client, there, CALLS)
        await race(restarted.client, calls, random.Random(7), restarted.kill, KILLS)
        won = await check_decided(restarted.client, calls, tmp_path / "work")
    assert won.total() == CALLS and len(won) == len(RACERS), won
