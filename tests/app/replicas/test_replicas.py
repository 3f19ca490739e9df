"""Replicas on one real PostgreSQL: leases, the fence, locks, questions, and events for watchers elsewhere."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial

import pytest

from app.replicas.peers import Body, Feed, Refusal, ReplicaGone
from app.replicas.postgres.messages import MOST_BYTES
from app.storage.changes import LOST, LeaseLost, StoreFailed
from app.storage.runs import EventRow
from app.storage.state import StateRow
from tests.support.databases.postgres import Cluster
from tests.support.replicas.peers import PeerServer, begin_run, peer_servers

pytestmark = pytest.mark.anyio
LONG = "x" * 3 * MOST_BYTES


def event(seq: int, run: str = "run_1", text: str = "x") -> EventRow:
    return EventRow(run, seq, "text.delta", f'{{"type": "text.delta", "text": "{text}"}}')


async def test_a_lock_has_one_holder_among_all_servers(postgres: Cluster) -> None:
    inside, most = 0, 0

    async def work(server: PeerServer) -> None:
        nonlocal inside, most
        async with server.peers.lock("session", "ses_1"):
            inside += 1
            most = max(most, inside)
            await server.store.write([StateRow("x", "y")])
            inside -= 1

    async with peer_servers(postgres, "a", "b") as both:
        await asyncio.gather(*(work(server) for server in both * 8))
    assert most == 1


async def test_who_starts_a_run_owns_it_and_others_find_out(postgres: Cluster) -> None:
    async with peer_servers(postgres, "a", "b") as (a, b):
        await begin_run(a)
        assert await b.peers.owner_of("run_1") == (a.peers.me, False)
        assert await b.peers.owner_of("run_2") == (None, True)
        assert await b.peers.others() == [a.peers.me]


async def test_a_released_run_is_claimed_once_by_another_server(postgres: Cluster) -> None:
    taken = list[tuple[str, str]]()
    claimed = asyncio.Event()

    async def take_over(server: PeerServer, run: str) -> None:
        taken.append((server.peers.lease.me.node, run))
        claimed.set()

    async with peer_servers(postgres, "a", "b", "c") as (a, b, c):
        await begin_run(a)
        for server in (b, c):
            server.peers.begin_taking(partial(take_over, server))
        await a.peers.release(["run_1"])
        await claimed.wait()
        owner, _ = await a.peers.owner_of("run_1")
        assert owner in (b.peers.me, c.peers.me)
        assert len(taken) == 1


async def test_a_server_that_was_buried_writes_nothing_and_begins_again(postgres: Cluster) -> None:
    async with peer_servers(postgres, "a", "b") as (a, b):
        await begin_run(a)
        before = a.peers.me
        await b.buries(before)
        with pytest.raises(LeaseLost):
            await a.store.write([event(1)])
        a.peers.lease.beat_soon()
        await a.holder.abandoned.wait()
        while a.peers.me == before or a.store.fenced_by == LOST:
            await b.peers.others()  # a server that begins again ends its own connections
        await a.store.write([StateRow("x", "y")])
        assert not await a.store.events("run_1", 0, 9)


async def test_a_write_that_waits_for_the_database_keeps_the_identity_it_began_with(postgres: Cluster) -> None:
    async with peer_servers(postgres, "a", "b") as (a, b):
        await begin_run(a)
        connect, held = a.store.connections.one, asyncio.Event()

        @asynccontextmanager
        async def one() -> AsyncGenerator[object, None]:
            await held.wait()
            async with connect() as connection:
                yield connection

        a.store.connections.one = one  # type: ignore[method-assign]
        writing = asyncio.create_task(a.store.write([event(1)]))
        await asyncio.sleep(0)
        await b.buries(a.peers.me)
        a.store.fenced_by = b.peers.me  # as after it has begun again
        held.set()
        with pytest.raises(LeaseLost):
            await writing
        assert not await b.store.events("run_1", 0, 9)


@pytest.mark.parametrize("text", ["short", LONG])
async def test_a_question_is_answered_once_whatever_its_length(postgres: Cluster, text: str) -> None:
    asked = list[str]()

    async def echo(body: Body) -> object:
        asked.append(body["text"])
        return {"text": body["text"]}

    async with peer_servers(postgres, "a", "b") as (a, b):
        b.peers.answerers["echo"] = echo
        assert await a.peers.ask(b.peers.me, "echo", {"text": text}) == {"text": text}
    assert asked == [text]


async def test_a_refusal_and_a_failure_come_back_as_what_they_are(postgres: Cluster) -> None:
    async def refuse(_: Body) -> object:
        raise Refusal("no", "Not now.", {"why": 1})

    async def fail(_: Body) -> object:
        raise StoreFailed("The disk is full.")

    async with peer_servers(postgres, "a", "b") as (a, b):
        b.peers.answerers.update(refuse=refuse, fail=fail)
        with pytest.raises(Refusal, match="Not now") as refused:
            await a.peers.ask(b.peers.me, "refuse", {})
        assert (refused.value.name, refused.value.fields) == ("no", {"why": 1})
        with pytest.raises(Refusal, match="disk is full"):
            await a.peers.ask(b.peers.me, "fail", {})
        with pytest.raises(Refusal, match="does not know the question"):
            await a.peers.ask(b.peers.me, "of a later version", {})


async def test_a_question_to_a_server_that_has_gone_does_not_wait_for_ever(postgres: Cluster) -> None:
    async with peer_servers(postgres, "a") as (a,):
        with pytest.raises(ReplicaGone):
            await a.peers.ask("rep_gone", "echo", {})


async def test_a_question_that_was_lost_is_sent_again(postgres: Cluster) -> None:
    answered = 0

    async def answer(_: Body) -> object:
        nonlocal answered
        answered += 1
        return answered

    async with peer_servers(postgres, "a", "b") as (a, b):
        b.peers.answerers["count"] = answer
        send, lost = a.peers.messages.send, list[str]()

        def lossy(channel: str, payload: str) -> None:
            if not lost:
                lost.append(payload)
            else:
                send(channel, payload)

        a.peers.messages.send = lossy  # type: ignore[method-assign]
        assert await a.peers.ask(b.peers.me, "count", {}) == 1
    assert lost and answered == 1


async def test_rows_reach_a_watcher_at_another_server(postgres: Cluster) -> None:
    async def here(_: Body) -> object:
        return True

    async with peer_servers(postgres, "a", "b") as (a, b):
        await begin_run(a)
        b.peers.answerers["here"] = here
        assert await a.peers.ask(b.peers.me, "here", {})  # it listens: what was sent before would be lost
        with b.peers.following("run_1") as feed:
            while not a.peers.watching._elsewhere:
                await a.peers.others()
            a.peers.publish([event(1), event(2)])
            while not (rows := feed.take(0)):  # it also wakes, without any, when its server begins to listen
                feed.news.clear()
                await feed.news.wait()
            assert [row.seq for row in rows] == [1, 2]
            feed.news.clear()
            a.peers.publish([event(3, text=LONG)])
            await feed.news.wait()
            assert feed.take(2) == [], "too long for a message: the table has it"


def test_a_watcher_takes_no_rows_behind_a_gap() -> None:
    feed = Feed(rows=[event(2), event(3), event(5)])
    assert [row.seq for row in feed.take(1)] == [2, 3]
    assert feed.take(3) == [], "event 4 was lost on the way: the table has it, and 5"
