"""Answering a reply's calls: each is decided on, shown to a person where that is due, run, and answered once.

Calls run in the order called, one after the other; only neighbours that merely read may run side by side.

    normalise ─> quoted? ─> judge ─> hooks ─> decide ─┬─> refuse ────────────────────────────────> answer
                                                ^     ├─> ask ─> wait ─> denied ─────────────────> answer
                                                |     |              └─> approved ─┐
                                 changed since ─┴─────|────────────────────────────┤
                                                      └─> run ─> labels ─> screen ─> shorten ────> answer
    a call of the client's own tool: decide ─> hand over, and leave it open

- What is decided on is what runs: a call is normalised once, before anybody looks at it.
- A quotation, the judge and the hooks are asked about all calls of a reply before the first of them runs; their
  verdicts are facts for `decide`, which the table of `app.policy.decision_table` answers, each time it is asked.
- An approval is for one call as it was shown. If what it would change has changed meanwhile, the person is asked again.
- The dispatcher asks the gate once more, and needs the permit of an approval: neither layer trusts the other.
- However a run ends, each of its calls has one result in the history; a call that may have had an effect is not made
  again.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import aclosing
from functools import partial
from itertools import chain, takewhile

from msgspec import Struct, field, to_builtins
from msgspec.structs import replace

from app.core.attachments import image_event
from app.core.events import AgentEvent, ApprovalRequired, ToolFinished
from app.core.messages import AskedCall, unanswered
from app.core.spans import as_fields
from app.core.time_slice import TimeSlice, in_heavy_thread
from app.policy.approvals import resolution_event
from app.policy.call_rows import UNREADABLE, CallRequest, author_of, code_of, decide_call, quotation_refusal
from app.policy.decision_facts import facts_of
from app.policy.decisions import audit_of, denial_of
from app.policy.gate_rows import ANSWERABLE
from app.policy.grants import Grant, narrowed, reaches_hosts
from app.policy.guards import WITHHELD
from app.policy.permits.permissions import with_permitted_hosts
from app.policy.permits.proposals import Proposal, proposals_of
from app.policy.reapproval import MOST, given_up, is_stale, number_of, question_id, reason_again
from app.policy.secret_rights import SecretRight, bound_to, in_words
from app.redaction.output_chunks import redacted_output
from app.runs.merge_streams import merge_streams
from app.runs.run_context import RunContext
from app.runs.run_scope import RunScope
from app.runs.tool_call import Outcome, PermittedCall, Siblings, ToolCall
from app.runs.tool_results import app_events
from app.storage.approvals import ApprovalRow
from app.transcript.client_calls import declared_name, fitted_for_client, handed_event
from app.transcript.conversation import Conversation
from app.transcript.reply_calls import rejection
from app.transcript.right_form import as_command, right_form
from tools.base.outcome import advice_of
from tools.base.permit import Permit, fingerprint
from tools.base.rights import Risk
from tools.base.schemas import CHECKS, LONGEST_CHECKED, schema_error
from tools.base.tasks import import_in_thread
from tools.builtin.read_result import NAME as READ_RESULT
from tools.toolbox import Allow, Ask, Decision, Refuse

CHANGED = "[{by} changed the arguments to {edited}]\n"  # in front of a result
UNSEEN = (
    "{name} was not run: {by} changed its arguments, and so it would go with a secret that was not shown. {secrets} "
    "Call it with these arguments, and the person is asked again."
)
LONG_SCHEMA = 2_000  # characters, which take 5 ms
SIDE_BY_SIDE = 8  # calls that run at the same time


class Unanswered(Struct, frozen=True):
    """Calls to answer; `refused`: call -> why it could not be understood.

    Of a run that goes on after a restart: the first of them was `asked` for before, and `resolved` if the log says
    what was decided.
    """

    calls: Sequence[AskedCall] = ()
    refused: Mapping[str, str] = field(default_factory=dict)
    asked: ApprovalRow | None = None
    resolved: bool = False
    unreadable: Collection[str] = ()  # refused calls of which the right form may be shown


class ToolExecutor(Struct):
    """Answers the calls of one run."""

    scope: RunScope
    handed: list[str] = field(default_factory=list)  # calls that the client runs
    _quoted: dict[str, str] = field(default_factory=dict)  # call id -> where the model has read it
    _seen: Collection[Grant] = ()  # exact grants that a person gave when asked about a quotation

    async def answer(self, context: RunContext, unanswered: Unanswered) -> None:
        """Every call gets exactly one result under its own id, in the order called."""
        if not unanswered.calls:
            return
        await import_in_thread(CHECKS)
        conversation = context.conversation
        refused = unanswered.refused
        if not self.scope.gate.knows_permissions and any(map(self._could_ask, unanswered.calls)):
            await self._follow_permissions()
        handed = [call for call in unanswered.calls if call.id not in refused and self.goes_to_client(call)]
        own = [call for call in unanswered.calls if call not in handed]
        self._quoted = await self.scope.provenance.quotations(unanswered.calls, conversation, self.scope.toolbox)
        self._seen = await self.scope.approvals.grants_of_quotations(conversation.session) if self._quoted else ()
        calls = [conversation.redactor.redact_value(self._normalised(call)) for call in own]  # shown as run
        await self._prepare_schemas([*own, *handed])
        await context.emit_all(await self._judge(calls, unanswered.refused, conversation))
        may_run = (call for call in calls if call.id not in refused)
        await self.ask_hooks(chain(may_run, map(self._as_declared, handed)), conversation)
        while calls:
            reads = list(takewhile(partial(self._only_reads, unanswered), calls[:SIDE_BY_SIDE]))
            if self.scope.parallel_reads and len(reads) > 1:
                await self._read(context, reads)
            else:
                reads = calls[:1]
                await self._one(context, reads[0], unanswered)
            del calls[: len(reads)]
        for call in handed:
            await self._hand_over(context, call)

    async def _prepare_schemas(self, calls: Iterable[AskedCall]) -> None:
        """Have long schemas read in a thread: what decides on a call waits for nothing, and finds them read."""
        sliced = TimeSlice()
        for call in {call.name: call for call in calls}.values():  # a look for each name takes a tenth of a millisecond
            await sliced.pause_if_over()
            tool = self.scope.toolbox.tool(self._declared_name(call))
            if tool and LONG_SCHEMA < len(json.dumps(tool.parameters)) <= LONGEST_CHECKED:
                await in_heavy_thread(partial(schema_error, tool.parameters))

    def goes_to_client(self, call: AskedCall) -> bool:
        return self.scope.toolbox.is_handed(self._declared_name(call))

    def _declared_name(self, call: AskedCall) -> str:
        """Return the name of the tool that a call of an unknown name can mean, if there is one such tool."""
        return call.name if self.scope.toolbox.tool(call.name) else declared_name(call.name, self.scope.toolbox.schemas)

    def _as_declared(self, call: AskedCall) -> AskedCall:
        """Return a call of a client's tool with the name and the arguments that the client has declared."""
        declared = self._declared_name(call)
        tool = self.scope.toolbox.tool(declared)
        schemas = {declared: tool.parameters} if tool else {}
        name, arguments = fitted_for_client(declared, call.arguments, schemas)
        return replace(call, name=name, arguments=arguments)

    async def _hand_over(self, context: RunContext, wanted: AskedCall) -> None:
        """Show a call of the client's own tool, whole, and leave it open. A quotation is refused: only we know it."""
        self.scope.totals.calls += 1
        wanted = self._as_declared(wanted)
        call = self.scope.guards.plain(wanted)
        request = self._request(wanted)
        decision = decide_call(request)
        self.audit(context, call, decision, self._facts(request, wanted))
        if isinstance(decision, Refuse):
            await self._refuse_by_row(context, call, decision)
            return
        self.handed.append(call.id)
        context.conversation.hand_over(call.id)
        await context.emit(handed_event(call, context.conversation.redactor))

    def _only_reads(self, unanswered: Unanswered, call: AskedCall) -> bool:
        """Return True if the call needs no approval and has no effect, so that it is independent of its neighbours."""
        asked = unanswered.asked is not None and number_of(unanswered.asked, call.id)
        if asked or call.id in unanswered.refused:
            return False
        if self._has_effect(call) or self.scope.toolbox.runs_in_turn(call.name):
            return False
        decision = self._decide(call)
        return isinstance(decision, Allow) and not decision.counted

    async def _read(self, context: RunContext, calls: Sequence[AskedCall]) -> None:
        cleared = [PermittedCall(self.scope.guards.plain(call)) for call in calls]
        for call, one in zip(calls, cleared, strict=True):
            self.scope.totals.calls += 1
            request = self._request(call)
            self.audit(context, one.call, decide_call(request), self._facts(request, call))
        await self._run(context, cleared)

    async def _one(self, context: RunContext, wanted: AskedCall, unanswered: Unanswered) -> None:
        conversation, refused, asked = context.conversation, unanswered.refused, unanswered.asked
        self.scope.totals.calls += 1
        call = self.scope.guards.plain(wanted)
        if call.id in refused:
            place = self._quoted.get(call.id)  # advice on how to call would make a call of a quotation
            reason = quotation_refusal(call.name, place, UNREADABLE) if place else refused[call.id]
            shown = "" if place or call.id not in unanswered.unreadable else self._right_form(call, call.name)
            conversation.answer(call, self.scope.guards.plain(reason + shown))
            return
        decision = await self._counted(wanted, self._decide(wanted))
        self.audit(context, call, decision, self._facts(self._request(wanted), wanted))
        if isinstance(decision, Refuse):
            # It may have been asked for before the server was restarted.
            if row := await self.scope.approvals.withdraw(context.run, author_of(decision)):
                await context.emit(resolution_event(row))
            await self._refuse_by_row(context, call, decision)
            await context.emit_all(self.scope.guards.news(conversation))
        elif asked and number_of(asked, call.id):  # what a person says of it holds, whatever the rules say by now
            await self._decided(context, call, await self.scope.approvals.current(asked), resolved=unanswered.resolved)
        elif isinstance(decision, Ask):
            await self._ask(context, call, decision)
        else:
            permit = await self._permit(call) if decision.counted else None
            await self._run(context, [PermittedCall(call, permit)])

    async def _counted(self, call: AskedCall, decision: Decision) -> Decision:
        """Return the decision, once a use of the permission that it rests on is counted; another if none is left."""
        gate, approvals = self.scope.gate, self.scope.approvals
        while isinstance(decision, Allow) and decision.counted:
            permission = gate.policy.permission(decision.counted)
            if permission is None or await approvals.use(permission, call.id):
                break
            gate.use_up(permission.id)  # or it was withdrawn, perhaps at another server
            decision = self._decide(call)
        return decision

    def _could_ask(self, call: AskedCall) -> bool:
        tool = self.scope.toolbox.tool(self.scope.toolbox.normalise_call(call.name, call.arguments)[0])
        return tool is not None and not tool.handed and not (tool.confined and tool.risk is Risk.READ)

    async def _follow_permissions(self) -> None:
        gate = self.scope.gate
        gate.permit(await self.scope.approvals.permissions(gate.principal.name, gate.chosen_permissions))
        if self.scope.recorder:
            self.scope.recorder.permitted(gate.policy.permissions)

    async def _permit(self, call: AskedCall) -> Permit:
        """Return the permit for a call that a permission allows and whose use is counted."""
        binding = await self._binding(call)
        return Permit(fingerprint(self.scope.gate.principal.name, call.name, call.arguments, binding))

    def audit(self, context: RunContext, call: AskedCall, decision: Decision, facts: str) -> None:
        row = audit_of(self.scope.gate.principal.name, context.run, call, decision, facts)
        if not isinstance(decision, Refuse) and (secrets := in_words(self._secrets(call))):
            row = replace(row, why=f"{row.why} {secrets}".lstrip())
        context.conversation.record(row)
        if self.scope.recorder:
            self.scope.recorder.decided(call, decision, self.scope.gate.policy)

    async def _refuse(self, context: RunContext, call: AskedCall, reason: str, advice: str = "") -> None:
        await context.emit(rejection(reason, call.id, call.name, advice=advice))
        context.conversation.answer(call, reason)

    async def _refuse_by_row(self, context: RunContext, call: AskedCall, decision: Refuse) -> None:
        await context.emit(rejection(decision.reason, call.id, call.name, code_of(decision)))
        shown = self._right_form(call, decision.intended) if decision.intended else ""
        context.conversation.answer(call, decision.reason + shown)

    def _right_form(self, call: AskedCall, name: str) -> str:
        """Return the lines that show how the tool is called, if it is one."""
        tool = self.scope.toolbox.tool(name)
        if tool is None or isinstance(self.scope.gate.decide(tool), Refuse):
            return ""
        given = as_command(call.name, call.arguments)
        return right_form(call.id, call.dialect, self.scope.call_form(), tool.name, tool.parameters, given=given)

    def _normalised(self, call: AskedCall) -> AskedCall:
        """The call that the gate decides on, people see and the tool gets, whatever door it came through."""
        name, arguments = self.scope.toolbox.normalise_call(call.name, call.arguments)
        tool, policy = self.scope.toolbox.tool(name), self.scope.gate.policy
        if tool and reaches_hosts(tool):
            arguments = narrowed(policy.holding, arguments)
            arguments = with_permitted_hosts(policy.usable_permissions, tool, arguments, policy.surroundings)
        return replace(call, name=name, arguments=arguments)

    async def _judge(
        self, calls: Sequence[AskedCall], refused: Mapping[str, str], conversation: Conversation
    ) -> Sequence[AgentEvent]:
        """Have the calls judged that would be run and can do more than read."""
        if not self.scope.guards.judges_output:
            return ()
        effects = [
            call
            for call in calls
            if call.id not in refused and self._has_effect(call) and not isinstance(self._decide(call), Refuse)
        ]
        if effects:
            self.scope.check_not_paused()
        return await self.scope.guards.judge_calls(effects, self.scope.totals, conversation)

    def _decide(self, call: AskedCall) -> Decision:
        return decide_call(self._request(call))

    def _facts(self, request: CallRequest, call: AskedCall) -> str:
        return facts_of(request, self.scope.gate, self.scope.toolbox.tool(call.name), call.arguments)

    def _request(self, call: AskedCall) -> CallRequest:
        is_handed, place = self.goes_to_client(call), self._quoted.get(call.id, "")
        hook = self.scope.hooks.decision(call.id, is_handed=is_handed) if self.scope.hooks else None
        return CallRequest(
            name=call.name,
            policy=self.scope.gate.policy,
            dispatch=partial(self.scope.toolbox.decide, call.name, call.arguments),
            objection=self.scope.guards.objection(call, effect=self._has_effect(call)),
            hook=hook or self.scope.guards.question(call),
            quoted_in=place if place and (is_handed or not self._is_known(call)) else "",
            is_handed=is_handed,
        )

    async def ask_hooks(self, calls: Iterable[AskedCall], conversation: Conversation) -> None:
        """Ask the hooks about each call that may be run or handed over, as it stands."""
        if self.scope.hooks and self.scope.hooks.asks_about_calls:
            may_run = [call for call in calls if not isinstance(self._decide(call), Refuse)]
            await self.scope.hooks.before_calls(may_run, conversation, untrusted=self.scope.gate.policy.tainted)

    def _is_known(self, call: AskedCall) -> bool:
        """Return True if a person has approved exactly this quoted call for the whole session."""
        in_force = [one for one in self.scope.gate.policy.holding if one in self._seen and one.tool == call.name]
        return any(one.covers(self.scope.gate.principal.name, call.arguments) for one in in_force)

    async def _binding(self, call: AskedCall) -> str:
        return await self._bound(call, bound_to(self._secrets(call)))

    async def _bound(self, call: AskedCall, bound: str) -> str:
        return await self.scope.toolbox.binding(call.name, call.arguments, self.scope.tool_context.workspace, bound)

    def _secrets(self, call: AskedCall) -> Sequence[SecretRight]:
        """Return the secrets that a call goes with: in the question, in what its approval is bound to, in the audit."""
        return self.scope.gate.secrets(self.scope.toolbox.tool(call.name), call.arguments)

    def _has_effect(self, call: AskedCall) -> bool:
        return self.scope.toolbox.changes(call.name)

    async def _ask(self, context: RunContext, call: AskedCall, why: Ask, number: int = 1) -> None:
        conversation, principal = context.conversation, self.scope.gate.principal
        asked = replace(call, id=question_id(call.id, number))
        origins = as_fields(await self.scope.origins.of(call, conversation))
        proposals = self._proposals(call) if why.by in ANSWERABLE else ()
        secrets = self._secrets(call)
        reason, bound = f"{why.reason} {in_words(secrets)}".rstrip(), bound_to(secrets)
        row = self.scope.approvals.open(
            context.run,
            conversation.session,
            principal,
            asked,
            reason=reason,
            binding=await self._bound(call, bound),
            origins=origins,
            proposals=proposals,
            secrets=bound,
        )
        conversation.record(row)
        event = ApprovalRequired(
            asked.id,
            call.name,
            call.arguments,
            reason,
            row.expires,
            origins=origins or None,
            proposals=to_builtins(proposals) if proposals else None,
        )
        await context.emit(event)
        await conversation.stored()
        await self._decided(context, call, row)

    def _proposals(self, call: AskedCall) -> Sequence[Proposal]:
        gate = self.scope.gate
        tool = self.scope.toolbox.tool(call.name)
        return proposals_of(tool, call.arguments, gate.principal, gate.policy.surroundings)

    async def _decided(self, context: RunContext, call: AskedCall, row: ApprovalRow, *, resolved: bool = False) -> None:
        """Wait for the decision and do as it says; with `resolved` the client knows of it."""
        with self.scope.waiting():
            row = await self.scope.approvals.wait(row)
        if not resolved:
            await context.emit(resolution_event(row))
        if row.state != "approved":
            reason = denial_of(row)
            await self._refuse(context, call, reason, reason)  # the event of the decision is for people
            return
        if row.scope == "always":
            await self._follow_permissions()
        if row.scope == "session":
            grants = await self.scope.approvals.grants(context.conversation.session)
            self.scope.gate.grant(grants)
            if self.scope.recorder:
                self.scope.recorder.granted(grants)
        if not is_stale(row, call, await self._binding(call)):
            await self._approved(context, call, row)
        elif (number := number_of(row, call.id)) == MOST:
            await self._refuse(context, call, given_up(call.name))
        else:  # the person agreed to something else: nothing is done without another yes
            await self._ask(context, call, Ask(reason_again(row)), number + 1)

    async def _approved(self, context: RunContext, call: AskedCall, row: ApprovalRow) -> None:
        final = replace(call, arguments=json.loads(row.edited)) if row.edited else call
        if row.edited and self.scope.hooks:  # they were asked about other arguments
            await self.scope.hooks.before_call(final, context.conversation, untrusted=self.scope.gate.policy.tainted)
            if isinstance(denied := self.scope.hooks.decision(call.id), Refuse):
                await self._refuse_by_row(context, call, denied)
                return
        if unseen := [one for one in self._secrets(final) if bound_to([one]) not in row.secrets.splitlines()]:
            await self._refuse(context, call, UNSEEN.format(name=call.name, by=row.by, secrets=in_words(unseen)))
            return
        binding = await self._binding(final) if row.edited else ""
        # What the person saw, not what stands in the history now.
        approved = fingerprint(row.principal, final.name, final.arguments, binding) if row.edited else row.fingerprint
        permit = Permit(approved)
        note = CHANGED.format(by=row.by, edited=row.edited) if row.edited else ""
        await self._run(context, [PermittedCall(final, permit, note)])

    async def _run(self, context: RunContext, cleared: Sequence[PermittedCall]) -> None:
        """Run the calls, at the same time if there are several.

        Each is finished in the order called, so that the log and the history tell the same whenever the server dies.
        """
        one_call, siblings = ToolCall(context.run, context.conversation, self.scope), Siblings()
        ended: dict[int, Outcome] = {}
        finished = 0
        try:
            async with aclosing(merge_streams([one_call.stream(one, siblings) for one in cleared])) as streams:
                async for number, item in streams:
                    if not isinstance(item, Outcome):
                        await context.emit(item)
                        continue
                    ended[number] = item
                    while outcome := ended.pop(finished, None):
                        await self._finish(context, cleared[finished].call, outcome)
                        finished += 1
        finally:
            if finished < len(cleared):
                self._keep_stopped(context, [one.call for one in cleared[finished:]], siblings.outcomes)

    def _keep_stopped(self, context: RunContext, calls: Sequence[AskedCall], outcomes: Mapping[str, Outcome]) -> None:
        """Keep what is known of calls that the end of the run has stopped: without waiting, the run is being left."""
        conversation = context.conversation
        unread = {call.id for call in unanswered(conversation.messages)}
        for call in (call for call in calls if call.id in unread and call.id in outcomes):
            finished, untrusted = outcomes[call.id].finished, outcomes[call.id].untrusted
            by_hooks = self.scope.hooks is not None and self.scope.hooks.judges_results
            if by_hooks or (untrusted and self.scope.guards.screens_results):  # nothing can be asked about it any more
                continue
            whole, finished = self._shortened(finished, call, conversation)
            self.scope.results.keep(
                whole, context.run, call, conversation, self._unshown(outcomes[call.id], conversation)
            )
            conversation.keep_stopped(call.id, finished.text, untrusted=untrusted)
            conversation.log_event(finished)

    async def _finish(self, context: RunContext, call: AskedCall, outcome: Outcome) -> None:
        """The result into the history, as the guards let it pass; its whole is kept, if the model receives a part."""
        finished, untrusted, conversation = outcome.finished, outcome.untrusted, context.conversation
        if self.scope.recorder:
            self.scope.recorder.finished(call, finished.text)
        whole, finished = self._shortened(finished, call, conversation)
        screened: Sequence[AgentEvent] = ()
        shown = finished.text
        marks, tool = self.scope.marks, self.scope.toolbox.tool(call.name)
        if marks and not untrusted:
            untrusted = await marks.is_known(call.name, shown)
        if untrusted:
            self.scope.gate.taint()
            finished, screened = await self.scope.guards.screen(finished, self.scope.totals, conversation)
        denial = await self.scope.hooks.after_call(call, finished, conversation) if self.scope.hooks else None
        if denial is not None:
            finished = replace(finished, ok=False, text=denial, lines=None, bytes=None)
        finished = self.scope.guards.plain(finished)
        withheld = denial is not None or finished.text == WITHHELD
        if withheld:
            finished = replace(finished, advice=advice_of(finished.text) or None, structured=None)
        else:
            self.scope.results.keep(whole, context.run, call, conversation, self._unshown(outcome, conversation))
        if marks and untrusted:
            await marks.take_result(call.id, tool, *(() if withheld else (whole, shown)))
        pictures = () if withheld else outcome.pictures
        labels = self.scope.labels.of_result(call.id) if self.scope.labels else ()
        conversation.answer(call, finished.text, untrusted=untrusted, pictures=pictures, labels=labels)
        images = (image_event(one, call.id) for one in pictures)
        app: Sequence[AgentEvent] = ()
        if outcome.app and not withheld:
            of_app = self.scope.app_results if self.scope.gate.policy.of_app else None
            app = await app_events(call, outcome.app, conversation, of_app)
        await context.emit_all((*screened, *images, finished, *app, *self.scope.guards.news(conversation)))

    def _unshown(self, outcome: Outcome, conversation: Conversation) -> str | None:
        """Return the output as it was written, without secrets, if the model receives another text."""
        redactors = conversation.redactor, *self.scope.guards.redactors
        return outcome.written and redacted_output(redactors, outcome.written)

    def _shortened(
        self, finished: ToolFinished, call: AskedCall, conversation: Conversation
    ) -> tuple[str, ToolFinished]:
        """Return the whole result, without secrets, and the event with as much of it as the model receives."""
        whole = self.scope.guards.plain(conversation.redactor.redact(finished.text))  # before a cut can part a secret
        readable = not isinstance(self.scope.toolbox.decide(READ_RESULT, {"call": call.id}), Refuse)
        text, advice = self.scope.results.shown(whole, call, readable=readable)
        advice = advice or conversation.redactor.redact(finished.advice or "")
        structured = conversation.redactor.redact_value(finished.structured) if text == whole else None
        finished = replace(finished, text=text, advice=advice or None, structured=structured)
        return whole, self.scope.guards.plain(finished)
