"""Connections to PostgreSQL whose caller leaves while they are made."""

from __future__ import annotations

import asyncio
import gc
from contextlib import suppress
from typing import Any

import pytest

from app.storage.postgres.store import PostgresStore
from tests.support.databases.postgres import Cluster

pytestmark = pytest.mark.anyio


async def test_a_caller_who_leaves_at_any_moment_leaves_no_error_behind(postgres: Cluster) -> None:
    """asyncpg gives a negotiation that is broken off an exception, which no caller can fetch."""
    store = await PostgresStore.open(postgres.database())
    errors = list[dict[str, Any]]()
    asyncio.get_running_loop().set_exception_handler(lambda _, context: errors.append(context))
    for steps in range(24):
        connecting = asyncio.create_task(store.connections.connect())
        for _ in range(steps):
            await asyncio.sleep(0)
        connecting.cancel()
        with suppress(asyncio.CancelledError):
            (await connecting).terminate()
    await store.state("x")
    await store.close()
    while others := [task for task in asyncio.all_tasks() if task.get_name() == "connect to PostgreSQL"]:
        await asyncio.wait(others)
    gc.collect()
    assert not errors
