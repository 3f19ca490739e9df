"""What servers of one database hold in memory follows each other's changes: on PostgreSQL, with two servers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest
from msgspec import Struct

from app.core.notifier import Notifier
from app.replicas.changes import ALL, EXACT, KINDS, Parts, joined, kinds_of
from app.replicas.duty import attended
from app.replicas.peers import Refusal, ReplicaGone
from app.replicas.sharing import Sharing
from app.storage.changes import Change, StoreFailed
from app.storage.endpoints import EndpointRow
from app.storage.kill_switch import NAME, PAUSED, RUNNING, KillSwitch
from app.storage.memories import MemoryDeleted
from app.storage.state import StateRow
from app.storage.tokens import TokenRevoked
from tests.support.databases.postgres import Cluster

pytestmark = pytest.mark.anyio
LIMIT_S = 60


class Server(Struct):
    """One server's part of what is tested here."""

    store: Any
    peers: Any
    sharing: Sharing
    notifier: Notifier
    switch: KillSwitch
    heard: list[tuple[str, Parts]]
    news: asyncio.Event

    async def hears(self, kind: str, parts: Parts = ALL) -> None:
        """Wait until it has read this anew."""
        async with asyncio.timeout(LIMIT_S):
            while (kind, parts) not in self.heard:
                self.news.clear()
                await self.news.wait()


@asynccontextmanager
async def server(url: str, node: str) -> AsyncGenerator[Server, None]:
    from app.replicas.postgres.lease import Replica, new_id
    from app.replicas.postgres.peers import PostgresPeers
    from app.storage.postgres.store import PostgresStore

    async with AsyncExitStack() as stack:
        store = await PostgresStore.open(url)
        stack.push_async_callback(store.close)
        peers = PostgresPeers(url, Replica(new_id(), node, "1", node), 10.0)
        await stack.enter_async_context(peers.opened())
        notifier, sharing = Notifier(), Sharing(peers, peers.messages)
        await stack.enter_async_context(sharing.following(notifier, flushed))
        switch, heard, news = KillSwitch(store), list[tuple[str, Parts]](), asyncio.Event()
        await switch.load()

        def reload(kind: str) -> Callable[[Parts], Awaitable[None]]:
            async def work(parts: Parts) -> None:
                heard.append((kind, parts))
                news.set()

            return work

        sharing.reloads |= {kind: reload(kind) for kind in KINDS.values()}

        async def reload_switch(_: Parts) -> None:
            await switch.reload()

        sharing.reloads["state paused"] = reload_switch
        store.on_written = sharing.written
        yield Server(store, peers, sharing, notifier, switch, heard, news)


async def flushed() -> None:
    """All is stored."""


@asynccontextmanager
async def two_servers(postgres: Cluster) -> AsyncGenerator[tuple[Server, Server], None]:
    url = postgres.database()
    async with server(url, "a") as one, server(url, "b") as other:
        for each in (one, other):
            await each.sharing.ask_others("reload", {"kinds": []})  # both listen
        yield one, other


async def test_a_change_at_one_server_is_read_anew_at_the_other(postgres: Cluster) -> None:
    async with two_servers(postgres) as (one, other):
        await one.store.write([EndpointRow("e", "{}", "admin", 1.0)])
        await other.hears("endpoints")
        await one.store.write([MemoryDeleted("mem_1", "anna"), MemoryDeleted("mem_2", "ben")])
        await other.hears("vectors", frozenset({"anna", "ben"}))
        assert all(parts == ALL for kind, parts in other.heard if kind == "endpoints")


async def test_a_pause_ends_once_every_server_has_paused(postgres: Cluster) -> None:
    async with two_servers(postgres) as (one, other):
        assert [each.switch.paused for each in (one, other)] == [False, False]
        await one.switch.set(paused=True)
        assert [each.switch.paused for each in (one, other)] == [True, True]
        await other.switch.set(paused=False)
        assert [each.switch.paused for each in (one, other)] == [False, False]


async def test_a_server_that_cannot_follow_a_pause_is_named(postgres: Cluster) -> None:
    async with two_servers(postgres) as (one, other):

        async def fail(_: Parts) -> None:
            raise StoreFailed("The disk is full.")

        other.sharing.reloads["state paused"] = fail
        with pytest.raises(StoreFailed, match=other.peers.me):
            await one.switch.set(paused=True)
        assert one.switch.paused


async def test_a_pause_that_could_not_be_stored_is_not_undone_by_another_server(postgres: Cluster) -> None:
    async with two_servers(postgres) as (one, other):
        write, one.store.write = one.store.write, failing
        with pytest.raises(StoreFailed):
            await one.switch.set(paused=True)
        one.store.write = write
        await other.store.write([StateRow(NAME, RUNNING)])
        assert one.switch.paused
        await one.switch.set(paused=False)
        await other.store.write([StateRow(NAME, PAUSED)])
        assert one.switch.paused


async def failing(_: object) -> None:
    raise StoreFailed("The database is away.")


async def test_what_one_server_notifies_wakes_the_subscribers_of_another(postgres: Cluster) -> None:
    async with two_servers(postgres) as (one, other):
        with other.notifier.subscribed("anna") as anna, other.notifier.subscribed("ben") as ben:
            one.notifier.notify("anna")
            await asyncio.wait_for(anna.wait(), LIMIT_S)
            assert not ben.is_set()
            for number in range(100):  # too many to be named
                one.notifier.notify(f"ses_{number}")
            await asyncio.wait_for(ben.wait(), LIMIT_S)


async def test_all_is_read_anew_after_messages_may_have_been_lost(postgres: Cluster) -> None:
    async with two_servers(postgres) as (_, other):
        with other.notifier.subscribed("anna") as anna:
            other.heard.clear()
            other.peers.messages._listener.terminate()  # as by a restart of the database
            await other.hears("endpoints")
            await other.hears("schedules")
            await asyncio.wait_for(anna.wait(), LIMIT_S)


async def test_a_reload_that_fails_is_tried_again(postgres: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.replicas.sharing.AGAIN_S", 0.0)
    async with two_servers(postgres) as (one, other):
        works, tried = other.sharing.reloads["endpoints"], list[Parts]()

        async def fails_once(parts: Parts) -> None:
            other.sharing.reloads["endpoints"] = works
            tried.append(parts)
            raise StoreFailed("The database is away.")

        other.heard.clear()
        other.sharing.reloads["endpoints"] = fails_once
        await one.store.write([EndpointRow("e", "{}", "admin", 1.0)])
        await other.hears("endpoints")
        assert tried == [ALL]


async def test_a_lock_of_all_servers_reads_anew_what_its_holder_changes(postgres: Cluster) -> None:
    """Two servers that each add one to what they hold in memory lose none."""
    async with two_servers(postgres) as (one, other):

        async def add(server: Server, times: int) -> None:
            held = 0

            async def reload() -> None:
                nonlocal held
                held = int(await server.store.state("count") or 0)

            lock = server.peers.changing("count", reload)
            for _ in range(times):
                async with lock:
                    held += 1
                    await server.store.write([StateRow("count", str(held))])

        await asyncio.gather(add(one, 10), add(other, 10))
        assert await one.store.state("count") == "20"


def test_kinds_of_changes_are_joined() -> None:
    changes: list[Change] = [StateRow(NAME, PAUSED), TokenRevoked("t", 1.0), MemoryDeleted("m", "anna")]
    kinds = kinds_of(changes)
    assert kinds == {"state paused": ALL, "tokens": ALL, "vectors": frozenset({"anna"})}
    assert {"state paused", "tokens"} <= EXACT
    assert joined(kinds, {"vectors": ALL})["vectors"] == ALL
    assert joined(kinds, {"vectors": frozenset({"ben"})})["vectors"] == {"anna", "ben"}
    assert kinds_of([]) == {}


class Absent:
    """Replicas of which the other one refuses or has stopped."""

    def __init__(self, error: Exception) -> None:
        self.me = "rep_0"
        self.answerers: dict[str, Any] = {}
        self._error = error

    async def others(self) -> list[str]:
        return ["rep_1"]

    async def ask(self, replica: str, question: str, body: object) -> None:
        raise self._error


class Silent:
    def __init__(self) -> None:
        self.handlers: dict[str, Any] = {}
        self.on_gap: list[Callable[[], None]] = []

    def send_all(self, kind: str, **body: Any) -> None:
        pass


@pytest.mark.parametrize("error", [ReplicaGone("gone"), Refusal("unknown_question", "It is just starting.")])
async def test_a_server_that_has_stopped_or_is_starting_is_not_waited_for(error: Exception) -> None:
    sharing = Sharing(Absent(error), Silent())  # type: ignore[arg-type]
    async with sharing.following(Notifier(), flushed):
        await sharing.written([StateRow(NAME, PAUSED)])


class Attending:
    """Counts in `log` when it begins and rests; `news` is set then."""

    def __init__(self, name: str, log: list[str], news: asyncio.Event) -> None:
        self.name, self.log, self.news = name, log, news

    async def begin(self) -> None:
        self.log.append(f"{self.name} begins")
        self.news.set()

    async def rest(self) -> None:
        self.log.append(f"{self.name} rests")
        self.news.set()


async def test_a_duty_is_one_servers_and_then_the_next_ones(postgres: Cluster) -> None:
    log, news = list[str](), asyncio.Event()

    async def until(line: str) -> None:
        async with asyncio.timeout(LIMIT_S):
            while line not in log:
                news.clear()
                await news.wait()

    url = postgres.database()
    async with server(url, "b") as other:
        async with server(url, "a") as one, attended(one.peers, "duty", Attending("a", log, news)):
            one.peers.lease.beat_soon()
            await until("a begins")
            waiting = asyncio.create_task(attend(other, Attending("b", log, news)))
            for _ in range(3):  # it looks, and finds that it is another server's
                other.peers.lease.beat_soon()
                await other.sharing.ask_others("reload", {"kinds": []})
        other.peers.lease.beat_soon()
        await until("b begins")
        assert log == ["a begins", "a rests", "b begins"]
        waiting.cancel()
        await asyncio.wait([waiting])
        assert log[3:] == ["b rests"]


async def attend(server: Server, attending: Attending) -> None:
    async with attended(server.peers, "duty", attending):
        await asyncio.Event().wait()
