"""The usage of a model request that was cut off with its server: estimated, since nothing has reported it."""

from __future__ import annotations

import math

from app.budget.kinds import COST, TOKENS
from app.budget.metered_request import model_usage, money_of, tokens
from app.budget.run_budget import RunBudget
from app.core.events import Usage
from app.core.provider import Provider, TokenUsage
from app.models.tokens.counter import CHARACTERS_PER_TOKEN
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
    for kind, weigh in ((COST, money_of(provider)), (TOKENS, tokens)):
        held = await ledger.reserve(principal, kind, conversation.record, 0)
        held.settle(0 if held.is_limited else weigh(used))
    usage = totals.add(used, measured=False, cost=provider.cost(used))
    conversation.record(model_usage(conversation, held.tally, provider.model, used, cost=usage.cost, measured=False))
    return usage
