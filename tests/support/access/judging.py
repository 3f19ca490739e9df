"""A judge whose model says what the test wrote."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from app.budget.budgets import Ledger
from app.budget.run_budget import RunBudget
from app.models.scripted import Reply, Scripted
from app.models.tokens.counter import TokenCounter
from app.policy.judges import SERVES, Judge, Verdict
from app.redaction.redactor import Redactor
from app.storage.principals import Principal
from app.transcript.conversation import Conversation
from app.transcript.run_totals import RunTotals
from tests.support.budgets import keep_nothing, with_budget
from tests.support.databases.postgres import opened
from tests.support.models.histories import store_nothing
from tests.support.trimming import Counted

LIMIT_S = 30


@dataclass(slots=True)
class Judging:
    """A judge whose model says what the test wrote, and the run that it judges."""

    provider: Scripted
    judge: Judge
    ledger: Ledger
    principal: Principal
    totals: RunTotals = field(default_factory=RunTotals)
    conversation: Conversation = field(
        default_factory=lambda: Conversation(
            "ses_1", [], lambda *_: None, keep_nothing, store_nothing, redactor=Redactor()
        )
    )

    async def ask(self, data: dict[str, str] | None = None) -> Verdict:
        return await self.judge.verdict(SERVES, data or {"The words": "Hello"}, self.totals, self.conversation)

    async def tokens(self) -> tuple[float, float]:
        tokens = (await self.ledger.usage(self.principal))["tokens_per_month"]
        return tokens["used"], tokens["reserved"]


@asynccontextmanager
async def judging(
    folder: Path, reply: Reply, limit_s: float = LIMIT_S, tokens: int = 10**9
) -> AsyncGenerator[Judging, None]:
    async with asyncio.timeout(LIMIT_S), opened(folder) as store:
        provider, ledger, principal = Scripted([reply]), Ledger(store), with_budget(tokens_per_month=tokens)
        yield Judging(
            provider,
            Judge(provider, RunBudget(ledger, principal), Counted(TokenCounter(provider)), limit_s),
            ledger,
            principal,
        )
