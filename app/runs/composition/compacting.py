"""Runs that summarise the older half of their session, and do nothing else: no tools, no memory, no answer."""

from __future__ import annotations

from typing import ClassVar

from app.budget.side_query import SideQuery
from app.context.compaction.on_request import Compactor, awaits_results
from app.context.compaction.summarise import Summariser
from app.labels.consent import clear_request
from app.runs.agent import Agent
from app.runs.composition.unattended import stored_options
from app.runs.discipline.limit_enforcer import ANSWERED, LimitEnforcer
from app.runs.recovery.left_off import LeftOff
from app.runs.relay.relay_agent import RelayView
from app.runs.run_context import RunContext
from app.runs.run_factory import NO_PARAMETERS, RunFactory
from app.runs.run_options import RunOptions
from app.runs.tool_executor import ToolExecutor
from app.storage.principals import Principal
from app.storage.store import Store
from app.transcript.inbox import Inbox
from app.transcript.run_request import NotFound
from tools.tool import NO_TOOLS


class NothingToCompact(Exception):
    """The older half of the session is too short to be summarised, or waits for its client."""


class CompactingAgent(Agent, kw_only=True):
    """An agent that asks its model for one summary. Nothing is half: the summary is one row, or there is none."""

    compactor: Compactor
    adds_words: ClassVar[bool] = False
    takes_messages: ClassVar[bool] = False
    keeps_files: ClassVar[bool] = False  # so that it runs at any server

    async def _run(self, context: RunContext, inbox: Inbox, left: LeftOff | None) -> None:
        context.guards.enter(context.run, ())
        await context.emit(self._started(context))
        inbox.close()
        self.scope.check_not_paused()
        if self.scope.labels:
            await clear_request(self.scope.labels, self.scope.approvals, context.conversation, self.scope.waiting)
        for event in await self.compactor.compact(context.run, context.conversation, self.totals):
            await context.emit(event)
        await context.emit(self.finished(ANSWERED, context.conversation))


def compacting_agent(factory: RunFactory, principal: Principal, options: RunOptions) -> CompactingAgent:
    """Return the agent of one run, with options that `resolved` returned. Raises UnknownModel, ModeForbidden."""
    route = factory.route(principal, options)
    scope, utility = factory.scope(principal, options, route, NO_TOOLS), factory.models.utility(route)
    notes = SideQuery(utility, scope.run_budget, utility, factory.settings.summary_time_limit_s)
    return CompactingAgent(
        route,
        ToolExecutor(scope),
        RelayView(route, NO_PARAMETERS),
        LimitEnforcer(factory.limits(options)),
        compactor=Compactor(Summariser(notes), factory.store.summaries),
    )


async def policy_kept(store: Store, session: str) -> str:
    """Return the options of the session's last run: a follow-up of a job goes on with them behind the summary, too."""
    last = await store.last_runs(session, None, 1)
    try:
        return stored_options(last[0].policy).policy() if last else "{}"
    except NotFound:
        return "{}"


async def check_compactable(agent: CompactingAgent, store: Store, session: str) -> None:
    """Raises NothingToCompact, StoreFailed."""
    messages = await store.messages(session)
    if awaits_results(messages):
        raise NothingToCompact(
            "Calls of this conversation wait for the results of its client. Send these with POST /chat first."
        )
    if await agent.compactor.older_half(session, messages) is None:
        raise NothingToCompact(
            "The older half of this conversation is too short for a summary. Go on, and ask again when it is longer."
        )
