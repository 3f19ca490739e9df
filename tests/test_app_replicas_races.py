"""Replicas when something fails half-way: nothing waits for ever, no lease is lost for another's sake."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import asyncpg
import pytest

from app.replicas.peers import Body
from app.replicas.postgres.messages import MOST_BYTES
from app.storage.changes import LOST
from app.storage.postgres.connections import CONNECT_S, Line
from tests.postgres import Cluster
from tests.test_app_replicas import LIMIT_S, Server, begun, servers

pytestmark = pytest.mark.anyio
SLOW_S = 6.0


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
        async with asyncio.timeout(LIMIT_S):
            assert await asking == "x" * MOST_BYTES
        assert count == 1


async def test_a_listener_that_is_hung_up_while_it_begins_begins_again(
    postgres: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A replica that begins again ends its connections: one may be between the two steps of a statement."""
    prepare, hung_up = asyncpg.Connection._get_statement, list[str]()

    async def ended_in_between(self: Any, query: str, *args: Any, **options: Any) -> Any:
        statement = await prepare(self, query, *args, **options)
        if query.startswith("LISTEN") and len(hung_up) < 2:
            hung_up.append(query)
            self.terminate()
        return statement

    async def answer(_: Body) -> object:
        return 1

    monkeypatch.setattr(asyncpg.Connection, "_get_statement", ended_in_between)
    async with servers(postgres, "a", "b") as (a, b):
        b.peers.answerers["x"] = answer
        assert await a.peers.ask(b.peers.me, "x", {}) == 1
        assert len(hung_up) == 2


async def test_a_message_that_is_too_long_stops_no_other(postgres: Cluster) -> None:
    async def answer(_: Body) -> object:
        return 1

    async with servers(postgres, "a", "b") as (a, b):
        b.peers.answerers["x"] = answer
        a.peers.messages.send_all("bell", names=["ö" * MOST_BYTES])
        async with asyncio.timeout(LIMIT_S):
            assert await a.peers.ask(b.peers.me, "x", {}) == 1


async def test_a_lost_lease_ends_the_taking_over_of_runs(postgres: Cluster) -> None:
    begun_to, ended = asyncio.Event(), asyncio.Event()

    async def take_over(_: str) -> None:
        begun_to.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    async with servers(postgres, "a", "b") as (a, b):
        await begun(b)
        a.peers.begin_taking(take_over)
        await b.peers.release(["run_1"])
        await begun_to.wait()
        await begins_again(a, b)
        assert ended.is_set()


async def test_a_request_that_leaves_while_its_lock_ends_leaves_no_connection_behind(postgres: Cluster) -> None:
    async with servers(postgres, "a") as (a,):
        locks = a.peers._locks
        for _ in range(40):  # more than the pool has
            held = locks.lock("session", "ses_1")
            await held.__aenter__()
            leaving = asyncio.create_task(held.__aexit__(None, None, None))
            await asyncio.sleep(0)
            leaving.cancel()
            with suppress(asyncio.CancelledError):
                await leaving
        async with asyncio.timeout(LIMIT_S), locks.lock("session", "ses_1"):
            pass


async def test_a_database_that_answers_slowly_is_connected_to(
    postgres: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A connection is several questions, with TLS six or seven: one that is far away needs more than the first try."""
    connect, limits = asyncpg.connect, list[float]()

    async def slowly(url: str, *, timeout: float, **options: Any) -> Any:
        limits.append(timeout)
        if timeout < SLOW_S:
            raise TimeoutError
        return await connect(url, timeout=timeout, **options)

    monkeypatch.setattr(asyncpg, "connect", slowly)
    connection = await Line(postgres.database()).connect()
    connection.terminate()
    assert len(limits) == 2 and limits[0] < SLOW_S


async def test_a_new_connection_has_more_time_than_an_answer_on_one(postgres: Cluster) -> None:
    async with servers(postgres, "a", lease_s=60) as (a,):
        lease = a.peers.lease
        on_one = lease._in_time().when() or 0.0
        lease.disconnect()
        anew = lease._in_time().when() or 0.0
        assert anew - on_one > CONNECT_S / 2
