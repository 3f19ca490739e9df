"""The usage of a model request that was cut off with its server: estimated, since nothing has reported it."""

from __future__ import annotations

import math

from app.budget.kinds import COST, TOKENS
from app.budget.metered_request import money_of, tokens
from app.budget.run_budget import RunBudget
from app.core.events import Usage
from app.core.provider import Provider, TokenUsage
from app.models.tokens.estimates import CHARACTERS_PER_TOKEN
from app.storage.usage import ModelUsage
from app.transcript.conversation import Conversation
from app.transcript.run_totals import RunTotals


async def cut_request(
    run_budget: RunBudget,
    provider: Provider,
    prompt: int,
    characters: int,
    *,
    conversation: Conversation,
    totals: RunTotals,
) -> Usage:
    """Count a request with so many tokens of prompt, of which so many characters were answered. Raises StoreFailed.

    A budget with a limit has lost what the request had reserved, so that nothing more is taken from it.
    """
    used = TokenUsage(prompt, math.ceil(characters / CHARACTERS_PER_TOKEN))
    ledger, principal = run_budget.ledger, run_budget.principal
    period = ""
    for kind, weigh in ((COST, money_of(provider)), (TOKENS, tokens)):
        held = await ledger.reserve(principal, kind, conversation.record, 0)
        held.settle(0 if held.is_limited else weigh(used))
        period = held.period
    usage = totals.add(used, measured=False, cost=provider.cost(used))
    parts = None if usage.cost is None else round(usage.cost * COST.parts)
    conversation.record(
        ModelUsage(
            principal=principal.name,
            month=period,
            model=provider.model,
            run=conversation.run,
            session=conversation.session,
            requests=1,
            prompt_tokens=used.prompt_tokens,
            completion_tokens=used.completion_tokens,
            cached_tokens=0,
            estimated_tokens=round(tokens(used)),
            cost=parts,
            estimated_cost=parts,
        )
    )
    return usage
