"""Runs that summarise the older half of their session, and do nothing else: no tools, no memory, no answer."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import ClassVar

from app.budget.side_query import SideQuery
from app.config.folders import FolderUnusable
from app.context.compaction.replay import CachedCounter
from app.context.compaction.summarise import MessageRange, Summariser
from app.context.compaction.summary import cut_position
from app.context.view import RelayView, View
from app.core.events import AgentEvent
from app.core.messages import Message, for_models, unanswered
from app.labels.consent import clear_request
from app.runs.agent import Agent, first_request
from app.runs.composition.refusals import UNFIT
from app.runs.composition.unattended import stored_options
from app.runs.discipline.limit_enforcer import ANSWERED, LimitEnforcer
from app.runs.recovery.left_off import LeftOff
from app.runs.run_context import RunContext
from app.runs.run_factory import NO_PARAMETERS, RunFactory
from app.runs.run_options import RunOptions
from app.runs.tool_executor import ToolExecutor
from app.storage.principals import Principal
from app.storage.sessions import SummaryRow
from app.storage.store import Store
from app.transcript.conversation import Conversation
from app.transcript.inbox import Inbox
from app.transcript.run_request import NotFound
from tools.tool import NO_TOOLS
from tools.toolbox import Toolbox

LEAST = 256  # tokens to summarise: what stands around the notes takes about a hundred


class NothingToCompact(Exception):
    """The older half of the session is too short to be summarised, or waits for its client."""


class CompactingAgent(Agent, kw_only=True):
    """An agent that asks its model for one summary. Nothing is half: the summary is one row, or there is none.

    `summaries` returns those of a session, the one of most messages last. `offers` are the tools of the session's other
    runs, if its view is theirs.
    """

    summariser: Summariser
    offers: Toolbox | None = None
    summaries: Callable[[str], Awaitable[Sequence[SummaryRow]]]
    adds_words: ClassVar[bool] = False
    takes_messages: ClassVar[bool] = False
    keeps_files: ClassVar[bool] = False  # so that it runs at any server

    async def _run(self, context: RunContext, inbox: Inbox, left: LeftOff | None) -> None:
        context.guards.enter(())
        await context.emit(self._started(context))
        inbox.close()
        self.scope.check_not_paused()
        if self.scope.labels:
            await clear_request(self.scope.labels, self.scope.approvals, context.conversation, self.scope.waiting)
        await context.emit_all(await self._compact(context.conversation))
        await context.emit(self.finished(ANSWERED, context.conversation))

    async def _compact(self, conversation: Conversation) -> Sequence[AgentEvent]:
        """Store the summary, and return the events that say so, or why there is none. Raises StoreFailed."""
        message_range = await self.older_half(conversation.session, conversation.messages)
        if message_range is None:
            return ()
        redacted: MessageRange = conversation.redactor.redact_value(message_range)
        if isinstance(self.view, View) and self.offers:
            await self.offers.choose(conversation.session, first_request(conversation.messages))
            return await self.view.compact(redacted, conversation, self.offers.offered, self.totals)
        _, events = await self.summariser.summarise(redacted, conversation, self.totals)
        return events

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


async def compacting_agent(
    factory: RunFactory, principal: Principal, options: RunOptions, session: str
) -> CompactingAgent:
    """Return the agent of one run, with options that `resolved` returned. Raises UnknownModel, ModeForbidden.

    It asks behind the requests of the session's last run, unless another model is wanted, or that run could not be made
    any more.
    """
    last = await last_options(factory.store, session)
    if last is None or options.model not in (None, last.model):
        return _apart(factory, principal, options)
    try:
        agent = await factory.agent(principal, last, session)
    except (*UNFIT, FolderUnusable):
        return _apart(factory, principal, options)
    scope, view, offers = agent.scope, agent.view, agent.toolbox
    if not isinstance(view, View) or view.summariser is None:
        return _apart(factory, principal, options)
    scope.toolbox = factory.scope(principal, last, factory.route(principal, last), NO_TOOLS).toolbox
    scope.memory = scope.documents = scope.checkpoints = scope.delegation = scope.hooks = scope.recorder = None
    view.entered = None
    return CompactingAgent(
        agent.provider,
        scope,
        ToolExecutor(scope),
        view,
        LimitEnforcer(factory.limits(options)),
        summariser=view.summariser,
        offers=offers,
        summaries=factory.store.summaries,
    )


def _apart(factory: RunFactory, principal: Principal, options: RunOptions) -> CompactingAgent:
    """Return an agent that has the messages summarised as data."""
    route = factory.route(principal, options)
    scope, utility = factory.scope(principal, options, route, NO_TOOLS), factory.models.utility(route)
    notes = SideQuery(utility, scope.run_budget, utility, factory.settings.summary_time_limit_s)
    return CompactingAgent(
        route,
        scope,
        ToolExecutor(scope),
        RelayView(route, NO_PARAMETERS),
        LimitEnforcer(factory.limits(options)),
        summariser=Summariser(notes),
        summaries=factory.store.summaries,
    )


async def last_options(store: Store, session: str) -> RunOptions | None:
    """Return the options of the session's last run, if they are still valid. Raises StoreFailed."""
    last = await store.last_runs(session, None, 1)
    try:
        return stored_options(last[0].policy) if last else None
    except NotFound:
        return None


async def policy_kept(store: Store, session: str) -> str:
    """Return the options of the session's last run: a follow-up of a job goes on with them behind the summary, too."""
    last = await last_options(store, session)
    return last.policy() if last else "{}"


async def check_compactable(agent: CompactingAgent, store: Store, session: str) -> None:
    """Raises NothingToCompact, StoreFailed."""
    messages = await store.messages(session)
    if next(unanswered(messages), None):  # they belong in front of anything else
        raise NothingToCompact(
            "Calls of this conversation wait for the results of its client. Send these with POST /chat first."
        )
    if await agent.older_half(session, messages) is None:
        raise NothingToCompact(
            "The older half of this conversation is too short for a summary. Go on, and ask again when it is longer."
        )
