"""Runs of one call that no model makes: of a client of our MCP server, or of an MCP app.

The call is decided on, asked about, run, audited and logged as any other: the run of an agent whose one reply is given.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from msgspec.structs import asdict, replace

from app.budget.kinds import TOOL_SECONDS, BudgetKind
from app.core.events import RunStarted
from app.core.messages import Message
from app.core.provider import Finished
from app.models.wire.native_calls import NATIVE
from app.runs.agent import Agent
from app.runs.discipline.limit_enforcer import ANSWERED
from app.runs.discipline.round_end import RoundEnd
from app.runs.run_context import RunContext
from app.runs.tool_executor import Unanswered
from app.transcript.inbox import Inbox
from app.transcript.reply import Reply
from app.transcript.round_plan import RoundPlan
from app.transcript.run_request import DirectCall
from parsing import Call

WITH_TOOLS = RoundPlan()  # although it is the last round


class CallEnd(RoundEnd):
    """The end of the only round: nothing is asked of a model."""

    async def conclude(self, plan: RoundPlan, reply: Reply, results: Sequence[Message]) -> None:
        self.silent = True
        self.discipline.over = ANSWERED
        await self._take(self.inbox.close())


class DirectAgent(Agent, kw_only=True):
    """An agent that makes one call, and ends."""

    call: DirectCall
    adds_words: ClassVar[bool] = False

    def budgets(self) -> list[BudgetKind]:
        """Return the kinds of budget that a run of this agent uses."""
        return [TOOL_SECONDS]

    async def _stream_reply(self, context: RunContext, reply: Reply, plan: RoundPlan) -> None:
        for piece in (Call(0, self.call.name, self.call.arguments, NATIVE), Finished("tool_calls")):
            await context.emit_all(reply.add(piece))
        await context.emit_all(reply.end())
        context.conversation.append(reply.message(cut=False))

    async def _unanswered(self, context: RunContext, reply: Reply, plan: RoundPlan) -> Unanswered:
        return await super()._unanswered(context, reply, WITH_TOOLS)

    def _round_end(self, context: RunContext, inbox: Inbox) -> RoundEnd:
        return CallEnd(**asdict(super()._round_end(context, inbox)))

    def _started(self, run_context: RunContext) -> RunStarted:
        return replace(super()._started(run_context), source=self.call.source)


def direct_agent(agent: Agent, call: DirectCall) -> DirectAgent:
    """Return the agent for a run that only makes this call."""
    agent.scope.is_direct = True
    return DirectAgent(**asdict(agent) | {"call": call})
