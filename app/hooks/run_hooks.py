"""The hooks of one run: what they are asked, and what their verdicts do to its calls.

A denied call is answered to the model as any refused one. A denied model request or answer ends the run: text that was
streamed before has been shown.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from msgspec import Struct, field

from app.budget.budgets import RequestDenied
from app.core.events import ToolFinished
from app.core.hook_rows import HookEvent
from app.core.messages import AskedCall, Message, in_words
from app.hooks.hooks import Hooks
from app.hooks.verdicts import ALLOWED, Verdict
from app.storage.audit import AuditRow
from app.transcript.conversation import Conversation
from tools.toolbox import Ask, Refuse

HOOK = "hook"  # in the audit, before the name of the hook
MOST_TEXT = 64 * 1024  # characters of each text
MOST_MESSAGES = 50  # of a request, the newest
DENIED_CALL = "This call was not run: {reason} Go on without it, or ask the person."
DENIED_RESULT = "The result was withheld: {reason} Go on without it, and tell the person."
NO_REASON = "the hook {hook} has denied it."
ASKED = "The hook {hook} asks first. {reason}"
NO_PERSON = "the hook {hook} would have a person asked, but your client runs this call. {reason}"


class RunHooks(Struct):
    """`hooks` of the server, for the runs of a principal.

    Implements `app.budget.budgets.ModelChecks`, also for side queries and jobs without a run.
    """

    hooks: Hooks
    principal: str
    _verdicts: dict[str, Verdict] = field(default_factory=dict)  # of calls, by id

    @property
    def asks_about_calls(self) -> bool:
        return self.hooks.has(HookEvent.BEFORE_TOOL)

    @property
    def judges_results(self) -> bool:
        """Return True if a guard may withhold results."""
        return self.hooks.has_guard(HookEvent.AFTER_TOOL)

    async def before_calls(self, calls: Iterable[AskedCall], conversation: Conversation, *, untrusted: bool) -> None:
        """Ask about each call as it would run; `decision` then follows the verdicts."""
        for call in calls:
            await self.before_call(call, conversation, untrusted=untrusted)

    async def before_call(self, call: AskedCall, conversation: Conversation, *, untrusted: bool) -> Verdict:
        fields: dict[str, Any] = {"tool": call.name, "call": call.id, "arguments": call.arguments}
        fields["untrusted"] = untrusted
        verdict = await self._call(HookEvent.BEFORE_TOOL, fields, conversation, call.name, call.id)
        self._verdicts[call.id] = verdict
        return verdict

    def denial(self, call: str) -> str | None:
        """Return why a call must not run, for the model."""
        verdict = self._verdicts.get(call, ALLOWED)
        return DENIED_CALL.format(reason=reason_of(verdict)) if verdict.decision == "deny" else None

    def decision(self, call: str, *, is_handed: bool = False) -> Ask | Refuse | None:
        """Return what the verdict on a call makes of it; None if that is allowed.

        A call that is handed to a client waits for no approval here, so that a question is a refusal.
        """
        verdict = self._verdicts.get(call, ALLOWED)
        by = f"{HOOK} {verdict.hook}"
        if denial := self.denial(call):
            return Refuse(denial, by=by)
        if verdict.decision == "allow":
            return None
        if is_handed:
            reason = NO_PERSON.format(hook=verdict.hook, reason=verdict.reason).rstrip()
            return Refuse(DENIED_CALL.format(reason=reason), by=by)
        return Ask(ASKED.format(hook=verdict.hook, reason=verdict.reason).rstrip(), by=by)

    async def after_call(self, call: AskedCall, finished: ToolFinished, conversation: Conversation) -> str | None:
        """Return the text in place of a result that a guard withholds."""
        fields: dict[str, Any] = {"tool": call.name, "call": call.id, "arguments": call.arguments}
        fields |= {"ok": finished.ok, "text": _cut(finished.text)}
        verdict = await self._call(HookEvent.AFTER_TOOL, fields, conversation, call.name, call.id)
        return DENIED_RESULT.format(reason=reason_of(verdict)) if verdict.decision == "deny" else None

    async def before_model(self, model: str, messages: Sequence[Message], conversation: Conversation) -> None:
        """Raises RequestDenied."""
        if self.hooks.has(HookEvent.BEFORE_MODEL):
            shown = [{"role": one.role, "text": _cut(in_words(one))} for one in messages[-MOST_MESSAGES:]]
            fields = {"model": model, "messages": shown, "earlier_messages": len(messages) - len(shown)}
            await self._pass(HookEvent.BEFORE_MODEL, fields, conversation, "The model was not asked")

    async def after_model(self, model: str, text: str, calls: Sequence[AskedCall], conversation: Conversation) -> None:
        """Raises RequestDenied."""
        made = [{"call": call.id, "tool": call.name, "arguments": call.arguments} for call in calls]
        fields = {"model": model, "text": _cut(text), "calls": made}
        await self._pass(HookEvent.AFTER_MODEL, fields, conversation, "The model's reply was not acted on")

    async def before_answer(self, text: str, conversation: Conversation) -> None:
        """Raises RequestDenied."""
        await self._pass(HookEvent.BEFORE_ANSWER, {"text": _cut(text)}, conversation, "The answer was not accepted")

    async def after_answer(self, reason: str, text: str, conversation: Conversation) -> None:
        await self._call(HookEvent.AFTER_ANSWER, {"reason": reason, "text": _cut(text)}, conversation)

    async def _pass(self, on: HookEvent, fields: Mapping[str, Any], conversation: Conversation, denied: str) -> None:
        verdict = await self._call(on, fields, conversation)
        if verdict.decision == "deny":
            raise RequestDenied(f"{denied}: {reason_of(verdict)}")

    async def _call(
        self,
        on: HookEvent,
        fields: Mapping[str, Any],
        conversation: Conversation,
        tool: str = "",
        call: str | None = None,
    ) -> Verdict:
        if not self.hooks.has(on):
            return ALLOWED
        about = {"at": time.time(), "principal": self.principal, "session": conversation.session}
        verdict = await self.hooks.call(on, {**about, "run": conversation.run, **fields}, tool)
        if verdict.decision != "allow":
            by = f"{HOOK} {verdict.hook}"
            row = AuditRow(
                time.time(),
                self.principal,
                tool or on,
                verdict.decision,
                why=verdict.reason,
                by=by,
                run=conversation.run,
                call=call,
            )
            conversation.record(row)
        return verdict


def reason_of(verdict: Verdict) -> str:
    reason = verdict.reason or NO_REASON.format(hook=verdict.hook)
    return reason if reason.endswith((".", "!", "?")) else f"{reason}."


def _cut(text: str) -> str:
    return text if len(text) <= MOST_TEXT else f"{text[:MOST_TEXT]} [...]"


def hooks_of_run(hooks: Hooks | None, principal: str) -> RunHooks | None:
    return RunHooks(hooks, principal) if hooks else None
