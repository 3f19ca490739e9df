"""What runs spend: by chance, in parallel, cut off; nothing is overdrawn, and all that was taken is settled."""

from __future__ import annotations

import asyncio
import math
import random
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from pathlib import Path

import pytest

from app.budget.budgets import Ledger
from app.budget.kinds import COST, TOKENS, TOOL_SECONDS, BudgetSpent
from app.budget.metered_request import ALLOWANCE
from app.budget.run_budget import EARLY_S, SLICE_S, RunBudget, ToolTime
from app.budget.usage_report import sums
from app.core.provider import (
    BaseProvider,
    CallForm,
    Finished,
    ModelRequest,
    Piece,
    ProviderFailed,
    TextChunk,
    TokenUsage,
)
from app.models.endpoints.prices import total
from app.redaction.redactor import Redactor
from app.runs.agent import Agent
from app.storage.changes import StoreFailed
from app.storage.principals import Principal
from app.storage.runs import RunRow
from app.storage.sqlite.store import SQLiteStore
from app.storage.store import Store
from app.transcript.conversation import Conversation
from app.transcript.run_request import RunRequest
from routes.protocol.requests import ChatRequest
from routes.services import Services, open_services
from tests.support.budgets import keep_nothing, with_budget
from tests.support.databases.postgres import opened
from tests.support.nightly import at_night
from tests.support.server.serving import chosen, settings_in

pytestmark = pytest.mark.anyio


CHARACTERS_PER_PROMPT_TOKEN = 16  # estimates have at least one token for 8: 4 and the lowest scale that is learned
PRICES = '{"moody": {"input": 1, "output": 4}}'


class Moody(BaseProvider):
    """A Provider that takes its time, tells what it used or not, fails, or never ends; all by chance.

    It looks each time whether more was promised than the budget has.
    """

    model, call_form = "moody", CallForm.FENCED

    def __init__(self, seed: int, limit: int) -> None:
        self.chance = random.Random(seed)
        self.limit = limit
        self.money = limit * self.chance.choice((3, 6)) / 10**6  # either may be spent first
        self.ledger: Ledger | None = None
        self.seen = 0
        self.looked = asyncio.Event()

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Piece, None]:
        most = request.max_tokens or ALLOWANCE
        # Not more than was estimated of any prompt: what a server counts beyond that may exceed a budget.
        prompt = 1 + sum(len(message.text) for message in request.whole()) // CHARACTERS_PER_PROMPT_TOKEN
        for _ in range(self.chance.randrange(12)):
            await self.look()
            yield TextChunk("word " * self.chance.randrange(900))
        match self.chance.randrange(6):
            case 0:
                raise ProviderFailed("model_cut", "The connection was lost.", retryable=True)
            case 1:
                yield TokenUsage(self.chance.randrange(prompt), self.chance.randrange(most))
                raise ProviderFailed("model_cut", "The connection was lost.", retryable=True)
            case 2:
                await asyncio.Event().wait()
            case 3:
                yield TokenUsage(self.chance.randrange(prompt), self.chance.randrange(most))
            case 4:
                yield TextChunk("```read_file\nnone.txt\n```\n")
        yield Finished("stop")

    async def look(self) -> None:
        for _ in range(self.chance.randrange(4)):
            await asyncio.sleep(0)
        assert self.ledger
        usage = await self.ledger.usage(with_budget(tokens_per_month=self.limit, cost_per_month=self.money))
        for kind in (TOKENS, COST):  # in whole parts: a sum of rounded figures may be more by the last bit
            used, reserved, limit = (
                round(usage[kind.budget][name] * kind.parts) for name in ("used", "reserved", "limit")
            )
            assert used + reserved <= limit, (kind.name, used, reserved, limit)
        self.seen += 1
        self.looked.set()

    async def close(self) -> None:
        return None


async def begin(services: Services, principal: Principal, **turn: str) -> tuple[Agent, RunRow]:
    agent = await services.factory.agent(principal, ChatRequest(message="x"))
    return agent, await services.runs.start(agent, principal, RunRequest("x", **turn))  # type: ignore[arg-type]


async def soon_cancelled(services: Services, run: str, provider: Moody, steps: int) -> None:
    """A step is a question to the store: runs wait for it too, so that slow disks slow both."""
    await provider.looked.wait()
    for _ in range(steps):
        await services.store.usage("ann", "tokens", "none")
    await services.runs.cancel(run)


@pytest.mark.parametrize("seed", range(6))
async def test_parallel_runs_never_overdraw_and_all_is_settled(tmp_path: Path, database: str, seed: int) -> None:
    if database == "postgres" and seed > at_night(5, 1):
        pytest.skip("takes too long for every change: `make nightly` runs it")
    limit = random.Random(seed).randrange(20_000, 80_000)
    provider = Moody(seed, limit)
    principal = with_budget(tokens_per_month=limit, cost_per_month=provider.money, tool_seconds_per_day=1000)
    agents: list[Agent] = []
    settings = settings_in(tmp_path, prices=PRICES)
    async with asyncio.timeout(60), open_services(settings, lambda _: chosen(provider)) as services:
        ledger = provider.ledger = services.runs.ledger
        ends = []
        for _ in range(40):
            try:
                agent, row = await begin(services, principal)
            except BudgetSpent:
                continue
            agents.append(agent)
            ends.append(asyncio.create_task(soon_cancelled(services, row.id, provider, provider.chance.randrange(40))))
        await asyncio.gather(*ends)
        usage = await ledger.usage(principal)
        period = usage["tokens_per_month"]["period"]
        stored = await services.store.usage("ann", "tokens", period)
        spent = sums(await services.store.spent(principal="ann", month=period))
    money = usage["cost_per_month"]
    assert money["used"] == total(*(agent.totals.cost for agent in agents)) == spent.get("cost", 0) <= provider.money
    assert (money["reserved"], spent["prompt_tokens"] + spent["completion_tokens"]) == (0, stored)
    charged = sum(agent.totals.prompt_tokens + agent.totals.completion_tokens for agent in agents)
    assert usage["runs"]["used"] == usage["tokens_per_month"]["reserved"] == 0
    assert usage["tool_seconds_per_day"]["reserved"] == 0
    assert stored == usage["tokens_per_month"]["used"] == charged <= limit
    assert provider.seen and len(agents) > 1  # how many fit in goes by how fast the machine is


async def test_tools_of_parallel_runs_share_the_day_in_slices(tmp_path: Path) -> None:
    now = 0.0
    async with opened(tmp_path) as store:
        ledger, principal = Ledger(store), with_budget(tool_seconds_per_day=100)
        first, second = [
            ToolTime(await ledger.reserve(principal, TOOL_SECONDS, keep_nothing, SLICE_S), 3600, lambda: now)
            for _ in range(2)
        ]
        with first:
            with pytest.raises(BudgetSpent) as spent, second:
                for now in map(float, range(100)):  # noqa: B007 (the clock of both)
                    await first.go_on()
                    await second.go_on()
            assert now == 100 - 2 * SLICE_S
            now = 2 * SLICE_S - EARLY_S / 2
            await first.go_on()  # it was faster with the second slice
        usage = (await ledger.usage(principal))["tool_seconds_per_day"]
    assert spent.value.budget == "tool_seconds_per_day"
    assert (usage["used"], usage["reserved"]) == (97.5, 0)


async def test_a_tool_s_time_limit_is_taken_and_no_more(tmp_path: Path) -> None:
    now = 0.0
    async with opened(tmp_path) as store:
        ledger, principal = Ledger(store), with_budget(tool_seconds_per_day=1000)
        with ToolTime(await ledger.reserve(principal, TOOL_SECONDS, keep_nothing, SLICE_S), 45, lambda: now) as running:
            for seconds in range(50):
                now = float(seconds)
                await running.go_on()
            assert (await ledger.usage(principal))["tool_seconds_per_day"]["reserved"] == 45
        assert (await ledger.usage(principal))["tool_seconds_per_day"]["used"] == 49


class Refusing(SQLiteStore):
    """A real store that takes nothing more when the test says so."""

    refuses = False

    async def write(self, changes: object) -> None:
        if self.refuses:
            raise StoreFailed("The disk is full. Make room.")
        await super().write(changes)  # type: ignore[arg-type]


async def test_a_start_that_the_store_refuses_holds_no_place(tmp_path: Path) -> None:
    async def opened_refusing(path: Path) -> Store:
        return await Refusing.open(path)

    provider = Moody(0, 1 << 40)
    async with asyncio.timeout(30):
        async with open_services(settings_in(tmp_path), lambda _: chosen(provider), opened_refusing) as services:
            provider.ledger, store = services.runs.ledger, services.store
            assert isinstance(store, Refusing)
            store.refuses = True
            for _ in range(3):
                with pytest.raises(StoreFailed):
                    await begin(services, with_budget(runs=1))
            store.refuses = False
            assert (await services.runs.ledger.usage(with_budget()))["runs"]["used"] == 0
            async with aclosing(services.runs.watch((await begin(services, with_budget(runs=1)))[1].id, 0)) as pages:
                assert await anext(pages)


class Looking(BaseProvider):
    """A Provider that looks what the store knows when it is asked."""

    model, call_form = "looking", CallForm.FENCED

    def __init__(self) -> None:
        self.store: Store | None = None
        self.seen: list[float] = []

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Piece, None]:
        assert self.store
        self.seen.append(await self.store.usage("ann", "tokens", TOKENS.now(time.time())[0]))
        yield TextChunk("Done.")
        yield Finished("stop")

    async def close(self) -> None:
        return None


@pytest.mark.parametrize(("principal", "least"), [(with_budget(tokens_per_month=10**9), ALLOWANCE), (with_budget(), 0)])
async def test_the_store_knows_of_the_tokens_before_the_model_is_asked(
    tmp_path: Path, principal: Principal, least: int
) -> None:
    provider = Looking()
    async with asyncio.timeout(30), open_services(settings_in(tmp_path), lambda _: chosen(provider)) as services:
        provider.store = services.store
        _, row = await begin(services, principal)
        await services.runs.ended(row.id)
    [seen] = provider.seen
    assert seen >= least and (seen == 0) == (least == 0)


async def test_a_tool_gets_no_more_time_than_its_run_has_left(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        conversation = Conversation("ses_1", [], lambda *_: None, keep_nothing, store.close, redactor=Redactor())
        for left, limit_s in ((lambda: 7.0, 7.0), (lambda: math.inf, 100.0)):
            with await RunBudget(Ledger(store), with_budget(), left).tool_time(100, conversation) as running:
                assert running.limit_s == limit_s
