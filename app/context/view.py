"""What of a conversation a request carries: all of it, or what trimming and summaries leave."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from app.context.counter import Counter
from app.conversation import Conversation
from app.discipline.plan import Plan
from app.events import AgentEvent
from app.messages import Message
from app.provider import ModelRequest
from tools.tool import Tool

Opening = Callable[[Sequence[Tool]], Sequence[Message]]
"""The messages in front of the conversation, for these tools; asked when the request is made."""


@dataclass(frozen=True, slots=True)
class Fitted:
    """A request that fits the window; `counted` tokens; `events` tell what was done for that."""

    request: ModelRequest
    counted: int
    events: Sequence[AgentEvent] = ()


@dataclass(slots=True)
class View:
    """One per run."""

    counter: Counter
    opening: Opening
    inactivity_s: float | None = None

    async def fit(self, conversation: Conversation, tools: Sequence[Tool], plan: Plan) -> Fitted:
        """The next request. Raises ContextOverflow, BudgetSpent, StoreFailed."""
        offered = tools if plan.tools else ()
        notes = [Message("user", note) for note in plan.notes]
        messages = [*conversation.messages, *notes]
        request = ModelRequest(messages, offered, opening=lambda: self.opening(offered), inactivity_s=self.inactivity_s)
        counted = sum(map(self.counter.measure, request.whole())) + self.counter.described(offered)
        return Fitted(request, counted)
