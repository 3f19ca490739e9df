"""Budgets, places and rates of servers that share a database: not one over, and what one settles all see."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import partial
from pathlib import Path

import pytest

from app.budget.budgets import Ledger, Reservation
from app.budget.kinds import TOKENS, TOOL_SECONDS, BudgetSpent
from app.budget.places import SharedPlaces
from app.budget.tallies import StoredTallies
from app.replicas.peers import Alone, Peers
from app.storage.changes import Change
from app.storage.postgres.store import PostgresStore
from app.storage.runs import RunEnded, RunRow
from app.storage.sqlite.store import SQLiteStore
from app.storage.store import Store
from app.transcript.run_request import MAX_LINE
from tests.support.budgets import with_budget
from tests.support.databases.postgres import DATABASES

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("database")]
SERVERS = 3
REPLICA = "INSERT INTO replicas (id, node, version, lease_until) VALUES ($1, 'n', '1', clock_timestamp())"
GONE = "UPDATE replicas SET state = 'gone' WHERE id = $1"


class Server:
    """A ledger as one server has it; `flush` writes what it has recorded."""

    def __init__(self, store: Store, peers: Peers, number: int) -> None:
        self.store, self.id = store, f"rep_{number}"
        self.rows: list[Change] = []
        self.seen: list[tuple[float, float]] = []
        tallies = StoredTallies(store, self.flush) if isinstance(store, PostgresStore) else None
        places = SharedPlaces(store, peers) if tallies else None
        self.ledger = Ledger(store, tallies=tallies, places=places, watch=lambda *seen: self.seen.append(seen[3:]))

    async def flush(self) -> None:
        rows = self.rows[:]
        self.rows.clear()
        await self.store.write(rows)

    async def reserve(self, limit: int, least: float, most: float) -> Reservation:
        return await self.ledger.reserve(with_budget(tokens_per_month=limit), TOKENS, self.rows.append, most, least)

    async def figures(self, limit: int) -> tuple[float, float]:
        usage = (await self.ledger.usage(with_budget(tokens_per_month=limit)))["tokens_per_month"]
        return usage["used"], usage["reserved"]


@asynccontextmanager
async def servers(folder: Path) -> AsyncGenerator[list[Server], None]:
    """Three servers on one database of PostgreSQL, or the one that SQLite may have."""
    async with asyncio.timeout(60), AsyncExitStack() as stack:
        if (url := DATABASES.url_of(folder)) is None:
            alone = await SQLiteStore.open(folder / "test.db")
            stack.push_async_callback(alone.close)
            yield [Server(alone, Alone(), 0)]
            return
        made = []
        for number in range(SERVERS):
            store = await PostgresStore.open(url)
            stack.push_async_callback(store.close)
            peers = await stack.enter_async_context(locking(url))
            async with store.transaction() as connection:
                await connection.execute(REPLICA, f"rep_{number}")
            store.fenced_by = f"rep_{number}"
            made.append(Server(store, peers, number))
        yield made


@asynccontextmanager
async def locking(url: str) -> AsyncGenerator[Peers, None]:
    import asyncpg

    from app.replicas.postgres.locks import Locks

    class Locking(Alone):
        """A server that has others only for its locks."""

    async with asyncpg.create_pool(url, min_size=0, max_size=4) as pool:
        made = Locking()
        made.lock = Locks(pool).lock  # type: ignore[method-assign]
        yield made


async def charged(server: Server) -> float:
    """The amount in the table, reservations included."""
    return await server.store.usage("ann", "tokens", (await server.ledger._tallies.known("ann", TOKENS)).period)


async def test_one_budget_at_all_servers_is_exact(tmp_path: Path) -> None:
    limit = 100
    async with servers(tmp_path) as members:
        wishes = (one.reserve(limit, 7, 7) for one in members * 8 for _ in range(24 // len(members)))
        done = await asyncio.gather(*wishes, return_exceptions=True)
        held = [one for one in done if isinstance(one, Reservation)]
        assert [one.amount for one in held] == [7] * (limit // 7)
        assert all(isinstance(one, BudgetSpent) for one in done if one not in held)
        assert [await one.figures(limit) for one in members] == [(0, 98)] * len(members)
        last = await members[-1].reserve(limit, 1, 50)
        assert last.amount == 2 == last.most
        with pytest.raises(BudgetSpent) as spent:
            await members[0].reserve(limit, 1, 1)
        assert "Running work has reserved 100 more" in str(spent.value)
        last.settle(1)
        for one in held:
            one.settle(5)
        for server in members:
            await server.flush()
        assert [await one.figures(limit) for one in members] == [(71, 0)] * len(members)
        assert await charged(members[0]) == 71
        with pytest.raises(BudgetSpent):
            await members[0].reserve(limit, 30, 30)


@pytest.mark.parametrize("seed", range(3))
async def test_whatever_servers_take_settle_and_leave_behind_adds_up(tmp_path: Path, seed: int) -> None:
    chance, limit = random.Random(seed), 5000
    used = lost = 0.0

    async def work(server: Server) -> None:
        """Some uses, one after the other; the last is cut off with its server."""
        nonlocal used, lost
        for number in range(25):
            least = chance.randrange(1, 100)
            task = asyncio.create_task(server.reserve(limit, least, least * chance.randrange(1, 9)))
            if chance.randrange(4) == 0:
                await asyncio.sleep(0)
                task.cancel()
            with suppress(BudgetSpent, asyncio.CancelledError):
                held = await task
                if chance.randrange(3) == 0:
                    with suppress(BudgetSpent):
                        await held.take(1, 200)
                assert await charged(server) <= limit
                if number == 24:
                    lost += held.amount
                    return
                part = held.amount * chance.random()
                before = (await server.ledger._tallies.known("ann", TOKENS)).used
                held.settle(part)
                used += (await server.ledger._tallies.known("ann", TOKENS)).used - before
            if chance.randrange(2):
                await server.flush()

    async with servers(tmp_path) as members:
        await asyncio.gather(*map(work, members))
        for server in members:
            while server.rows or getattr(server.ledger._tallies, "_asking", None):
                await asyncio.sleep(0)  # a cancelled one that is given back
                await server.flush()
        assert await charged(members[0]) == pytest.approx(used + lost, abs=1e-6) and used + lost <= limit
        assert (await members[0].figures(limit))[1] == pytest.approx(lost, abs=0.001)
        if len(members) > 1:  # a dead server refunds nothing, and holds nothing that may be free again
            for gone in members[1:]:
                async with members[0].store.transaction() as connection:  # type: ignore[attr-defined]
                    await connection.execute(GONE, gone.id)
            assert sum(await members[0].figures(limit)) == pytest.approx(used + lost, abs=0.001)


async def test_a_server_knows_of_its_own_settlements_before_it_refuses(tmp_path: Path) -> None:
    async with servers(tmp_path) as members:
        for _ in range(20):
            held = await members[0].reserve(1000, 900, 900)
            held.settle(1)
        assert await members[0].figures(1000) == (20, 0)


async def test_a_budget_that_is_nearly_spent_is_seen_wherever_it_was_used(tmp_path: Path) -> None:
    async with servers(tmp_path) as members:
        first, last = members[0], members[-1]
        (await first.reserve(100, 40, 40)).settle(40)
        await first.flush()
        (await last.reserve(100, 50, 50)).settle(50)
        assert last.seen[-1] == (90, 100)


async def test_without_a_limit_nothing_is_reserved_and_all_is_counted(tmp_path: Path) -> None:
    async with servers(tmp_path) as members:
        for server in members:
            held = await server.ledger.reserve(with_budget(), TOOL_SECONDS, server.rows.append, 30)
            assert held.amount == 30 and not server.rows
            held.settle(2)
            await server.flush()
        usage = (await members[-1].ledger.usage(with_budget()))["tool_seconds_per_day"]
    assert (usage["used"], usage["reserved"]) == (2 * len(members), 0)


def run_of(session: str, number: object) -> RunRow:
    return RunRow(f"run_{session}_{number}", session, "ann", "m", "queued", 1.0)


async def test_runs_at_a_time_are_counted_over_all_servers(tmp_path: Path) -> None:
    limit = 4
    begun: list[str] = []

    async def begin(server: Server, session: str, number: object = 0) -> None:
        async with server.ledger.entering(with_budget(runs=limit), session):
            await server.store.write([run_of(session, number)])
            begun.append(session)

    async with servers(tmp_path) as members:
        starts = [partial(begin, one, f"s{number}") for number, one in enumerate(members * 12)]
        done = await asyncio.gather(*(start() for start in starts), return_exceptions=True)
        refused = [one for one in done if isinstance(one, BudgetSpent)]
        assert len(begun) == limit and len(refused) == len(done) - limit
        first, last = members[0], members[-1]
        assert (await last.ledger.usage(with_budget(runs=limit)))["runs"] == {"used": limit, "limit": limit}
        for number in range(1, MAX_LINE + 1):  # in the queue of a busy session, wherever they are asked for
            await begin(last, begun[0], number)
        with pytest.raises(BudgetSpent, match="is the maximum"):
            await begin(first, begun[0], "more")
        owner = members[int(begun[0][1:]) % len(members)]
        await owner.store.write([RunEnded(f"run_{begun[0]}_0", "answered", 2.0)])
        owner.ledger.places.leave("ann", begun[0])
        await begin(last, begun[0], "more")
        with pytest.raises(ValueError, match="broken"):
            async with first.ledger.entering(with_budget(runs=100), "other"):
                raise ValueError("broken")
        assert (await first.ledger.usage(with_budget()))["runs"]["used"] == limit
