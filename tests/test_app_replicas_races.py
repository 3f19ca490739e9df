"""Replicas when something fails half-way: nothing waits for ever, no lease is lost for another's sake."""

from __future__ import annotations

import asyncio

import pytest

from app.replicas.peers import Body
from app.replicas.postgres.messages import MOST_BYTES
from app.storage.changes import LOST
from tests.postgres import Cluster
from tests.test_app_replicas import Server, servers

pytestmark = pytest.mark.anyio


async def begins_again(server: Server, by: Server) -> None:
    """Let one server bury another, and wait until that one is a new replica."""
    before = server.peers.me
    await by.buries(before)
    server.peers.lease.beat_soon()
    while server.peers.me == before or server.store.fenced_by == LOST:
        await by.peers.others()


async def test_an_answer_reaches_a_server_that_has_begun_again_meanwhile(postgres: Cluster) -> None:
    asked, go_on, count = asyncio.Event(), asyncio.Event(), 0

    async def slow(_: Body) -> object:
        nonlocal count
        count += 1
        asked.set()
        await go_on.wait()
        return "x" * MOST_BYTES

    async with servers(postgres, "a", "b") as (a, b):
        b.peers.answerers["slow"] = slow
        asking = asyncio.create_task(a.peers.ask(b.peers.me, "slow", {"text": "x" * MOST_BYTES}))
        await asked.wait()
        await begins_again(a, b)
        go_on.set()
        async with asyncio.timeout(10):
            assert await asking == "x" * MOST_BYTES
        assert count == 1


async def test_a_message_that_is_too_long_stops_no_other(postgres: Cluster) -> None:
    async def answer(_: Body) -> object:
        return 1

    async with servers(postgres, "a", "b") as (a, b):
        b.peers.answerers["x"] = answer
        a.peers.messages.send_all("bell", names=["ö" * MOST_BYTES])
        async with asyncio.timeout(10):
            assert await a.peers.ask(b.peers.me, "x", {}) == 1
