"""The agent: model, calls, results, again, as one async generator of events."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Collection
from contextlib import aclosing
from dataclasses import dataclass, replace
from functools import partial
from secrets import token_hex

from app.budget.budgets import BudgetSpent
from app.budget.side_query import Aside
from app.context.view import Fitted, View
from app.core.events import AgentEvent, Notice, RoundStarted, RunStarted, ToolRejected
from app.core.provider import TOO_LONG, Provider, ProviderFailed
from app.provenance.native_text import name_of, text_may_call
from app.runs.discipline.limit_enforcer import Discipline
from app.runs.discipline.round_end import TIME_LIMIT_S, Closing
from app.runs.tool_executor import Calls, Unanswered
from app.transcript.conversation import Conversation
from app.transcript.inbox import Inbox
from app.transcript.reply import Reply
from app.transcript.round_plan import Plan
from app.transcript.run_totals import Account
from tools.toolbox import Toolbox

RESUMED = "The server was restarted; the run goes on where it waited."
CONTEXT = "model_context"  # the code of a refusal
MOST_REFUSALS = 4
REFUSED = "The model's server refused the prompt as too long. It is asked again with a shorter one."
STANDS_IN = "Another model stands in, which can read less: it is asked with a shorter prompt."


def new_call_id() -> str:
    """Nine letters and digits: the strictest form a chat template asks for (Mistral's)."""
    return f"c{token_hex(4)}"


@dataclass(slots=True)
class Agent:
    """Everything one run works with."""

    provider: Provider
    calls: Calls
    view: View
    discipline: Discipline
    may_go_on: Callable[[], None]  # raises Paused; asked before each model request
    new_id: Callable[[], str] = new_call_id

    @property
    def account(self) -> Account:
        return self.calls.account

    @property
    def toolbox(self) -> Toolbox:
        return self.calls.toolbox

    async def run(
        self, run: str, conversation: Conversation, inbox: Inbox, left: Unanswered | None = None
    ) -> AsyncGenerator[AgentEvent, None]:
        """All events of a run; the last one is RunFinished.

        Raises ProviderFailed, ContextOverflow, Paused, BudgetSpent, StoreFailed. `left`: what a run that goes on after
        a restart has yet to answer.
        """
        self.calls.guards.enter(run, conversation.messages if left else ())
        self.view.run = run
        yield Notice("resumed", RESUMED) if left else self._started(run, conversation.session)
        waiting = left or Unanswered()
        async with aclosing(self._answer(run, waiting, conversation, told=waiting.refused)) as answered:
            async for event in answered:
                yield event
        closing = self._closing(conversation, inbox)
        while self.discipline.over is None:
            plan = self.discipline.plan(self.account, offers=self.toolbox.offers)
            self.account.rounds += 1
            yield RoundStarted(self.account.rounds)
            for notice in plan.notices:
                self.account.saw(notice)
                yield notice
            reply, before = self._reply(conversation), len(conversation.messages)
            async with aclosing(self._listen(reply, conversation, plan)) as heard:
                async for event in heard:
                    yield event
            unanswered = self._unanswered(reply, plan)
            async with aclosing(self._answer(run, unanswered, conversation, told=reply.refused)) as answered:
                async for event in answered:
                    yield event
            async with aclosing(closing.conclude(plan, reply, conversation.messages[before:])) as concluded:
                async for event in concluded:
                    yield event
        for event in () if closing.silent else await self.calls.guards.judge_answer(self.account, conversation):
            yield event
        yield self.account.finished(self.discipline.over)

    def _reply(self, conversation: Conversation) -> Reply:
        return self.calls.guards.reply(
            conversation,
            self.toolbox.schemas,
            fences=lambda: self.provider.teach_fences,
            new_id=self.new_id,
            prompt_suffix=self.provider.prompt_suffix,
            text_calls=partial(text_may_call, self.provider, conversation.messages),
        )

    def _unanswered(self, reply: Reply, plan: Plan) -> Unanswered:
        """The calls of a reply, with why those are refused that the rules of this round leave out."""
        return Unanswered(reply.calls, {**reply.refused, **self.discipline.refusals(plan, reply, self.account)})

    async def _answer(
        self, run: str, unanswered: Unanswered, conversation: Conversation, *, told: Collection[str]
    ) -> AsyncGenerator[AgentEvent, None]:
        """Answer calls, and remember what becomes of each. `told` are those whose refusal the client knows of."""
        refused = unanswered.refused
        for call in (call for call in unanswered.calls if call.id in refused):
            rejected = self.calls.guards.plain(ToolRejected(refused[call.id], call.id, call.name or None))
            self.account.saw(rejected)
            if call.id not in told:
                yield rejected
        async with aclosing(self.calls.answer(run, unanswered, conversation)) as answered:
            async for event in answered:
                self.account.saw(event)
                yield event

    def _closing(self, conversation: Conversation, inbox: Inbox) -> Closing:
        aside = Aside(self.provider, self.calls.spending, self.view.counters, TIME_LIMIT_S)
        new_reply = partial(self._reply, conversation)
        return Closing(
            self.discipline, aside, self.account, conversation, inbox, new_reply, self.toolbox.changes, self.may_go_on
        )

    def _started(self, run: str, session: str) -> RunStarted:
        tools = [tool.name for tool in self.toolbox.offered]
        context, under = self.calls.context, self.calls.gate.under
        limits: dict[str, float | str] = {
            **self.discipline.limits.told(),
            "tool_time_limit_s": context.time_limit_s,
            "approval": under.mode,
            "sandbox": context.sandbox.level,
        }
        if under.asks_nobody:
            limits["when_absent"] = "deny"
        return RunStarted(run, session, self.provider.model, tools, limits)

    async def _listen(self, reply: Reply, conversation: Conversation, plan: Plan) -> AsyncGenerator[AgentEvent, None]:
        """The model's stream as events. A server that refuses the prompt as too long is asked again, with less."""
        for _ in range(MOST_REFUSALS):
            self.may_go_on()
            fitted = await self.view.fit(conversation, self.toolbox.offered, plan, self.account)
            for event in fitted.events:
                yield event
            try:
                async with aclosing(self._hear(reply, conversation, fitted)) as heard:
                    async for event in heard:
                        yield event
                return
            except ProviderFailed as failure:
                if broken := self.discipline.go_on(plan, reply, failure, self.account):
                    yield broken
                    return
                if failure.code != CONTEXT or reply.begun or not self.view.refused(fitted, failure):
                    raise
                refusal = failure
            yield Notice("context", REFUSED if self.view.was_for(fitted) else STANDS_IN)
        raise refusal

    async def _hear(self, reply: Reply, conversation: Conversation, fitted: Fitted) -> AsyncGenerator[AgentEvent, None]:
        """One request; what the model said is in the history afterwards, however the stream ends."""
        self.may_go_on()  # a summary may have taken its time
        asking = await self.calls.spending.asking(self.provider, fitted.request, fitted.counted, conversation)
        with asking.hearing(reply, self.account):  # a request that is cut off has cost tokens too
            try:
                request = replace(asking.request, left_s=self.discipline.left_s())
                async with aclosing(self.provider.stream(request)) as pieces:
                    async for piece in pieces:
                        for event in reply.add(piece):
                            yield event
                        asking.heard()
            except (ProviderFailed, BudgetSpent):
                for event in reply.end():  # what it had said is still shown
                    yield event
                raise
            else:
                for event in reply.end():
                    yield event
            finally:
                said = self.discipline.so_far + reply.shown
                self.account.text = conversation.redactor.redact(said)  # before it is cut, perhaps in a secret
                if reply.characters or reply.calls:
                    message = reply.message(cut=reply.stopped in (None, TOO_LONG))
                    by = name_of(self.provider) if reply.called_natively else ""
                    conversation.append(replace(message, by=by))
                # Else another model has answered, or what was counted is a guess.
                if reply.used and self.view.was_for(fitted) and not fitted.pictured:
                    fitted.counter.learn(fitted.counted, reply.used.prompt_tokens, fitted.scale)
        yield asking.usage
        if reply.stopped == "length":
            yield Notice("cut", "The model reached its token limit in the middle of this answer.")
        if spent := asking.spent(reply.stopped):
            raise spent
