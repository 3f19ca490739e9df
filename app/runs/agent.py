"""The agent: model, calls, results, again. `Agent.run` is the one async generator of a run's events."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Iterable, Iterator, Sequence
from contextlib import aclosing
from functools import partial
from secrets import token_hex
from time import monotonic
from typing import ClassVar

from msgspec import Struct, field
from msgspec.structs import replace

from app.budget.kinds import COST, TOKENS, TOOL_SECONDS, BudgetKind, BudgetSpent
from app.budget.metered_request import MeteredRequest
from app.budget.side_query import SideQuery
from app.checkpoints.scratch import Tell
from app.context.view import Fitted, RelayView, View
from app.core.events import (
    AgentEvent,
    Notice,
    ReasoningDelta,
    RoundStarted,
    RunFinished,
    RunStarted,
    TextReclassified,
    ToolFinished,
)
from app.core.messages import Message
from app.core.provider import (
    REPLY_CHANGED,
    TOO_LONG,
    CallForm,
    Provider,
    ProviderFailed,
    TakeText,
    TextPiece,
    TokenUsage,
    name_of,
)
from app.core.time_slice import HEAVY
from app.documents.news import news_of
from app.labels.consent import clear_request
from app.models.wire.client_history import settled
from app.provenance.native_text import calls_in_text
from app.provenance.own_values import OwnValues
from app.runs.discipline.doubted_calls import ASKED, to_make_natively
from app.runs.discipline.end_judge import EndJudge
from app.runs.discipline.limit_enforcer import BROKEN_OFF, LimitEnforcer
from app.runs.discipline.reminders import CONTINUED, GOES_ON
from app.runs.discipline.round_end import TIME_LIMIT_S, RoundEnd
from app.runs.first_contact import FirstContact
from app.runs.recovery.history import broken_off
from app.runs.recovery.left_off import BROKE_OFF, LeftOff
from app.runs.run_context import EventSink, RunContext
from app.runs.run_options import RunOptions
from app.runs.run_scope import RunScope
from app.runs.tool_executor import ToolExecutor, Unanswered
from app.transcript.conversation import INTERRUPTED, Conversation
from app.transcript.inbox import Inbox
from app.transcript.reply import MOST_BEGINNINGS, NEVER_MADE, Reply, TextCalls, compile_patterns
from app.transcript.reply_calls import rejection
from app.transcript.round_plan import RoundPlan
from app.transcript.run_request import SPEAKER
from app.transcript.run_totals import RunTotals
from app.transcript.timings import TOOLS, RequestTimes
from app.transcript.whole_thoughts import as_answer
from parsing.dialects import FENCED
from parsing.fences import fenced_call
from tools.base.outcome import advice_of
from tools.base.tasks import alone
from tools.toolbox import Toolbox

SUFFIX, THINKS = "prompt_suffix", "<think>\n"  # the ability, and its value for a model whose prompt begins a thought
CONTEXT = "model_context"  # the code of a refusal
MOST_REFUSALS = 4
CHANGED = "The model does not read an earlier reply as it wrote it: {why}."
HIDDEN = "a secret in it is [redacted]"
REFUSED = "The prompt was too long for {model}. Shortening the conversation and trying again (attempt {attempt})."
BEGINS_TOO_OFTEN = f"The answer begins a call, or seems to, more than {MOST_BEGINNINGS:,} times and was cut there."
STANDS_IN = "Another model stands in, which can read less: it is asked with a shorter prompt."


def new_call_id() -> str:
    """Nine letters and digits: the strictest form a chat template asks for (Mistral's)."""
    return f"c{token_hex(4)}"


def no_id(_: str) -> str:
    """Return no id for the client."""
    return ""


def first_request(messages: Sequence[Message]) -> str:
    return next((message.text for message in messages if message.role == "user"), "")


class Agent(Struct):
    """Everything one run works with."""

    provider: Provider
    scope: RunScope
    calls: ToolExecutor
    view: View | RelayView
    discipline: LimitEnforcer
    new_id: Callable[[], str] = new_call_id
    notices: Sequence[AgentEvent] = ()  # emitted at its start
    end_judge: EndJudge = EndJudge()
    first_contact: FirstContact | None = None
    prepare: Callable[[Tell], Awaitable[None]] | None = None  # its workspace, before anything works there
    unmetered: int = 0  # characters of a reply whose request was cut off with its server
    changed: dict[str, bool] = field(default_factory=dict)  # how replies were, and if that is reported
    narrowed: RunOptions | None = None  # the options as profiles have changed them, to be stored with the run
    adds_words: ClassVar[bool] = True  # where limits end a run before the model's first text
    takes_messages: ClassVar[bool] = True  # while it runs
    keeps_files: ClassVar[bool] = True  # in the workspace

    @property
    def totals(self) -> RunTotals:
        return self.scope.totals

    @property
    def toolbox(self) -> Toolbox:
        return self.scope.toolbox

    def budgets(self) -> list[BudgetKind]:
        """Return the kinds of budget that a run of this agent uses."""
        money = self.provider.cost(TokenUsage(1, 1)) is not None
        runs_tools = any(not tool.handed for tool in self.toolbox.offered)
        return [TOKENS, *([COST] if money else []), *([TOOL_SECONDS] if runs_tools else [])]

    def policy_with(self, policy: str) -> str:
        """Return the policy to store with the run: that of its request, as profiles have changed it, and the member."""
        principal = self.scope.gate.principal
        if self.narrowed is None and not principal.is_linked:
            return policy
        narrowed = json.loads(self.narrowed.policy()) if self.narrowed else {}
        return json.dumps(json.loads(policy) | narrowed | ({SPEAKER: principal.member} if principal.is_linked else {}))

    def time_limit_within(self, requested_s: float) -> float:
        """Return the time limit of the run, which profiles may have lowered."""
        return min(requested_s, self.discipline.limits.seconds) if self.narrowed else requested_s

    def run(
        self,
        run: str,
        conversation: Conversation,
        inbox: Inbox,
        left: LeftOff | None = None,
        sink: EventSink | None = None,
    ) -> AsyncGenerator[AgentEvent, None]:
        """Return all events of a run, except for those added to `sink`; the last one is RunFinished.

        Raises ProviderFailed, ContextOverflow, Paused, BudgetSpent, StoreFailed. `left`: where a run was that goes on
        after a restart. `sink` gets the model's text with fewer steps for each token.
        """
        context = RunContext(run, conversation, self.scope.guards, self.totals, sink)
        self.scope.gate.weigh(OwnValues(conversation.messages, self.scope.find_tools(), self.scope.given))
        return context.events(partial(self._run, context, inbox, left))

    async def _run(self, context: RunContext, inbox: Inbox, left: LeftOff | None) -> None:
        conversation = context.conversation
        context.guards.enter(conversation.messages if left else conversation.messages[conversation.begins :])
        with self.totals.times.step(TOOLS):
            await self._wait_for_servers(context)
            await self.toolbox.choose(conversation.session, first_request(conversation.messages))
        if self.scope.recorder:
            await self.scope.recorder.begin()
        if left is None or not left.is_announced:
            await context.emit_all((self._started(context), *self.notices))
        if self.prepare:
            await self.prepare(context.emit)
        round_end = self._round_end(context, inbox)
        again = left is not None and await self._take_up(context, left, round_end)  # in the round that was under way
        if left and self.discipline.over is None:
            await round_end.take_messages()
        while self.discipline.over is None:
            if news := await news_of(self.scope.documents, conversation.session):
                news.enter(conversation)
            plan = self.discipline.plan(self.totals, offers=self.toolbox.offers)
            self.totals.rounds += 1
            if not again:
                await context.emit(RoundStarted(self.totals.rounds))
            again = False
            await context.emit_all(plan.notices)
            reply, before = self._next_reply(conversation), len(conversation.messages)
            await self._stream_reply(context, reply, plan)
            await self._answer(context, await self._unanswered(context, reply, plan), shown=reply.refused)
            await round_end.conclude(plan, reply, conversation.messages[before:])
        if not round_end.silent:
            await context.emit_all(await context.guards.judge_answer(self.totals, conversation))
        await self.end_with(context, self.discipline.over)

    async def _take_up(self, context: RunContext, left: LeftOff, round_end: RoundEnd) -> bool:
        """Finish the round in which the server before has ended. Return True if its request is to be made again.

        Half a reply is kept, and the round goes on with another request.
        """
        conversation = context.conversation
        conversation.logged_starts, conversation.logged_tasks = left.started, left.tasks
        for call in left.unknown:
            conversation.answer(call, INTERRUPTED)
            advice = advice_of(INTERRUPTED)
            event = ToolFinished(call.id, call.name, ok=False, text=INTERRUPTED, duration_s=0.0, advice=advice)
            await context.emit(event)
        for dropped, name in left.dropped.items():
            await context.emit(rejection(BROKEN_OFF, dropped, name))
        if left.characters:
            self.unmetered = left.characters
        if left.reply is not None and not left.reply.cut:
            await self._conclude(context, left, left.reply, round_end)
            return False
        if left.half.strip():
            conversation.append(Message("assistant", left.half, shown=left.half, cut=True))
        elif left.reply is None:
            self.totals.rounds -= left.asked
            return left.asked
        for call in left.calls.calls:
            await context.emit(rejection(BROKEN_OFF, call.id, call.name))
            conversation.answer(call, BROKEN_OFF)
        self.totals.rounds -= 1
        self.discipline.break_off(broken_off(conversation.messages))
        await context.emit(Notice(CONTINUED, GOES_ON.format(why=BROKE_OFF)))
        return False

    async def _conclude(self, context: RunContext, left: LeftOff, kept: Message, round_end: RoundEnd) -> None:
        """Answer the calls of the last reply that have no result, and end its round."""
        conversation, reply = context.conversation, Reply.of_history(kept)
        for call in left.handed:
            conversation.hand_over(call)
        self.calls.handed += [call.id for call in left.calls.calls if call.id in left.handed]
        at = next(at for at, one in reversed([*enumerate(conversation.messages)]) if one.role == "assistant")
        plan = self.discipline.take_up(conversation.messages[conversation.begins : at], left.before)
        self.totals.text = reply.shown
        waiting = left.calls
        refused = {**self.discipline.refusals(plan, reply, left.before), **waiting.refused}
        calls = [call for call in waiting.calls if call.id not in left.handed]
        await self._answer(context, replace(waiting, calls=calls, refused=refused), shown=waiting.refused)
        follows = conversation.messages[at + 1 :]
        if reply.calls or not any(one.role == "user" for one in follows):
            await round_end.conclude(plan, reply, follows)

    async def end_with(self, context: RunContext, reason: str) -> None:
        """Have the final answer checked, and emit the terminal event."""
        hooks, finished = self.scope.hooks, self.finished(reason, context.conversation)
        if hooks:
            await hooks.before_answer(finished.text, context.conversation)
            await hooks.after_answer(reason, finished.text, context.conversation)
        await context.emit(finished)  # nothing is read behind it

    async def _wait_for_servers(self, context: RunContext) -> None:
        """Let MCP servers that were never seen bring their tools before anything is offered."""
        if self.first_contact:
            begins_session = context.conversation.begins == 0
            toolbox = await self.first_contact.wait(context.emit, begins_session=begins_session)
            self.scope.toolbox = toolbox or self.toolbox

    def finished(self, reason: str, conversation: Conversation | None) -> RunFinished:
        """Return the terminal event of a run of this conversation, if that was read."""
        messages = conversation.messages[conversation.begins :] if conversation else ()
        unmade = {message.call for message in messages if message.text == BROKEN_OFF}  # perhaps only thought of
        made = (call for message in messages for call in message.calls if call.id not in unmade)
        calls = (call for call in made if call.dialect == FENCED.name and not self.toolbox.is_handed(call.name))
        schemas = self.toolbox.schemas
        code = [fenced_call(call.name, call.arguments, schemas.get(call.name, {})) for call in calls]
        return self.totals.finished(reason, code)

    def imported(self, history: Sequence[Message]) -> Sequence[Message]:
        """Return a client's history with exactly one result for each call: none is left for a run to make."""
        return settled(history)

    def _reply(self, conversation: Conversation) -> Reply:
        return self.scope.guards.new_reply(conversation)(
            self.toolbox.schemas,
            fences=lambda: self.provider.call_form is CallForm.FENCED,
            new_id=self.new_id,
            id_for_client=self._id_for_client(conversation),
            prompt_suffix=self.provider.prompt_suffix,
            grammar=self.provider.grammar,
            text_calls=partial(self._calls_in_text, conversation),
            is_handed=self.toolbox.is_handed,
            drafts=conversation.drafts,
            keep_file=conversation.keep_file if self.keeps_files else None,
        )

    def _switches(self, reply: Reply, failure: ProviderFailed) -> bool:
        """Return True if another model is to go on with a reply that broke off."""
        return failure.successor is not None and self.discipline.may_go_on(self.totals)

    def _next_reply(self, conversation: Conversation) -> Reply:
        """Return the reply of a round, which goes on with the last one if that broke off."""
        reply, discipline = self._reply(conversation), self.discipline
        reply.expected, reply.earlier = discipline.successor, discipline.so_far
        reply.resumes = broken_off(conversation.messages) if discipline.resumes else ""
        return reply

    def _id_for_client(self, conversation: Conversation) -> Callable[[str], str]:
        """Return a function that makes of a server's id of a call that of our clients; "": a new one of ours."""
        return no_id

    def _calls_in_text(self, conversation: Conversation, natively: bool) -> TextCalls:
        return calls_in_text(self.provider, conversation.messages, natively)

    async def _unanswered(self, context: RunContext, reply: Reply, plan: RoundPlan) -> Unanswered:
        """Return the calls of a reply, with why those are refused that the rules of this round leave out."""
        unreadable = [call for call, reason in reply.refused.items() if reason not in NEVER_MADE]
        refused = {**reply.refused, **self.discipline.refusals(plan, reply, self.totals)}
        if again := to_make_natively(reply, refused, self.toolbox, context):
            await context.emit(ASKED)
        return Unanswered(reply.calls, {**refused, **again}, unreadable=[*unreadable, *again])

    async def _answer(self, context: RunContext, unanswered: Unanswered, *, shown: Collection[str]) -> None:
        """Answer calls. The client knows already that those in `shown` are refused."""
        refused = unanswered.refused
        for call in (call for call in unanswered.calls if call.id in refused and call.id not in shown):
            await context.emit(rejection(refused[call.id], call.id, call.name))
        await self.calls.answer(context, unanswered)
        if self.calls.handed:
            self.discipline.wait_for_client()

    def _round_end(self, context: RunContext, inbox: Inbox) -> RoundEnd:
        return RoundEnd(
            scope=self.scope,
            discipline=self.discipline,
            context=context,
            inbox=inbox,
            side_query=SideQuery(self.provider, self.scope.run_budget, self.view, TIME_LIMIT_S),
            new_reply=partial(self._reply, context.conversation),
            end_judge=self.end_judge,
        )

    def _started(self, run_context: RunContext) -> RunStarted:
        tools = [tool.name for tool in self.toolbox.offered]
        context, policy = self.scope.tool_context, self.scope.gate.policy
        limits: dict[str, float | str] = {
            **self.discipline.limits.as_fields(),
            "tool_time_limit_s": context.time_limit_s,
            "approval": policy.mode,
            "sandbox": context.sandbox.level,
        }
        if policy.unattended:
            limits["when_absent"] = "deny"
        if window := self.scope.terminals.usual:
            limits["terminal"] = f"{window.width}x{window.height}"
        session = run_context.conversation.session
        pinned = self.narrowed.pinned if self.narrowed else None
        profiles = [one.shown for one in pinned.profiles] if pinned else None
        return RunStarted(
            run_context.run,
            session=session,
            model=self.provider.model,
            tools=tools,
            limits=limits,
            profiles=profiles or None,
        )

    async def _stream_reply(self, context: RunContext, reply: Reply, plan: RoundPlan) -> None:
        """Emit the model's stream. If the server refuses the prompt as too long, request again with a shorter one."""
        for attempt in range(2, MOST_REFUSALS + 2):
            self.scope.check_not_paused()
            if self.scope.labels:
                await clear_request(self.scope.labels, self.scope.approvals, context.conversation, self.scope.waiting)
            since = monotonic()
            fitted = await self.view.fit(context.conversation, self.toolbox.offered, plan, self.totals)
            times = RequestTimes(since, since, fitted=monotonic())
            await context.emit_all(fitted.events)
            self._record(context.conversation, fitted, plan)
            if self.unmetered:
                cut = await self.scope.run_budget.cut_request(
                    self.provider, fitted.counted, self.unmetered, conversation=context.conversation, totals=self.totals
                )
                await context.emit(cut)
                self.unmetered = 0
            try:
                return await self._request(context, reply, fitted, times)
            except ProviderFailed as failure:
                if broken := self.discipline.go_on(plan, reply, failure, self.totals):
                    return await context.emit(broken)
                if failure.code != CONTEXT or reply.has_started or not self.view.refused(fitted, failure):
                    raise
                refusal = failure
            fits = self.view.fits_model(fitted)
            why = REFUSED.format(model=self.provider.model, attempt=attempt) if fits else STANDS_IN
            await context.emit(Notice("context", why, attempt=attempt if fits else None))
        raise refusal

    def _record(self, conversation: Conversation, fitted: Fitted, plan: RoundPlan) -> None:
        if recorder := self.scope.recorder:
            opening = self.view.opening(self.toolbox.offered if plan.tools else ())
            removed = conversation.messages if fitted.events else ()
            form, window = self.provider.call_form, fitted.counter.window_of(conversation.session)
            recorder.fitted(fitted, opening, form, window=window, taught=plan.tools, removed=removed)

    async def _request(self, context: RunContext, reply: Reply, fitted: Fitted, times: RequestTimes) -> None:
        """Make one request; `times` are those of its preparation.

        What the model wrote is in the history afterwards, however the stream ends.
        """
        self.scope.check_not_paused()  # a summary may have taken its time
        conversation, emit = context.conversation, context.emit
        if news := [why for why, is_reported in self.changed.items() if not is_reported]:
            self.changed |= dict.fromkeys(news, True)
            await emit(Notice(REPLY_CHANGED, CHANGED.format(why="; ".join(news))))
        if not compile_patterns.cache_info().currsize:  # the first request has come before the server's warm-up
            await asyncio.to_thread(alone, compile_patterns)
        metered_request = await self.scope.run_budget.metered_request(
            self.provider, fitted.request, fitted.counted, conversation
        )
        with metered_request.receiving(reply, self.totals, times):  # a request that is cut off has cost tokens too
            try:
                take_text = self._taking(context, reply, metered_request)
                request = metered_request.request(left_s=self.discipline.left_s(), take_text=take_text)
                async with aclosing(self.provider.stream(request)) as pieces:
                    async for piece in pieces:
                        for event in self._corrected(await reply.added(piece)):
                            await emit(event)
                        if metered_request.is_outgrown:
                            await metered_request.afford()
                        if reply.begins_too_often:
                            reply.stopped = TOO_LONG
                            await emit(Notice("cut", BEGINS_TOO_OFTEN))
                            break
            except (ProviderFailed, BudgetSpent) as failure:
                if isinstance(failure, ProviderFailed) and self._switches(reply, failure):
                    await context.emit_all(self._corrected(reply.break_off(BROKEN_OFF)))
                else:
                    await self._end_reply(context, reply)  # what it had said
                raise
            else:
                await self._end_reply(context, reply)
            finally:
                self._keep(conversation, reply, fitted)
        await emit(metered_request.usage)
        await self.scope.run_budget.check_reply(self.provider, reply, conversation)
        if reply.stopped == "length":
            await emit(Notice("cut", "The model reached its token limit in the middle of this answer."))
        if spent := metered_request.spent(reply.stopped):
            raise spent

    def _taking(self, context: RunContext, reply: Reply, metered_request: MeteredRequest) -> TakeText | None:
        """Return the function that handles text as it is read. What needs waiting is left to the stream of pieces."""
        if (sink := context.sink) is None:
            return None

        def take_text(piece: TextPiece) -> bool:
            must_wait = sink.full or reply.undecided > HEAVY or not metered_request.has_room(len(piece.text))
            if must_wait or reply.begins_too_often:
                return False
            for event in self._corrected(reply.add(piece)):
                context.emit_now(event, sink)
            return True

        return take_text

    async def _end_reply(self, context: RunContext, reply: Reply) -> None:
        await context.emit_all(self._corrected(await reply.ended()))
        if reply.has_ended_open_thought:
            self.provider.show(SUFFIX, THINKS, "an answer ended a thought that its prompt had begun")
        elif reply.is_only_thought and self.provider.ability(SUFFIX).source == "answer":
            self.provider.show(SUFFIX, "", "an answer came without a thought")
            await context.emit(reply.show_thought())
        await context.emit_all(self._corrected(as_answer(self.provider, reply, asks_again=self.adds_words)))

    def _corrected(self, events: Iterable[AgentEvent]) -> Iterable[AgentEvent]:
        """Return a reply's events. The end of a thought ends it also in the replies before that broke off in it."""
        return self._with_earlier(events) if self.discipline.so_far else events

    def _with_earlier(self, events: Iterable[AgentEvent]) -> Iterator[AgentEvent]:
        for event in events:
            if isinstance(event, TextReclassified) and (earlier := self.discipline.take_back()):
                yield TextReclassified(len(earlier) + event.characters)
                yield ReasoningDelta(earlier)
            else:
                yield event

    def _keep(self, conversation: Conversation, reply: Reply, fitted: Fitted) -> None:
        said = self.discipline.so_far + reply.shown
        self.totals.text = conversation.redactor.redact(said)  # before it is cut, perhaps in a secret
        if reply.has_started or reply.calls:
            message = reply.message(cut=reply.stopped in (None, TOO_LONG))
            if reply.has_native:
                message = replace(message, by=name_of(self.provider))
            conversation.append(message)
            if conversation.messages[-1] is not message:
                reply.changed.append(HIDDEN)
            self.changed = dict.fromkeys(reply.changed, False) | self.changed
        # Else another model has answered, or what was counted is a guess.
        if reply.used and self.view.fits_model(fitted) and not fitted.has_attachments:
            fitted.counter.learn(fitted.counted, reply.used.prompt_tokens, fitted.scale)
