"""Summarise the older half of a conversation because a person asks for it, however much room is left."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from msgspec import Struct

from app.context.compaction.replay import CachedCounter
from app.context.compaction.summarise import MessageRange, Summariser
from app.context.compaction.summary import cut_position
from app.core.events import AgentEvent
from app.core.messages import Message, for_models, unanswered
from app.storage.sessions import SummaryRow
from app.transcript.conversation import Conversation
from app.transcript.run_totals import RunTotals

LEAST = 256  # tokens to summarise: what stands around the notes takes about a hundred


class Compactor(Struct, frozen=True):
    """`summaries` returns those of a session, the one of most messages last."""

    summariser: Summariser
    summaries: Callable[[str], Awaitable[Sequence[SummaryRow]]]

    async def older_half(self, session: str, messages: Sequence[Message]) -> MessageRange | None:
        """Return what is to be summarised; None where that is too little. Raises StoreFailed."""
        rows = [row for row in await self.summaries(session) if row.upto <= len(messages)]
        start = rows[-1].upto if rows else 0
        sent = [*messages[:start], *map(for_models, messages[start:])]
        counter = self.summariser.utility.counter
        await counter.prepare(sent[start:])
        measure = CachedCounter(counter.measure)
        end = cut_position(sent, start, sum(map(measure, sent[start:])) // 2, measure)
        if end is None or sum(map(measure, sent[start:end])) < LEAST:
            return None
        return MessageRange(start, end, Message("user", rows[-1].text) if rows else None)

    async def compact(self, run: str, conversation: Conversation, totals: RunTotals) -> Sequence[AgentEvent]:
        """Store the summary, and return the events that say so, or why there is none. Raises StoreFailed."""
        message_range = await self.older_half(conversation.session, conversation.messages)
        if message_range is None:
            return ()
        redacted: MessageRange = conversation.redactor.redact_value(message_range)
        _, events = await self.summariser.summarise(run, redacted, conversation, totals)
        return events


def awaits_results(messages: Sequence[Message]) -> bool:
    """Return True if the client has calls whose results belong in front of anything else."""
    return any(True for _ in unanswered(messages))
