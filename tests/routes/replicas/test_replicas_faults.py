"""Faults of servers that share a database, and of the way to it: runs go on, and each client sees every event once."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from contextlib import aclosing, asynccontextmanager, suppress
from pathlib import Path

import httpx2
import pytest

from app.core.events import TERMINAL
from app.replicas.postgres.lease import ACTS, ENDED
from tests.support.databases.database_link import database_link
from tests.support.databases.postgres import Cluster, cluster
from tests.support.models.chatting import DONE, chunk, says
from tests.support.models.upstream import Act, hang, stream, upstream
from tests.support.nightly import only_at_night
from tests.support.replicas.clients import Load, Run, calling, clients, slowly
from tests.support.replicas.nginx import needs_nginx
from tests.support.replicas.servers import AGAIN_S, Balancer, Replica, Replicas, passed, three_replicas
from tests.support.server.serving import events_of

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(300)]
LIMIT_S = 240
CLIENTS = 6
KILLED_AFTER_S = 30  # by orchestrators
LEASE_S = 12  # 0.9 s of it are for a server that wakes up
HURRIED = {"DRAGOMAN_LEASE_S": "6"}
UNHURRIED = {"DRAGOMAN_LEASE_S": "15"}  # 2.25 s of it are for the undertaker's kill, and for tools to end
ENDLESS = {"DRAGOMAN_LEASE_S": "600"}  # it holds for as long as a test takes
FAST, SLOW = {"TESTS_CLOCK_S": "3600"}, {"TESTS_CLOCK_S": "-3600"}
TICKS = "```bash\nwhile :; do echo x >> ticks.txt; sleep 0.05; done\n```\n"
BEAT = "SELECT lease_until FROM replicas WHERE node = $1 ORDER BY started DESC LIMIT 1"
NEWEST = "SELECT id, state FROM replicas WHERE node = $1 ORDER BY started DESC LIMIT 1"
HANG_UP = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'dragoman %'"


async def newest(replicas: Replicas, node: str) -> tuple[object, ...]:
    """The id and state of the replica that a node was last."""
    [row] = await replicas.query(NEWEST, node)
    return row


async def until_newest_is(replicas: Replicas, node: str, state: str) -> None:
    await replicas.until(lambda rows: rows[0][1] == state, NEWEST, node)


async def is_ready(one: Replica) -> bool:
    with suppress(httpx2.TransportError):
        return (await one.client.get("/readyz")).status_code == 200
    return False


@asynccontextmanager
async def kept_up() -> AsyncGenerator[Callable[[Replica], None], None]:
    """Yield the function that takes a server which is to be started again, until the block ends, when it is killed."""
    async with asyncio.TaskGroup() as group:
        tasks = list[asyncio.Task[None]]()
        yield lambda one: tasks.append(group.create_task(one.restart_whenever_it_ends()))
        for task in tasks:
            task.cancel()


async def until_resumed(run: Run, load: Load) -> None:
    while "resumed" not in run.codes():
        await load.more_events(1)


@asynccontextmanager
async def one_run(
    folder: Path, url: str, *acts: Act, environ: Mapping[str, str] = HURRIED
) -> AsyncGenerator[tuple[Replicas, Load, Run, Replica], None]:
    """A run at one of three servers whose client comes by another, once something has come of it."""
    async with asyncio.timeout(LIMIT_S), upstream(*acts, chats=True) as model:
        async with three_replicas(folder, url, model.base_url, environ=environ) as replicas:
            owner = replicas.members[0]
            begun = await owner.client.post("/chat", json={"message": "Go"}, headers={"prefer": "respond-async"})
            load = Load(replicas.members[1].client)
            load.runs.append(run := Run(id=begun.json()["run"]))
            following = asyncio.create_task(load.see_to_its_end(run))
            await load.more_events(2)
            yield replicas, load, run, owner
            await following
            run.check()


async def test_a_server_cut_off_from_its_database_stops_by_itself_and_comes_back(
    tmp_path: Path, postgres: Cluster
) -> None:
    async with asyncio.timeout(LIMIT_S), database_link(postgres.port) as link, calling() as model:
        url = postgres.database()
        each = [{"DRAGOMAN_DATABASE_URL": link.url(url)}, FAST, SLOW]
        async with three_replicas(tmp_path, url, model.base_url, environ=HURRIED, each=each) as replicas:
            first, *others = replicas
            async with kept_up() as keep_up, clients(replicas, CLIENTS) as load:
                for one in others:
                    keep_up(one)
                link.deaf = True
                await load.more_events(60)
                link.cut()
                await until_newest_is(replicas, first.node, "gone")
                link.mend()
                keep_up(first)  # it is killed if it did not end all in time
                await until_newest_is(replicas, first.node, "up")
                run = await load.follow(first.client)
                assert run.seen[-1]["reason"] == "answered"
                while not await is_ready(first):
                    await passed(AGAIN_S)
    assert link.dropped
    load.check(tmp_path)
    assert load.ends == {"answered"}
    assert set(load.refusals) <= {(503, "storage_failed")}


async def test_readers_of_a_server_that_is_cut_off_from_its_database_turn_to_another(
    tmp_path: Path, postgres: Cluster
) -> None:
    """A client that returns there would wait for a minute, although the run goes on at another server."""
    go_on = asyncio.Event()
    async with asyncio.timeout(LIMIT_S), database_link(postgres.port) as link:
        async with upstream(slowly(words_until(go_on), 0.1), chats=True) as model:
            url = postgres.database()
            each = [{}, {"DRAGOMAN_DATABASE_URL": link.url(url)}]
            async with three_replicas(tmp_path, url, model.base_url, environ=HURRIED, each=each, count=2) as replicas:
                owner, cut = replicas
                begun = await owner.client.post("/chat", json={"message": "Go"}, headers={"prefer": "respond-async"})
                path = f"/runs/{begun.json()['run']}/events"
                async with cut.client.stream("GET", path) as response, aclosing(events_of(response)) as events:
                    assert (await anext(events))["type"] == "run.started"
                    link.cut()
                    seen = [event async for event in events]
                assert not [one for one in seen if one["type"] in TERMINAL]
                with pytest.raises((httpx2.RemoteProtocolError, httpx2.ReadError)):
                    await cut.client.get(path)
                go_on.set()
                assert "run.finished" in (await owner.client.get(path)).text


async def test_runs_go_on_when_their_database_is_restarted_killed_or_ends_connections(tmp_path: Path) -> None:
    with cluster() as postgres:
        async with asyncio.timeout(LIMIT_S), calling() as model:
            url = postgres.database()
            async with three_replicas(tmp_path, url, model.base_url, environ=ENDLESS) as replicas:
                async with clients(replicas, CLIENTS) as load:
                    for _ in range(5):
                        await load.more_events(20)
                        await replicas.query(HANG_UP)
                    for mode in ("fast", "immediate"):
                        await load.more_events(40)
                        await asyncio.to_thread(postgres.stop, mode)
                        await asyncio.to_thread(postgres.start)
                assert all(one.process.returncode is None for one in replicas)
    load.check(tmp_path)
    assert load.ends == {"answered"}
    assert not load.takeovers, "the owner stays while its lease holds"
    assert set(load.refusals) <= {(503, "storage_failed")}


async def test_a_restart_of_the_database_behind_a_firewall_costs_no_run_its_owner(tmp_path: Path) -> None:
    """No server learns that its connections have ended: they are half-open, as those made while it was away."""
    with cluster() as postgres:
        async with asyncio.timeout(LIMIT_S), database_link(postgres.port) as link, calling(12) as model:
            url = postgres.database()
            behind = {"DRAGOMAN_DATABASE_URL": link.url(url)}
            async with three_replicas(tmp_path, url, model.base_url, environ=behind) as replicas:
                async with clients(replicas, CLIENTS) as load:
                    await load.more_events(60)
                    link.silent = True
                    await asyncio.to_thread(postgres.stop)
                    await passed(1.0)
                    await asyncio.to_thread(postgres.start)
                    await load.more_events(300)
                print(load.figures())  # `pytest -rP` shows it
    load.check(tmp_path)
    assert load.ends == {"answered"} and not load.takeovers


async def test_a_server_ends_in_its_time_of_grace_whatever_becomes_of_its_database(
    tmp_path: Path, postgres: Cluster
) -> None:
    """The database is away, or its connections are half-open; most of it is waiting: both at once."""
    async with asyncio.timeout(LIMIT_S), asyncio.TaskGroup() as group:
        for is_back in (True, False):
            (folder := tmp_path / str(is_back)).mkdir()
            group.create_task(end_in_time(folder, postgres, is_back=is_back))


async def end_in_time(folder: Path, postgres: Cluster, *, is_back: bool) -> None:
    """Orchestrators kill after 30 s what has not ended."""
    model = upstream(stream(says("One "), then=hang), chats=True)
    async with database_link(postgres.port) as link, model as upstreams:
        url = postgres.database()
        behind = {
            "DRAGOMAN_DATABASE_URL": link.url(url),
            "DRAGOMAN_SHUTDOWN_GRACE_S": "1",
            "DRAGOMAN_LEASE_S": "60",
        }
        async with three_replicas(folder, url, upstreams.base_url, environ=behind, count=1) as replicas:
            [one] = replicas
            load = Load(one.client)
            following = asyncio.create_task(load.follow())
            await load.more_events(2)
            link.silent = True
            link.cut()
            if is_back:
                link.mend()
            one.terminate()
            async with asyncio.timeout(KILLED_AFTER_S):
                assert await one.process.wait() == 0
            following.cancel()


def words_until(enough: asyncio.Event) -> Iterator[str]:
    """The parts of a reply that goes on until there is enough of it."""
    while not enough.is_set():
        yield says("word ")
    yield chunk(finish="stop")
    yield DONE


async def test_a_server_that_was_frozen_for_less_than_its_lease_keeps_its_runs(
    tmp_path: Path, postgres: Cluster
) -> None:
    """It wakes up when it may not act any more, and asks before it gives up: nobody has buried it."""
    has_woken = asyncio.Event()
    model = upstream(slowly(words_until(has_woken), 0.1), chats=True)
    async with asyncio.timeout(LIMIT_S), model as upstreams:
        url, environ = postgres.database(), {"DRAGOMAN_LEASE_S": str(LEASE_S)}
        async with three_replicas(tmp_path, url, upstreams.base_url, environ=environ, count=2) as replicas:
            owner, other = replicas
            begun = await owner.client.post("/chat", json={"message": "Go"}, headers={"prefer": "respond-async"})
            load = Load(other.client)
            load.runs.append(run := Run(id=begun.json()["run"]))
            following = asyncio.create_task(load.see_to_its_end(run))
            await load.more_events(2)
            before = await newest(replicas, owner.node)
            beat = await replicas.query(BEAT, owner.node)
            beat = await replicas.until(lambda rows: rows != beat, BEAT, owner.node)
            owner.stop()
            await passed((ACTS + ENDED) / 2 * LEASE_S)
            owner.go_on()
            await replicas.until(lambda rows: rows != beat or owner.process.returncode is not None, BEAT, owner.node)
            has_woken.set()
            await following
            assert await newest(replicas, owner.node) == before and owner.process.returncode is None
    run.check()
    assert run.seen[-1]["reason"] == "answered" and "resumed" not in run.codes()


async def test_a_tool_of_a_frozen_server_is_dead_before_another_goes_on(tmp_path: Path, postgres: Cluster) -> None:
    acts = stream(says(TICKS), chunk(finish="stop"), DONE), stream(says("Done."), chunk(finish="stop"), DONE)
    ticks = tmp_path / "work" / "ticks.txt"
    async with one_run(tmp_path, postgres.database(), *acts, environ=UNHURRIED) as (_, load, run, owner):
        while not ticks.exists():
            await load.more_events(1)
        owner.stop()
        await until_resumed(run, load)
        size = ticks.stat().st_size
        assert await owner.process.wait() == -signal.SIGKILL
    assert ticks.stat().st_size == size
    assert run.seen[-1]["reason"] == "answered" and len(run.of("tool.started")) == 1


@only_at_night
async def test_a_machine_that_was_frozen_past_its_lease_writes_nothing_more(tmp_path: Path, postgres: Cluster) -> None:
    acts = stream(says("One "), then=hang), stream(says("two."), chunk(finish="stop"), DONE)
    async with one_run(tmp_path, postgres.database(), *acts) as (replicas, load, run, owner):
        before, _ = await newest(replicas, owner.node)
        [keeper] = children(owner.process.pid)
        os.kill(keeper, signal.SIGSTOP)
        owner.stop()
        await until_resumed(run, load)
        owner.go_on()
        ended = owner.process
        await replicas.until(lambda rows: rows[0][0] != before or ended.returncode is not None, NEWEST, owner.node)
        assert owner.process.returncode is None
        os.kill(keeper, signal.SIGCONT)
        assert (await owner.client.get(f"/runs/{run.id}")).json()["state"] in ("running", "answered")
    assert run.seen[-1]["reason"] == "answered"


def children(pid: int) -> list[int]:
    return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


@only_at_night
@needs_nginx
@pytest.mark.parametrize("balancer", ["nginx"])
async def test_servers_are_upgraded_one_by_one_and_no_run_is_lost(
    tmp_path: Path, postgres: Cluster, balancer: Balancer
) -> None:
    async with asyncio.timeout(LIMIT_S), calling() as model:
        url, quick = postgres.database(), {"DRAGOMAN_SHUTDOWN_GRACE_S": "0", **HURRIED}
        async with three_replicas(tmp_path, url, model.base_url, balancer=balancer, environ=quick) as replicas:
            async with clients(replicas, CLIENTS) as load:
                for one in replicas:
                    await load.more_events(30)
                    one.terminate()
                    await one.restart()
    load.check(tmp_path)
    assert load.ends == {"answered"}
    assert set(load.refusals) <= {(503, "stopping"), (503, "no_replica")}, "to be sent again"
