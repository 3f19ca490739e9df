"""Replicas when something fails half-way: nothing waits for ever, no lease is lost for another's sake."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import asyncpg
import pytest

from app.replicas.peers import Body
from app.replicas.postgres import lease as lease_module
from app.replicas.postgres.lease import BEAT, BEATS, ENDED, LAST_WRITE, PREDECESSORS, REGISTER, Lease, Replica
from app.replicas.postgres.messages import MOST_BYTES
from app.replicas.postgres.peers import PostgresPeers
from app.storage.changes import LOST, StoreFailed
from app.storage.postgres.connections import CONNECT_S, Line
from tests.support.databases.postgres import Cluster
from tests.support.replicas.peers import LIMIT_S, PeerServer, begin_run, peer_servers

pytestmark = pytest.mark.anyio


async def begins_again(server: PeerServer, by: PeerServer) -> None:
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

    async with peer_servers(postgres, "a", "b") as (a, b):
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
    async with peer_servers(postgres, "a", "b") as (a, b):
        b.peers.answerers["x"] = answer
        assert await a.peers.ask(b.peers.me, "x", {}) == 1
        assert len(hung_up) == 2


async def test_a_message_that_is_too_long_stops_no_other(postgres: Cluster) -> None:
    async def answer(_: Body) -> object:
        return 1

    async with peer_servers(postgres, "a", "b") as (a, b):
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

    async with peer_servers(postgres, "a", "b") as (a, b):
        await begin_run(b)
        a.peers.begin_taking(take_over)
        await b.peers.release(["run_1"])
        await begun_to.wait()
        await begins_again(a, b)
        assert ended.is_set()


async def test_a_request_that_leaves_while_its_lock_ends_leaves_no_connection_behind(postgres: Cluster) -> None:
    async with peer_servers(postgres, "a") as (a,):
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


@pytest.mark.parametrize("answered", [0, 1])
async def test_the_first_try_to_connect_goes_on_beside_the_second(
    postgres: Cluster, monkeypatch: pytest.MonkeyPatch, answered: int
) -> None:
    """A database may live and be slow, or what was sent first got lost: whichever try is answered counts."""
    connect, made, tries = asyncpg.connect, list[Any](), 0
    begun_both, had, both = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def slowly(*args: Any, **options: Any) -> Any:
        nonlocal tries
        mine, tries = tries, tries + 1
        if tries > 1:
            begun_both.set()
        await (begun_both.wait() if mine == answered else had.wait())
        made.append(await connect(*args, **options))
        if len(made) > 1:
            both.set()
        return made[-1]

    monkeypatch.setattr(asyncpg, "connect", slowly)
    async with asyncio.timeout(LIMIT_S):
        connection = await Line(postgres.database()).connect(again_s=0.01)
        assert connection is made[0] and await connection.fetchval("SELECT 1") == 1
        had.set()
        await both.wait()
        while not made[1].is_closed():
            await connection.execute("SELECT 1")
    connection.terminate()
    assert tries == 2


async def test_a_second_try_that_is_refused_leaves_the_first_one_alone(
    postgres: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    connect, tries, refused = asyncpg.connect, 0, asyncio.Event()

    async def first_only(*args: Any, **options: Any) -> Any:
        nonlocal tries
        tries += 1
        if tries > 1:
            refused.set()
            raise asyncpg.TooManyConnectionsError("too many clients")
        await refused.wait()
        return await connect(*args, **options)

    monkeypatch.setattr(asyncpg, "connect", first_only)
    async with asyncio.timeout(LIMIT_S):
        connection = await Line(postgres.database()).connect(again_s=0.01)
        assert await connection.fetchval("SELECT 1") == 1
    connection.terminate()


class Fake:
    """A connection whose database takes its time: `answers` are called with each statement."""

    def __init__(self, answer: Callable[[str], Awaitable[Any]]) -> None:
        self.answer, self.said, self.ended = answer, list[str](), False

    async def execute(self, sql: str, *_: object) -> Any:
        self.said.append(sql)
        return await self.answer(sql)

    fetch = fetchval = execute

    def terminate(self) -> None:
        self.ended = True


def lease_on(fake: Fake) -> Lease:
    async def connect(**_: object) -> Fake:
        return fake

    return Lease(connect, Replica("rep_1", "node", "1", "folder"), 10.0)


async def test_a_lease_that_ended_before_it_was_registered_is_confirmed_by_a_beat(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now, alive = 1000.0, list[float]()
    monkeypatch.setattr(lease_module, "time", SimpleNamespace(monotonic=lambda: now))

    async def slowly(sql: str) -> Any:
        nonlocal now
        now += {REGISTER: 9.0, BEAT: 1.0}.get(sql, 0.0)
        return [] if sql == PREDECESSORS else 1

    fake = Fake(slowly)
    lease = lease_on(fake)
    lease.on_alive = alive.append
    await lease.begin()
    assert fake.said[-2:] == [REGISTER, BEAT] and alive[-1] == 1009.0 + ENDED * 10.0 and lease.left_s > 0


async def test_a_burial_that_is_cut_off_waits_for_no_rollback() -> None:
    """It would take as long as a statement may, several leases."""
    asked = asyncio.Event()

    async def silent(sql: str) -> Any:
        if sql == LAST_WRITE:
            asked.set()
            await asyncio.Event().wait()
        return [{"id": "rep_0"}]

    fake = Fake(silent)
    task = asyncio.create_task(lease_on(fake).begin())
    await asked.wait()
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled() and fake.ended and fake.said[-1] == LAST_WRITE


async def test_a_server_that_cannot_begin_leaves_no_connection_open(
    postgres: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, me, connect, made = postgres.database(), Replica("rep_1", "a", "1", "/a"), asyncpg.connect, list[Any]()

    async def noted(*args: Any, **options: Any) -> Any:
        made.append(await connect(*args, **options))
        return made[-1]

    async with asyncio.timeout(LIMIT_S):
        database = await connect(url)
        await database.execute(REGISTER, me.id, "b", "1", "/b", 60.0)  # so that this id is taken
        database.terminate()
        monkeypatch.setattr(asyncpg, "connect", noted)
        with pytest.raises(StoreFailed, match="replicas_pkey"):
            async with PostgresPeers(url, me, 60.0).opened():
                pass
    assert made and all(one.is_closed() for one in made)


async def test_a_new_connection_has_all_of_the_time_that_is_left(postgres: Cluster) -> None:
    """As it has two tries of its own; an answer on one that may be half-open must leave time for another."""
    async with peer_servers(postgres, "a", lease_s=60) as (a,):
        lease = a.peers.lease
        on_one = lease._in_time().when() or 0.0
        lease.disconnect()
        anew = lease._in_time().when() or 0.0
        assert anew - on_one > CONNECT_S / 2
    async with peer_servers(postgres, "a", lease_s=12) as (a,):
        lease = a.peers.lease
        lease.disconnect()
        anew = (lease._in_time().when() or 0.0) - asyncio.get_running_loop().time()
        assert anew >= lease.left_s


async def test_a_server_that_begins_is_not_held_for_frozen(postgres: Cluster) -> None:
    """Until it is registered it has no runs: a slow database must not cost its life, however short the lease is."""
    asked_for, anew = list[tuple[str, float]](), asyncio.Event()
    async with peer_servers(postgres, "a", lease_s=3) as (a,):
        lease, alive, after = a.peers.lease, a.peers.lease.on_alive, a.peers.lease.on_begun

        def noted(until: float) -> None:
            asked_for.append((lease.me.id, until - time.monotonic()))
            alive(until)

        async def has_begun(me: Replica) -> None:
            await after(me)
            anew.set()

        lease.on_alive, lease.on_begun = noted, has_begun
        async with a.connected() as connection:
            await connection.execute("UPDATE replicas SET state = 'gone'")
        lease.beat_soon()
        await anew.wait()
        assert any(seconds > CONNECT_S for replica, seconds in asked_for if replica == lease.me.id)


async def test_a_long_look_around_does_not_put_off_the_next_beat(postgres: Cluster) -> None:
    async with peer_servers(postgres, "a", lease_s=20 * LIMIT_S) as (a,):
        lease, looks, again = a.peers.lease, 0, asyncio.Event()

        async def look(_: Any) -> None:
            nonlocal looks
            looks += 1
            lease.confirmed -= lease.lease_s / BEATS  # as if the look had taken that long
            if looks == 2:
                again.set()

        lease.on_beat = look
        lease.beat_soon()
        await again.wait()
