"""Questions that a tool asks a person during a call, presented as approvals."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from secrets import token_hex

from msgspec import Struct
from msgspec.structs import replace

from app.core.events import ApprovalRequired, ApprovalResolved
from app.core.messages import AskedCall
from app.policy.approvals import QUESTION_TIME_LIMIT_S, Approvals, Objection, resolution_event
from app.policy.gate import Gate
from app.storage.approvals import ApprovalRow
from app.transcript.conversation import Conversation
from parsing import Arguments
from tools.builtin.ask_user import OWN_QUESTION
from tools.tool import NoAnswer

DIALECT = "native"


class Questions(Struct, frozen=True):
    """The questions of one call; implements `tools.tool.AskPerson`. The time in `waiting` is not the tool's."""

    run: str
    approvals: Approvals
    gate: Gate
    conversation: Conversation
    waiting: Callable[[], AbstractContextManager[None]] = nullcontext

    async def __call__(self, name: str, shown: Arguments, reason: str, objection: Objection) -> Arguments | NoAnswer:
        """Ask. A run has one question at a time, others wait. Raises StoreFailed."""
        async with self.approvals.question_lock(self.run):
            return await self._ask(name, shown, reason, objection)

    async def _ask(self, name: str, shown: Arguments, reason: str, objection: Objection) -> Arguments | NoAnswer:
        conversation, principal = self.conversation, self.gate.principal
        call = conversation.redactor.redact_value(AskedCall(f"q{token_hex(4)}", name, shown, DIALECT))
        limit_s = None if name == OWN_QUESTION else QUESTION_TIME_LIMIT_S
        row = self.approvals.open_question(
            self.run, conversation.session, principal, call, reason=reason, objection=objection, limit_s=limit_s
        )
        try:
            conversation.record(row)
            conversation.log_event(ApprovalRequired(call.id, call.name, call.arguments, reason, row.expires))
            await conversation.stored()
            with self.waiting():
                row = await self.approvals.answer(row)
        except asyncio.CancelledError:  # the call has ended; if the run has ended too, the question is closed already
            for withdrawn in await self.approvals.withdraw_questions(self.run, call.id):
                conversation.log_event(without_answer(withdrawn))
            raise
        conversation.log_event(without_answer(row))
        if row.state != "approved":
            return NoAnswer(row.state, row.note or "")
        answer: Arguments = json.loads(row.edited) if row.edited else {}
        return answer


def without_answer(row: ApprovalRow) -> ApprovalResolved:
    """Return the event without the answer itself, which goes to the tool and is stored with the approval."""
    return replace(resolution_event(row), scope=None, arguments=None)
