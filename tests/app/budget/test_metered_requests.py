"""One request to a model: what it takes before, what is counted after, whoever answers and however it ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from app.budget.budgets import EXCESS_S, Ledger, PromptExcess
from app.budget.kinds import COST, BudgetSpent
from app.budget.metered_request import ALLOWANCE, NOTHING, MeteredRequest
from app.budget.run_budget import RunBudget
from app.core.endpoint_spec import Price
from app.core.events import AgentEvent, Usage
from app.core.provider import Finished, ModelRequest, Piece, ProviderFailed, TextChunk, TokenUsage
from app.models.endpoints.prices import cost_of
from app.models.scripted import Scripted
from app.redaction.redactor import Redactor
from app.storage.changes import Change
from app.storage.principals import Principal
from app.storage.store import Store
from app.storage.usage import ModelUsage, UsageAdded
from app.transcript.conversation import Conversation
from app.transcript.reply import Reply
from app.transcript.run_totals import RunTotals
from tests.support.budgets import with_budget
from tests.support.databases.postgres import opened

pytestmark = pytest.mark.anyio
CHEAP, DEAR = Price(input=1, output=2), Price(input=100, output=200)
MEGA = 10**6


class Priced(Scripted):
    """A model whose price the test sets."""

    def __init__(self, price: Price | None) -> None:
        super().__init__([], "priced")
        self.price = price

    def cost(self, used: TokenUsage) -> float | None:
        return cost_of(self.price, used) if self.price else None


@dataclass(slots=True)
class Desk:
    """Where requests are made, and what was kept and told of them."""

    store: Store
    ledger: Ledger
    principal: Principal
    provider: Priced
    totals: RunTotals = field(default_factory=RunTotals)
    kept: list[Change] = field(default_factory=list)
    told: list[AgentEvent] = field(default_factory=list)

    async def metered_request(self, prompt: int = 1000, most: int | None = None) -> MeteredRequest:
        conversation = Conversation(
            "ses_1",
            [],
            lambda *_: None,
            self.kept.append,
            self.stored,
            redactor=Redactor(),
            log_event=self.told.append,
            run="run_1",
        )
        run_budget = RunBudget(self.ledger, self.principal)
        return await run_budget.metered_request(self.provider, ModelRequest([], max_tokens=most), prompt, conversation)

    async def ask(self, *pieces: Piece | BaseException, prompt: int = 1000) -> Usage:
        """One request that is answered so."""
        metered_request, answer = await self.metered_request(prompt), reply()
        with metered_request.receiving(answer, self.totals):
            for piece in pieces:
                if isinstance(piece, BaseException):
                    raise piece
                list(answer.add(piece))
                if metered_request.is_outgrown:
                    await metered_request.afford()
        return metered_request.usage

    async def stored(self) -> None:
        """Nothing is waited for."""

    async def used(self, budget: str = "cost_per_month") -> dict[str, Any]:
        return (await self.ledger.usage(self.principal))[budget]

    @property
    def spent(self) -> list[ModelUsage]:
        return [row for row in self.kept if isinstance(row, ModelUsage)]


def reply() -> Reply:
    return Reply({}, fences=lambda: False, new_id=str)


@asynccontextmanager
async def desk(folder: Path, price: Price | None = CHEAP, **budget: float) -> AsyncGenerator[Desk, None]:
    async with asyncio.timeout(30), opened(folder) as store:
        yield Desk(store, Ledger(store), with_budget(**budget), Priced(price))


FAILED = ProviderFailed("model_cut", "Lost.", retryable=True)
DOWN = ProviderFailed("model_down", "Nobody is there.", retryable=True)
LONG = TextChunk("x" * 400)


@pytest.mark.parametrize(
    ("pieces", "counted", "measured"),
    [
        ([TextChunk("Hi."), TokenUsage(900, 7), Finished("stop")], (900, 7), True),
        ([LONG, Finished("stop")], (1000, 100), False),
        ([TextChunk("Hi"), Finished("stop")], (1000, 1), False),
        ([LONG, TokenUsage(900, 0), Finished("stop")], (900, 100), False),  # it has counted the prompt only
        ([LONG, TokenUsage(0, 7), Finished("stop")], (1000, 7), False),  # nobody reads an empty prompt
        ([TokenUsage(900, 0), Finished("stop")], (900, 0), True),
        ([TokenUsage(900, 1), LONG, FAILED], (900, 100), False),  # that was early
        ([TokenUsage(900, 300), LONG, FAILED], (900, 300), True),
        ([TokenUsage(900, 1), LONG, asyncio.CancelledError()], (900, 100), False),
        ([LONG, GeneratorExit()], (1000, 100), False),
        ([TokenUsage(5, 1), LONG, TokenUsage(900, 300), Finished("stop")], (900, 300), True),
        ([FAILED], (1000, 0), False),
        ([DOWN], (0, 0), True),
        ([LONG, DOWN], (1000, 100), False),
    ],
)
async def test_what_an_answer_has_used_is_counted_however_it_ends(
    tmp_path: Path, pieces: list[Piece | BaseException], counted: tuple[int, int], measured: bool
) -> None:
    async with desk(tmp_path) as at:
        try:
            usage: Usage | None = await at.ask(*pieces)
        except (ProviderFailed, asyncio.CancelledError, GeneratorExit):
            usage = next((event for event in at.told if isinstance(event, Usage)), None)
        assert (at.totals.prompt_tokens, at.totals.completion_tokens) == counted
        assert at.totals.measured is measured
        if counted == (0, 0):
            assert usage is None and not at.spent  # nobody has read anything
            return
        cost = cost_of(CHEAP, TokenUsage(*counted))
        assert usage == Usage(*counted, *counted, measured, None, cost, cost)
        [row] = at.spent
        assert (row.model, row.run, row.requests, row.prompt_tokens, row.completion_tokens) == (
            *("priced", "run_1", 1),
            *counted,
        )
        assert row.cost == round(cost * COST.parts)
        assert (row.estimated_tokens, row.estimated_cost) == ((0, 0) if measured else (sum(counted), row.cost))
        assert (await at.used())["used"] == cost and (await at.used())["reserved"] == 0


async def test_a_model_without_a_price_costs_nothing_and_asks_no_budget(tmp_path: Path) -> None:
    async with desk(tmp_path, None, cost_per_month=1e-6) as at:
        usage = await at.ask(LONG, TokenUsage(10**6, 10**6), Finished("stop"))
        assert (usage.cost, usage.total_cost, at.totals.finished("answered").usage.get("cost")) == (None, None, None)
        assert at.spent[0].cost is None and (await at.used())["used"] == 0
        at.provider.price = DEAR
        with pytest.raises(BudgetSpent) as spent:
            await at.metered_request()
        tokens = await at.used("tokens_per_month")
    assert (
        spent.value.budget == "cost_per_month" and tokens["reserved"] == 0
    )  # what it had taken of those is free again


async def test_without_a_limit_nothing_is_held_and_all_is_counted(tmp_path: Path) -> None:
    async with desk(tmp_path) as at:
        await at.metered_request()
        assert [(await at.used(budget))["reserved"] for budget in ("tokens_per_month", "cost_per_month")] == [0, 0]
        usage = await at.ask(LONG, TokenUsage(900, 300), Finished("stop"))
        assert (await at.used("tokens_per_month"))["used"] == 1200
        assert (await at.used())["used"] == usage.cost == cost_of(CHEAP, TokenUsage(900, 300))


async def test_money_that_is_left_bounds_the_answer(tmp_path: Path) -> None:
    async with desk(tmp_path, cost_per_month=0.002) as at:  # a prompt of 1,000 costs half of that
        metered_request = await at.metered_request()
        assert metered_request.request().max_tokens == 500
        with pytest.raises(BudgetSpent), metered_request.receiving(answer := reply(), at.totals):
            for _ in range(2000):
                list(answer.add(TextChunk("four")))
                if metered_request.is_outgrown:
                    await metered_request.afford()
        used = await at.used()
        assert used["used"] + used["reserved"] <= 0.002 and answer.characters > 500 * 4


@pytest.mark.parametrize(("most", "expected"), [(None, 500), (100, 100), (10**6, 500)])
async def test_a_request_that_wants_less_gets_no_more(tmp_path: Path, most: int | None, expected: int) -> None:
    async with desk(tmp_path, cost_per_month=0.002) as at:
        assert (await at.metered_request(most=most)).request().max_tokens == expected


async def test_a_dearer_model_that_takes_over_is_paid_or_cut_off(tmp_path: Path) -> None:
    for limit, answers in ((1.0, True), (0.09, False)):  # its prompt alone costs 0.1
        async with desk(tmp_path, cost_per_month=limit) as at:
            metered_request, answer = await at.metered_request(), reply()
            at.provider.price = DEAR
            try:
                with metered_request.receiving(answer, at.totals):
                    await metered_request.request().afford()
                    held = (await at.used())["reserved"]
                    assert held >= 0.1
            except BudgetSpent:
                assert not answers
            else:
                assert answers


async def test_what_a_server_may_ask_for_its_cache_is_taken_too(tmp_path: Path) -> None:
    async with desk(tmp_path, Price(input=1, output=0, cache_written=1.25), cost_per_month=1) as at:
        await at.metered_request(MEGA * 4 // 5)
        assert (await at.used())["reserved"] == 1
        with pytest.raises(BudgetSpent):
            await at.metered_request(1)


async def test_a_server_that_is_killed_gives_no_money_back(tmp_path: Path) -> None:
    async with desk(tmp_path, cost_per_month=1) as at:
        await at.metered_request()
        await at.store.write(at.kept)
        again = await Ledger(at.store).usage(at.principal)
        assert again["cost_per_month"]["used"] == cost_of(CHEAP, TokenUsage(1000, ALLOWANCE)) == 0.009192
    assert sum(row.amount for row in at.kept if isinstance(row, UsageAdded) and row.kind == "cost") == 9_192_000


async def test_nothing_is_counted_of_a_question_that_nobody_heard(tmp_path: Path) -> None:
    async with desk(tmp_path) as at:
        with pytest.raises(ProviderFailed):
            await at.ask(DOWN)
        assert not at.told and not at.spent and TokenUsage(at.totals.prompt_tokens, 0) == NOTHING


async def test_a_report_beyond_the_reserve_ends_the_answer_where_it_goes_on(tmp_path: Path) -> None:
    """What was reported is counted, and nothing more is taken from the model."""
    pieces: list[Piece] = [
        TextChunk("One"),
        TokenUsage(50_000, 1),
        TextChunk(" two"),
        TextChunk(" three"),
        Finished("stop"),
    ]
    for limit, ends in ((2000, True), (60_000, False)):
        async with desk(tmp_path / str(limit), tokens_per_month=limit) as at:
            try:
                await at.ask(*pieces, prompt=100)
            except BudgetSpent:
                assert ends and 50_001 <= at.totals.prompt_tokens + at.totals.completion_tokens <= 50_003
            else:
                assert not ends
            tokens = await at.used("tokens_per_month")
            assert 50_000 < tokens["used"] <= 50_003 and tokens["reserved"] == 0


async def test_an_answer_that_its_server_counts_higher_ends_at_the_reserve(tmp_path: Path) -> None:
    """Some report in each chunk, also thoughts that nobody sees."""
    async with desk(tmp_path, tokens_per_month=2000) as at:
        chunks: list[Piece] = [
            piece for count in range(100, 9000, 100) for piece in (TextChunk("x"), TokenUsage(100, count))
        ]
        with pytest.raises(BudgetSpent):
            await at.ask(*chunks, prompt=100)
        assert 1900 <= (await at.used("tokens_per_month"))["used"] <= 2100


async def test_a_report_at_the_end_cuts_nothing_off_and_the_next_is_refused(tmp_path: Path) -> None:
    async with desk(tmp_path, tokens_per_month=2000) as at:
        await at.ask(TextChunk("Hi."), TokenUsage(50_000, 7), Finished("stop"), prompt=100)
        assert (await at.used("tokens_per_month"))["used"] == 50_007
        with pytest.raises(BudgetSpent):
            await at.metered_request(1)


async def test_a_prompt_from_the_cache_costs_what_its_server_says(tmp_path: Path) -> None:
    """Ten thousand tokens more than estimated, nearly all of them for nothing."""
    async with desk(tmp_path, Price(input=1, output=2, cached=0), cost_per_month=0.01) as at:
        await at.ask(TextChunk("One"), TokenUsage(12_000, 1, 11_900), TextChunk(" two"), TokenUsage(12_000, 2, 11_900))
        assert (await at.used())["used"] == pytest.approx(0.000104)


async def test_what_a_server_adds_to_a_prompt_is_reserved_the_next_time(tmp_path: Path) -> None:
    now = 0.0
    async with asyncio.timeout(30), opened(tmp_path) as store:
        ledger = Ledger(store, clock=lambda: now)
        first, second = (
            Desk(store, ledger, replace(with_budget(tokens_per_month=2000), name=name), Priced(CHEAP))
            for name in ("ann", "ben")
        )
        await first.ask(TokenUsage(50_000, 7), Finished("stop"), prompt=100)
        with pytest.raises(BudgetSpent) as spent:
            await second.metered_request(100)
        assert "needs at least 50,064" in str(spent.value)
        now += EXCESS_S  # it may be right by now
        await second.ask(TokenUsage(100, 7), Finished("stop"), prompt=100)
        assert (await second.used("tokens_per_month"))["used"] == 107


def test_an_excess_rises_at_once_and_falls_by_half() -> None:
    excess = PromptExcess(lambda: 0.0)
    known = []
    for estimate, reported in ((100, 90), (100, 900), (500, 1000), (100, 100), (100, 100)):
        excess.learn(estimate, "m", reported)
        known.append(excess.of("m", 100))
    assert known == [0, 800, 500, 250, 125] and excess.of("other", 100) == 0


def test_one_long_prompt_that_was_estimated_too_low_refuses_no_short_ones() -> None:
    excess = PromptExcess(lambda: 0.0)
    excess.learn(100_000, "m", 120_000)
    assert excess.of("m", 500) == 0 and excess.of("m", 100_000) == 20_000
    excess.learn(500, "m", 500)
    assert excess.of("m", 100_000) == 20_000, "nor do short ones tell what long ones have"
    excess.learn(500, "m", 50_500)
    assert excess.of("m", 500) == excess.of("m", 100_000) == 50_000, "what is added to short ones is to long ones, too"
    excess.learn(100_000, "m", 100_000)
    assert excess.of("m", 500) == excess.of("m", 100_000) == 25_000
