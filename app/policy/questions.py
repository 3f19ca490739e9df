"""A question that a tool asks in the middle of a call, put to a person as an approval is."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, replace
from secrets import token_hex

from app.core.events import ApprovalRequired, ApprovalResolved
from app.core.messages import AskedCall
from app.policy.approvals import Approvals, Objection, resolution
from app.policy.gate import Gate
from app.storage.approvals import ApprovalRow
from app.transcript.conversation import Conversation
from parsing import Arguments

DIALECT = "native"


@dataclass(frozen=True, slots=True)
class Questions:
    """Those of one call. It is a `tools.tool.AskPerson`."""

    run: str
    approvals: Approvals
    gate: Gate
    conversation: Conversation

    async def __call__(self, name: str, shown: Arguments, reason: str, objection: Objection) -> Arguments | None:
        """One question of a run at a time: the others wait until it is answered. Raises StoreFailed."""
        if self.gate.under.asks_nobody:
            return None
        async with self.approvals.one_question(self.run):
            return await self._asked(name, shown, reason, objection)

    async def _asked(self, name: str, shown: Arguments, reason: str, objection: Objection) -> Arguments | None:
        conversation, who = self.conversation, self.gate.principal
        asked = conversation.redactor.redact_value(AskedCall(f"q{token_hex(4)}", name, shown, DIALECT))
        row = self.approvals.open_question(self.run, conversation.session, who, asked, reason, objection)
        try:
            conversation.record(row)
            conversation.tell(ApprovalRequired(asked.id, asked.name, asked.arguments, reason, row.expires))
            await conversation.stored()
            row = await self.approvals.answer(row)
        except asyncio.CancelledError:  # the call has ended; if the run has, too, it has closed this
            for gone in await self.approvals.withdraw_questions(self.run, asked.id):
                conversation.tell(answered(gone))
            raise
        conversation.tell(answered(row))
        if row.state != "approved":
            return None
        answer: Arguments = json.loads(row.edited) if row.edited else {}
        return answer


def answered(row: ApprovalRow) -> ApprovalResolved:
    """What those who watch are told: the answer itself is for whoever asked, and kept with the approval."""
    return replace(resolution(row), scope=None, arguments=None)
