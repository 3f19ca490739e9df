"""Results of calls that the client ran: untrusted, screened before they enter the history."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec import Struct

from app.core.events import AgentEvent, ToolFinished
from app.core.messages import unanswered
from app.policy.guards import UNSCREENED, WITHHELD, Guards
from app.transcript.conversation import Conversation
from app.transcript.run_request import CallResult
from app.transcript.run_totals import RunTotals


class ResultScreen(Struct, frozen=True):
    """Has the judge read results in pieces of so many characters, the longest that a tool of ours gives the model."""

    guards: Guards
    totals: RunTotals
    conversation: Conversation
    check_not_paused: Callable[[], None]  # raises Paused; asked before each request
    piece: int

    async def pass_on(self, results: Sequence[CallResult]) -> tuple[list[CallResult], list[AgentEvent]]:
        """Return the results, marked or withheld, and the events of it. Those that no call waits for stay unread.

        Raises Paused, BudgetSpent, StoreFailed.
        """
        names = {call.id: call.name for call in unanswered(self.conversation.messages)}
        passed, events = list[CallResult](), list[AgentEvent]()
        for result in results:
            name = names.pop(result.call, None)
            text = result.text if name is None else await self._screened(result, name, events)
            passed.append(CallResult(result.call, text))
        return passed, events

    async def _screened(self, result: CallResult, name: str, events: list[AgentEvent]) -> str:
        text = self.conversation.redactor.redact(result.text)
        for begin in range(0, len(text), self.piece):
            self.check_not_paused()
            part = ToolFinished(result.call, name, ok=True, text=text[begin : begin + self.piece], duration_s=0.0)
            screened, news = await self.guards.screen(part, self.totals, self.conversation)
            events += news
            if screened.text == WITHHELD:
                return WITHHELD
            if screened.text != part.text:  # one unscreened piece is enough
                return f"{UNSCREENED}\n{text}"
        return text
