"""The repairing relay: one round of a model for a client that has a loop of its own.

Nothing is added to what the client sends: no prompt, no time, no tools of ours, no nudges, no summaries. The answer is
mended: every call, in whatever dialect, is handed over as one call of the client's tools, and thoughts are apart.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing
from functools import partial
from typing import Any, ClassVar

from msgspec import Struct, field
from msgspec.structs import replace

from app.budget.kinds import BudgetSpent
from app.core.events import (
    AgentEvent,
    Notice,
    RoundStarted,
    TextDelta,
    TextReclassified,
    ToolRejected,
    Usage,
)
from app.core.messages import AskedCall, Message
from app.core.provider import ProviderFailed
from app.core.time_slice import in_heavy_thread
from app.models.wire.call_ids import CallIds, id_for_client, unpacked
from app.models.wire.tool_choice import may_call
from app.policy.call_rows import CallRequest, code_of, decide_call
from app.policy.decision_facts import facts_of
from app.provenance.native_text import calls_in_text
from app.runs.agent import Agent
from app.runs.client_tools import tool_of
from app.runs.discipline.doubted_calls import TEXT_CALL
from app.runs.discipline.limit_enforcer import ANSWERED
from app.runs.recovery.left_off import LeftOff
from app.runs.relay.doubted_text import DoubtedText
from app.runs.relay.json_answer import JSONAnswer
from app.runs.run_context import RunContext
from app.runs.run_options import ClientTool
from app.transcript.client_calls import fitted_for_client, handed_event
from app.transcript.conversation import Conversation
from app.transcript.inbox import Inbox
from app.transcript.reply import Reply, TextCalls
from app.transcript.round_plan import RoundPlan
from tools.base.rights import CLIENT_TOOLS
from tools.base.schemas import CHECKS, client_argument_error
from tools.base.tasks import import_in_thread
from tools.tool import Tool
from tools.toolbox import Decision, Refuse

TIME_LIMIT_S = 60.0  # of a question for calls that fit
ONLY_ROUND = RoundPlan(ends=ANSWERED)  # so that nothing goes on if the answer breaks off
REPAIRED = "The model was asked once more for calls that did not fit their schemas, and has corrected them."
UNREPAIRED = "The model was asked once more for calls that did not fit their schemas, without success."
FITS = "This call fits. Make it again, together with the corrected ones."
TOO_MANY = "This call was not handed over: a reply may make {limit} calls, and they are made."
LEFT_IN_TEXT = (
    "What looks like a call of {names} was left in the text: it may be a quotation, and this model calls its tools "
    "natively."
)
UNREADABLE = "A call of {name} could not be read and was left out: {reason}"


class RelayedCall(Struct, frozen=True):
    """A call for the client. `unreadable`: why its arguments could not be read."""

    call: AskedCall
    unreadable: str = ""


def written(call: AskedCall) -> str:
    return json.dumps({"name": call.name, "arguments": call.arguments}, ensure_ascii=False)


class RelayAgent(Agent):
    """An agent of one round, whose tools are all the client's.

    `parameters` are those of the client's request. `repairs`: calls that do not fit are asked for once more.
    """

    parameters: Mapping[str, Any] = field(default_factory=dict)
    repairs: bool = False
    json_answer: JSONAnswer | None = None
    doubted_text: DoubtedText | None = None
    adds_words: ClassVar[bool] = False
    takes_messages: ClassVar[bool] = False
    keeps_files: ClassVar[bool] = False

    def imported(self, history: Sequence[Message]) -> Sequence[Message]:
        """Return the history as it is: what its model's server needs of it is done for each request."""
        return history

    async def _run(self, context: RunContext, inbox: Inbox, left: LeftOff | None) -> None:
        context.guards.enter(())
        if self.scope.recorder:
            await self.scope.recorder.begin()
        await context.emit(self._started(context))
        reply = await self._whole_reply(context)
        handed = False
        for call in await self._allowed(context, await self._calls(context, reply)):
            handed = await self._hand_over(context, call) or handed
        inbox.close()
        await self.end_with(context, CLIENT_TOOLS if handed else ANSWERED)

    async def _whole_reply(self, context: RunContext) -> Reply:
        """Return the reply; if it broke off, and another model went on with it, its last part."""
        plan = ONLY_ROUND
        while True:
            self.totals.rounds = 1
            await context.emit(RoundStarted(1))
            reply = self._next_reply(context.conversation)
            self.doubted_text = DoubtedText(reply)
            await self._stream_reply(context, reply, plan)
            if not self.discipline.has_broken_off():
                return reply
            plan = replace(ONLY_ROUND, go_on="")

    def _switches(self, reply: Reply, failure: ProviderFailed) -> bool:
        """Return True only if the server of the other model can continue a message: it is asked in no words."""
        if not self.provider.continues or reply.calls or not reply.shown.strip():
            failure.successor = None
        return super()._switches(reply, failure)

    @property
    def _takes_calls(self) -> bool:
        """Return False where the client has no tools, or wants no calls: what looks like one is text."""
        return not self.toolbox.is_empty and may_call(self.parameters)

    async def _allowed(self, context: RunContext, calls: Sequence[RelayedCall]) -> list[RelayedCall]:
        """Return the calls that may be handed over, once usage and audit are durable. Raises StoreFailed."""
        allowed, most = list[RelayedCall](), self.discipline.limits.calls
        if self._takes_calls and (hooks := self.scope.hooks):  # also about what the client has not declared
            may_go = [one.call for one in calls if not isinstance(self._decision(one.call), Refuse)]
            await hooks.before_calls(may_go, context.conversation, untrusted=self.scope.gate.policy.tainted)
        for number, relayed in enumerate(calls):
            if not self._takes_calls:  # the model's server has made it although none was wanted
                await context.emit(TextDelta(written(relayed.call)))
                continue
            request = self._call_request(relayed.call)
            decision = decide_call(request)
            if number >= most > 0:
                await context.emit(ToolRejected(TOO_MANY.format(limit=most), relayed.call.id, relayed.call.name))
                continue
            if not relayed.unreadable:
                facts = facts_of(request, self.scope.gate, self._tool(relayed.call), relayed.call.arguments)
                self.calls.audit(context, relayed.call, decision, facts)
            if isinstance(decision, Refuse):
                code = code_of(decision)
                await context.emit(ToolRejected(decision.reason, relayed.call.id, relayed.call.name, code))
            else:
                allowed.append(relayed)
        await context.conversation.stored()
        return allowed

    def _decision(self, call: AskedCall) -> Decision:
        """Decide whether the principal may have its client run this tool, which the client may not have declared."""
        return decide_call(self._call_request(call))

    def _call_request(self, call: AskedCall) -> CallRequest:
        gate, hooks = self.scope.gate, self.scope.hooks
        return CallRequest(
            name=call.name,
            policy=gate.policy,
            dispatch=partial(gate.decide, self._tool(call), call.arguments),
            hook=hooks.decision(call.id, is_handed=True) if hooks else None,
            is_handed=True,
        )

    def _tool(self, call: AskedCall) -> Tool:
        return self.toolbox.tool(call.name) or tool_of(ClientTool.model_construct(name=call.name))

    def _corrected(self, events: Iterable[AgentEvent]) -> Iterable[AgentEvent]:
        """Return a reply's events, up to the first doubted call; of an answer that is to be JSON only that."""
        events = self.doubted_text.passed(events) if self.doubted_text else events
        return self._only_json(events, self.json_answer) if self.json_answer else events

    def _only_json(self, events: Iterable[AgentEvent], answer: JSONAnswer) -> Iterator[AgentEvent]:
        for event in events:
            match event:
                case TextDelta(text):
                    if text := answer.feed(text):
                        yield TextDelta(text)
                case TextReclassified():
                    if shown := answer.restart():
                        yield TextReclassified(shown)
                case _:
                    yield event

    async def _end_reply(self, context: RunContext, reply: Reply) -> None:
        await super()._end_reply(context, reply)
        if self.doubted_text and reply.doubts_text:
            await self._settle(context, reply, self.doubted_text)
        if self.json_answer and (rest := await in_heavy_thread(self.json_answer.close)):
            await context.emit(TextDelta(rest))

    async def _calls(self, context: RunContext, reply: Reply) -> list[RelayedCall]:
        """Return the calls of the reply, none if it was cut: corrected by one more question where `repairs` says so."""
        calls = self._fitted(reply)
        if calls and self.repairs:
            await import_in_thread(CHECKS)
        wrong = self._problems(reply, calls) if self.repairs else {}
        if not wrong:
            return calls
        again = self._reply(context.conversation)
        try:
            usage = await self._ask_again(context, wrong, again)
        except BudgetSpent as spent:  # the calls are made and paid
            await context.emit(Notice("budget", str(spent)))
            return calls
        await context.emit(usage)
        if again.doubts_text:
            again.found_calls.leave_in_text([call.id for call in again.found_calls.in_text])
        corrected = self._fitted(again)
        better = corrected and not self._problems(again, corrected)
        await context.emit(Notice("call_repair", REPAIRED if better else UNREPAIRED))
        return corrected if better else calls

    def _problems(self, reply: Reply, calls: Sequence[RelayedCall]) -> dict[str, str]:
        """Return why calls do not fit, by call: those that could not be read, and those that their schemas refuse."""
        found = dict[str, str]()
        for call in (one.call for one in calls):
            schema = self.toolbox.schemas.get(call.name)
            reason = reply.refused.get(call.id) or (schema and client_argument_error(call.name, schema, call.arguments))
            if reason:
                found[call.id] = reason
        return found

    async def _ask_again(self, context: RunContext, wrong: Mapping[str, str], reply: Reply) -> Usage:
        """Have the model make the calls of its last message again; they are in `reply` afterwards, if it has made any.

        Nothing of it is shown, and the conversation stays as the client knows it. Raises BudgetSpent, StoreFailed.
        """
        conversation, budget = context.conversation, self.scope.run_budget
        fitted = await self.view.fit(conversation, self.toolbox.offered, ONLY_ROUND, self.totals)
        calls = conversation.messages[-1].calls
        results = [Message("tool", wrong.get(call.id, FITS), call=call.id, name=call.name) for call in calls]
        request = replace(fitted.request, messages=[*conversation.messages, *results], inactivity_s=TIME_LIMIT_S)
        counted = fitted.counted + sum(map(fitted.counter.measure, results))
        metered = await budget.metered_request(self.provider, request, counted, conversation)
        with metered.receiving(reply, self.totals):
            try:
                async with asyncio.timeout(TIME_LIMIT_S), aclosing(self.provider.stream(metered.request())) as pieces:
                    async for piece in pieces:
                        tuple(reply.add(piece))
                        if metered.is_outgrown:
                            await metered.afford()
            except (TimeoutError, ProviderFailed) as failure:
                reply.stopped = None  # it broke off: no call of it counts
                if isinstance(failure, ProviderFailed):
                    metered.failed(failure)
            finally:
                tuple(reply.end())
        await budget.check_reply(self.provider, reply, conversation)
        return metered.usage

    def _fitted(self, reply: Reply) -> list[RelayedCall]:
        """Return the calls with names and arguments as the client has declared them."""
        fitted = list[RelayedCall]()
        for call in () if reply.is_cut else reply.calls:
            name, arguments = fitted_for_client(call.name, call.arguments, self.toolbox.schemas)
            fitted.append(RelayedCall(replace(call, name=name, arguments=arguments), reply.refused.get(call.id, "")))
        return fitted

    async def _hand_over(self, context: RunContext, relayed: RelayedCall) -> bool:
        """Hand a call over as the client can take it.

        One whose arguments could not be read goes without any, if the client must refuse that: then the model learns
        of it and calls again.
        """
        call, reason = relayed.call, relayed.unreadable
        self.totals.calls += 1
        if reason and not self._is_refused_empty(call.name):
            await context.emit(Notice("unreadable_call", UNREADABLE.format(name=call.name or "a tool", reason=reason)))
            return False
        context.conversation.hand_over(call.id)
        await context.emit(handed_event(call, context.conversation.redactor))
        return True

    async def _settle(self, context: RunContext, reply: Reply, text: DoubtedText) -> None:
        """Leave calls in the text that may be quotations, or stand in a reply that was cut. Raises StoreFailed."""
        conversation, calls, self.doubted_text = context.conversation, reply.found_calls.in_text, None
        quoted = await self.scope.provenance.quotations(calls, conversation, self.toolbox)
        names = {call.id: call.name for call in calls}
        left = reply.found_calls.leave_in_text(names if reply.is_cut else quoted)
        await context.emit_all(self._corrected(text.released(left)))
        if left:
            called = ", ".join(dict.fromkeys(names[call] or "a tool" for call in left))
            await context.emit(Notice(TEXT_CALL, LEFT_IN_TEXT.format(names=called)))

    def _calls_in_text(self, conversation: Conversation, natively: bool) -> TextCalls:
        if not (self.toolbox.offers and self._takes_calls):
            return TextCalls.IGNORED
        return calls_in_text(self.provider, conversation.messages, natively)

    def _id_for_client(self, conversation: Conversation) -> Callable[[str], str]:
        """The client keeps the history, so it gets the server's own ids, each once: they come back with it."""
        ids = CallIds()
        for message in conversation.messages[: conversation.begins]:
            for call in message.calls:
                ids.take(unpacked(call.id))
        return lambda given: id_for_client(ids.take(given) or "")

    def _is_refused_empty(self, name: str) -> bool:
        schema = self.toolbox.schemas.get(name)
        return schema is not None and client_argument_error(name, schema, {}) is not None
