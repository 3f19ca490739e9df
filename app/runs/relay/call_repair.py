"""One more question to the model of a relay, for calls that do not fit their schemas."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from typing import Any

from msgspec.structs import replace

from app.budget.run_budget import RunBudget
from app.context.view import Fitted
from app.core.events import Usage
from app.core.messages import AskedCall, Message
from app.core.provider import Provider, ProviderFailed
from app.runs.run_context import RunContext
from app.transcript.reply import Reply
from tools.base.schemas import client_argument_error

TIME_LIMIT_S = 60.0
FITS = "This call fits. Make it again, together with the corrected ones."


def problems(reply: Reply, calls: Sequence[AskedCall], schemas: Mapping[str, dict[str, Any]]) -> dict[str, str]:
    """Return why calls do not fit, by call: those that could not be read, and those that their schemas refuse."""
    found = dict[str, str]()
    for call in calls:
        schema = schemas.get(call.name)
        reason = reply.refused.get(call.id) or (schema and client_argument_error(call.name, schema, call.arguments))
        if reason:
            found[call.id] = reason
    return found


async def ask_again(
    context: RunContext,
    provider: Provider,
    run_budget: RunBudget,
    fitted: Fitted,
    *,
    wrong: Mapping[str, str],
    reply: Reply,
) -> Usage:
    """Have the model make the calls of its last message again; they are in `reply` afterwards, if it has made any.

    Nothing of it is shown, and the conversation stays as the client knows it. Raises BudgetSpent, StoreFailed.
    """
    conversation, last = context.conversation, context.conversation.messages[-1]
    results = [Message("tool", wrong.get(call.id, FITS), call=call.id, name=call.name) for call in last.calls]
    request = replace(fitted.request, messages=[*conversation.messages, *results], inactivity_s=TIME_LIMIT_S)
    counted = fitted.counted + sum(map(fitted.counter.measure, results))
    metered_request = await run_budget.metered_request(provider, request, counted, conversation)
    with metered_request.receiving(reply, context.totals):
        try:
            async with asyncio.timeout(TIME_LIMIT_S), aclosing(provider.stream(metered_request.request())) as pieces:
                async for piece in pieces:
                    tuple(reply.add(piece))
                    if metered_request.is_outgrown:
                        await metered_request.afford()
        except (TimeoutError, ProviderFailed) as failure:
            reply.stopped = None  # it broke off: no call of it counts
            if isinstance(failure, ProviderFailed):
                metered_request.failed(failure)
        finally:
            tuple(reply.end())
    await run_budget.check_reply(provider, reply, conversation)
    return metered_request.usage
