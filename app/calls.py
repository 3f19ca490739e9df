"""Answering a reply's calls: each is decided on, shown to a person where that is due, run, and answered once."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace

from app.account import Account
from app.approvals import Approvals, resolution
from app.conversation import Conversation
from app.events import (
    AgentEvent,
    ApprovalRequired,
    ToolFinished,
    ToolProgress,
    ToolRejected,
    ToolStarted,
)
from app.gate import Gate
from app.guards import Guards
from app.messages import AskedCall
from app.questions import Questions
from app.spending import Running, Spending
from app.store import ApprovalRow, AuditRow
from tools.permit import Permit, fingerprint
from tools.rights import Risk
from tools.tool import Context, Progress, Result
from tools.toolbox import Allow, Ask, Decision, Refuse, Toolbox

POLICY = "policy"
MAX_ACTION = 200  # characters of a name that a model may have made up
DECISIONS: dict[type, str] = {Allow: "allow", Ask: "ask", Refuse: "refuse"}


@dataclass(frozen=True, slots=True)
class Unanswered:
    """Calls to answer; `refused`: call -> why it could not be understood.

    Of a run that goes on after a restart: the first of them was `asked` for before, and `resolved` if the log says
    what was decided.
    """

    calls: Sequence[AskedCall] = ()
    refused: Mapping[str, str] = field(default_factory=dict)
    asked: ApprovalRow | None = None
    resolved: bool = False


@dataclass(slots=True)
class Calls:
    """What the calls of one run need."""

    toolbox: Toolbox
    gate: Gate
    context: Context
    approvals: Approvals
    spending: Spending
    may_go_on: Callable[[], None]  # raises Paused; asked before each tool
    account: Account = field(default_factory=Account)
    guards: Guards = field(default_factory=Guards)

    async def answer(
        self, run: str, unanswered: Unanswered, conversation: Conversation
    ) -> AsyncGenerator[AgentEvent, None]:
        """Every call gets exactly one result under its own id, in the order called."""
        refused, asked = unanswered.refused, unanswered.asked
        calls = [conversation.redactor.redact_value(self._meant(call)) for call in unanswered.calls]  # shown as run
        for usage in await self._judge(calls, refused, conversation):
            yield usage
        for wanted in calls:
            self.account.calls += 1
            call = self.guards.plain(wanted)
            if call.id in refused:
                conversation.answer(call, self.guards.plain(refused[call.id]))
                continue
            decision, by = self._decide(wanted)
            conversation.record(self._audit(run, call, decision, by))
            if isinstance(decision, Refuse):
                if row := await self.approvals.withdraw(run, by):  # it was asked for before the server was restarted
                    yield resolution(row)
                yield ToolRejected(decision.reason, call.id, call.name)
                conversation.answer(call, decision.reason)
                for notice in self.guards.news(conversation):
                    yield notice
                continue
            if asked and asked.call == call.id:  # what a person says of it holds, whatever the rules say by now
                answering = self._decided(run, call, asked, conversation, resolved=unanswered.resolved)
            elif isinstance(decision, Ask):
                answering = self._ask(run, call, decision.reason, conversation)
            else:
                answering = self._run(run, call, conversation)
            async with aclosing(answering) as events:
                async for event in events:
                    yield event

    def _meant(self, call: AskedCall) -> AskedCall:
        """The call that the gate decides on, people see and the tool gets, whatever door it came through."""
        name, arguments = self.toolbox.meant(call.name, call.arguments)
        return call if name == call.name else replace(call, name=name, arguments=arguments)

    async def _judge(
        self, calls: Sequence[AskedCall], refused: Mapping[str, str], conversation: Conversation
    ) -> Sequence[AgentEvent]:
        """Of those calls that would be run, the ones that can do more than read."""
        if not self.guards.judges_output:
            return ()
        effects = [
            call
            for call in calls
            if call.id not in refused and self._has_effect(call) and not isinstance(self._decide(call)[0], Refuse)
        ]
        if effects:
            self.may_go_on()
        return await self.guards.judge_calls(effects, self.account, conversation)

    def _decide(self, call: AskedCall) -> tuple[Decision, str]:
        """The decision, and who made it."""
        if objection := self.guards.objection(call, effect=self._has_effect(call)):
            return Refuse(objection.reason), objection.by
        return self.toolbox.decide(call.name, call.arguments), POLICY

    def _has_effect(self, call: AskedCall) -> bool:
        tool = self.toolbox.tool(call.name)
        return tool is None or tool.risk is not Risk.READ

    async def _ask(
        self, run: str, call: AskedCall, reason: str, conversation: Conversation
    ) -> AsyncGenerator[AgentEvent, None]:
        row = self.approvals.open(run, conversation.session, self.gate.principal, call, reason)
        conversation.record(row)
        yield ApprovalRequired(call.id, call.name, call.arguments, reason, row.expires)
        await conversation.stored()
        async with aclosing(self._decided(run, call, row, conversation)) as events:
            async for event in events:
                yield event

    async def _decided(
        self, run: str, call: AskedCall, row: ApprovalRow, conversation: Conversation, *, resolved: bool = False
    ) -> AsyncGenerator[AgentEvent, None]:
        """Wait for the decision and do as it says; with `resolved` the client knows of it."""
        row = await self.approvals.wait(row)
        if not resolved:
            yield resolution(row)
        if row.state != "approved":
            denial = denial_of(row, self.approvals.time_limit_s)
            yield ToolRejected(denial, call.id, call.name)
            conversation.answer(call, denial)
            return
        if row.scope == "session":
            self.gate.grant(await self.approvals.grants(conversation.session))
        final = replace(call, arguments=json.loads(row.edited)) if row.edited else call
        # What the person saw, not what stands in the history now.
        approved = fingerprint(row.principal, final.name, final.arguments) if row.edited else row.fingerprint
        permit = Permit(approved)
        note = f"[{row.by} changed the arguments to {row.edited}]\n" if row.edited else ""
        async with aclosing(self._run(run, final, conversation, permit, note)) as events:
            async for event in events:
                yield event

    async def _run(
        self, run: str, call: AskedCall, conversation: Conversation, permit: Permit | None = None, note: str = ""
    ) -> AsyncGenerator[AgentEvent, None]:
        finished: ToolFinished | None = None
        with await self.spending.running(self.context.time_limit_s, conversation) as running:
            self.may_go_on()
            async with aclosing(self._steps(run, call, conversation, running, permit)) as events:
                async for event in events:
                    if isinstance(event, ToolFinished):
                        finished = replace(event, text=note + event.text)
                    else:
                        yield self.guards.plain(event)
        if finished:
            for event in await self._finish(call, finished, conversation):
                yield event

    async def _finish(
        self, call: AskedCall, finished: ToolFinished, conversation: Conversation
    ) -> Sequence[AgentEvent]:
        """The result into the history, as the guards let it pass."""
        told: Sequence[AgentEvent] = ()
        untrusted = self._taints(call.name)
        if untrusted:
            finished, told = await self.guards.screen(finished, self.account, conversation)
        finished = self.guards.plain(finished)
        conversation.answer(call, finished.text, untrusted=untrusted)
        return *told, finished, *self.guards.news(conversation)

    async def _steps(
        self, run: str, call: AskedCall, conversation: Conversation, running: Running, permit: Permit | None
    ) -> AsyncGenerator[AgentEvent, None]:
        conversation.begin(call)
        started = time.monotonic()
        yield ToolStarted(call.id, call.name, call.arguments, call.dialect)
        await conversation.stored()  # with its time: after a kill it must not be run again
        context = replace(
            self.context,
            session=conversation.session,
            time_limit_s=running.limit_s,
            ask=Questions(run, self.approvals, self.gate, conversation),
        )
        async with aclosing(self.toolbox.run(call.name, call.arguments, context, permit)) as seen:
            async for step in seen:
                match step:
                    case Progress(elapsed_s, tail, lines, size):
                        yield ToolProgress(call.id, round(elapsed_s, 2), list(tail), lines, size)
                        running.go_on()
                    case Result(ok, text, exit_code):
                        duration = round(time.monotonic() - started, 3)
                        yield ToolFinished(call.id, call.name, ok, text, duration, exit_code)

    def _taints(self, name: str) -> bool:
        """Whether this tool's results are strangers' words; then the gate knows it from here on."""
        tool = self.toolbox.tool(name)
        if tool is None or not tool.untrusted:
            return False
        self.gate.taint()
        return True

    def _audit(self, run: str, call: AskedCall, decision: Decision, by: str) -> AuditRow:
        who = self.gate.principal.name
        why = "" if isinstance(decision, Allow) else decision.reason
        call_print = fingerprint(who, call.name, call.arguments)
        return AuditRow(
            time.time(),
            who,
            written(call.name)[:MAX_ACTION],
            DECISIONS[type(decision)],
            why,
            by,
            run,
            call.id,
            call_print,
        )


def written(name: str) -> str:
    """A name that a model may have made up, as every database takes it."""
    return "".join(one if one.isprintable() else ascii(one)[1:-1] for one in name[:MAX_ACTION])


def denial_of(row: ApprovalRow, time_limit_s: float) -> str:
    """What the model is told of a call that a person did not allow, or nobody."""
    if row.state == "expired":
        return f"This call was not run: it needs approval, and nobody decided within {time_limit_s:g} s. Go on without."
    said = f", saying: {row.note}" if row.note else ""
    return f"This call was not run: {row.by} denied it{said}. Do not try it again; go on without, or ask what to do."
