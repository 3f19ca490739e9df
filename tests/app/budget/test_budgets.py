"""Budgets: taken before, settled after; parallel runs cannot overdraw, and what was settled adds up."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.budget.budgets import Ledger, Reservation
from app.budget.kinds import TOKENS, TOOL_SECONDS, BudgetKind, BudgetSpent
from app.budget.tallies import MemoryTallies
from app.storage.changes import Change
from app.storage.principals import Budget
from app.storage.sqlite.store import SQLiteStore
from app.storage.usage import UsageAdded
from tests.support.budgets import keep_nothing, with_budget
from tests.support.databases.postgres import opened

pytestmark = pytest.mark.anyio


def at(*moment: int) -> float:
    return datetime(*moment, tzinfo=UTC).timestamp()  # type: ignore[arg-type, misc]


@pytest.mark.parametrize(
    ("kind", "moment", "period", "reset"),
    [
        (TOKENS, at(2026, 11, 22, 12), "2026-11", at(2026, 12, 1)),
        (TOKENS, at(2026, 12, 31, 23, 59, 59), "2026-12", at(2027, 1, 1)),
        (TOKENS, at(2028, 1, 31), "2028-01", at(2028, 2, 1)),
        (TOKENS, at(2028, 2, 29), "2028-02", at(2028, 3, 1)),
        (TOKENS, at(2026, 12, 1), "2026-12", at(2027, 1, 1)),
        (TOOL_SECONDS, at(2026, 11, 22, 23, 59, 59), "2026-11-22", at(2026, 11, 23)),
        (TOOL_SECONDS, at(2026, 12, 31), "2026-12-31", at(2027, 1, 1)),
        (TOOL_SECONDS, at(2028, 2, 28), "2028-02-28", at(2028, 2, 29)),
    ],
)
def test_periods_are_those_of_utc(kind: BudgetKind, moment: float, period: str, reset: float) -> None:
    assert kind.now(moment) == (period, reset)


STEP = st.tuples(st.integers(0, 5), st.floats(0, 500), st.floats(0, 1))


class Empty:
    """A store without usage."""

    async def usage(self, principal: str, kind: str, period: str) -> float:
        return 0.0


@given(st.integers(0, 1000), st.lists(STEP, max_size=60))
async def test_whatever_is_taken_and_settled_adds_up(limit: int, steps: list[tuple[int, float, float]]) -> None:
    rows: list[Change] = []
    tallies = MemoryTallies(Empty())  # type: ignore[arg-type]
    tally = await tallies.known("ann", TOOL_SECONDS)
    held: dict[int, Reservation] = {}
    settled = 0.0
    for name, amount, part in steps:
        one = held.pop(name, None)
        if one is None:
            one = Reservation(tallies, tally, limit, rows.append)
            try:
                await one.take(min(1, amount), amount)
            except BudgetSpent:
                assert tally.left(limit) < 1
                continue
            held[name] = one
        else:
            before = tally.used
            one.settle(one.amount * part)
            one.settle(one.amount)  # counts once
            settled += tally.used - before
            assert 0 <= tally.used - before - one.amount * part <= 1 / 1024
        assert tally.used + tally.reserved <= limit
        assert sum(row.amount for row in rows if isinstance(row, UsageAdded)) == tally.used + tally.reserved
    for one in held.values():
        one.settle(0)
    assert (tally.used, tally.reserved) == (settled, 0)
    assert sum(row.amount for row in rows if isinstance(row, UsageAdded)) == settled


async def test_a_month_that_turns_over_begins_at_nothing(tmp_path: Path) -> None:
    now = at(2026, 11, 30, 23, 59)
    async with opened(tmp_path) as store:
        ledger, rows, principal = Ledger(store, clock=lambda: now), list[Change](), with_budget(tokens_per_month=1000)
        old = await ledger.reserve(principal, TOKENS, rows.append, 900)
        with pytest.raises(BudgetSpent) as spent:
            await ledger.reserve(principal, TOKENS, rows.append, 500, 500)
        now = at(2026, 12, 1)
        new = await ledger.reserve(principal, TOKENS, rows.append, 900)
        old.settle(800)
        new.settle(100)
        await store.write(rows)
        assert [await store.usage("ann", "tokens", period) for period in ("2026-11", "2026-12")] == [800, 100]
        now = at(2026, 11, 30)  # somebody sets the clock back
        assert (await ledger.usage(principal))["tokens_per_month"]["used"] == 100
    assert "Retry when that work has ended, or at 2026-12-01 00:00 UTC" in str(spent.value)


@pytest.mark.usefixtures("database")
async def test_what_a_killed_server_had_taken_stays_charged(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        rows: list[Change] = []
        await Ledger(store).reserve(with_budget(tokens_per_month=1000), TOKENS, rows.append, 600)
        await Ledger(store).reserve(
            with_budget(), TOOL_SECONDS, rows.append, 600
        )  # without a limit nothing is stored before
        await store.write(rows)
        usage = await Ledger(store).usage(with_budget())
    assert usage["tokens_per_month"] | {"period": "", "reset": 0} == {
        "period": "",
        "used": 600,
        "reserved": 0,
        "limit": None,
        "reset": 0,
    }
    assert usage["tool_seconds_per_day"]["used"] == 0


PARALLEL = 8


class Slow(SQLiteStore):
    """A real store whose answers about usage wait until the test lets them go."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.let_go = asyncio.Event()
        self.all_asked = asyncio.Event()
        self._asked = 0

    async def usage(self, principal: str, kind: str, period: str) -> float:
        used = await super().usage(principal, kind, period)
        self._asked += 1
        if self._asked == PARALLEL:
            self.all_asked.set()
        await self.let_go.wait()
        return used


async def test_whoever_reads_first_at_the_same_time_shares_one_tally(tmp_path: Path) -> None:
    store = await Slow.open(tmp_path / "test.db")
    ledger, principal = Ledger(store), with_budget(tokens_per_month=1000)
    wishes = [asyncio.create_task(ledger.reserve(principal, TOKENS, keep_nothing, 400, 400)) for _ in range(PARALLEL)]
    await store.all_asked.wait()
    store.let_go.set()
    done = await asyncio.gather(*wishes, return_exceptions=True)
    await store.close()
    assert [isinstance(one, BudgetSpent) for one in done].count(True) == PARALLEL - 2
    assert sum(one.amount for one in done if isinstance(one, Reservation)) == 800


async def test_a_token_s_budget_goes_before_the_settings(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        ledger = Ledger(store, Budget(runs=3, tokens_per_month=1000))
        assert ledger.limits(with_budget(tokens_per_month=5)) == Budget(runs=3, tokens_per_month=5)
        assert ledger.limits(with_budget()) == Budget(runs=3, tokens_per_month=1000)
