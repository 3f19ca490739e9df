"""The end of each round: take the person's messages, answer a run that has no answer, have it verified."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec import Struct

from app.budget.side_query import SideQuery
from app.core.events import Notice, TextDelta
from app.core.messages import Message
from app.runs.discipline.end_judge import EndJudge
from app.runs.discipline.endings import SHORT
from app.runs.discipline.fallback_answer import ASKED, fallback_answer, synthesise
from app.runs.discipline.limit_enforcer import ANSWERED, NO_ANSWER, LimitEnforcer
from app.runs.discipline.limits import TOKEN_LIMIT
from app.runs.discipline.verifier import verify
from app.runs.run_context import RunContext
from app.runs.run_scope import RunScope
from app.transcript.conversation import Conversation
from app.transcript.inbox import Inbox, added
from app.transcript.reply import Reply
from app.transcript.round_plan import RoundPlan
from app.transcript.run_totals import RunTotals
from app.transcript.whole_thoughts import IN_VAIN, answer_again
from tools.base.rights import CLIENT_TOOLS

TIME_LIMIT_S = 60.0  # of an answer that is asked for once more, and of a check


class RoundEnd(Struct, kw_only=True):
    """One per run."""

    scope: RunScope
    discipline: LimitEnforcer
    context: RunContext
    inbox: Inbox
    side_query: SideQuery
    new_reply: Callable[[], Reply]
    end_judge: EndJudge = EndJudge()
    silent: bool = False  # the run's last words are not the model's

    @property
    def totals(self) -> RunTotals:
        return self.context.totals

    @property
    def conversation(self) -> Conversation:
        return self.context.conversation

    async def conclude(self, plan: RoundPlan, reply: Reply, results: Sequence[Message]) -> None:
        """After a round: afterwards `discipline.over` says whether the run has ended, and then the inbox is closed.

        It is closed last: until it is sure that the run ends, a message for it is taken, and stays in the history even
        if a limit leaves no round for it. Raises Paused, BudgetSpent, StoreFailed.
        """
        self.silent = False
        steered = await self._take(self.inbox.take())
        announces = not steered and await self._announces(plan, reply)
        ends = self.discipline.reason_to_end(plan, reply, results, self.totals, steered=steered, announces=announces)
        if ends is None:
            return
        if ends == CLIENT_TOOLS:
            await self.wait_for_client()
            return
        if no_answer(reply) and not self.discipline.so_far:
            ends = await self._answer_anyway(ends, reply.prose)
        elif self._changed() and self.discipline.checks(ends, self.totals):
            await self._check()
            if self.discipline.wanting:
                return
        steered = await self._take(self.inbox.take_or_close())
        self.discipline.over = self.discipline.ends(ends, self.totals, steered=steered)
        if self.discipline.over:
            await self._take(self.inbox.close())

    async def take_messages(self) -> None:
        """Put messages into the history that came while the run had no server."""
        await self._take(self.inbox.take())

    async def wait_for_client(self) -> None:
        """End the run: calls have been handed to the client, whose results come with the next turn."""
        self.silent = True
        self.discipline.over = CLIENT_TOOLS
        await self._take(self.inbox.close())

    async def _announces(self, plan: RoundPlan, reply: Reply) -> bool:
        """Return True if the reply only announces work, and the run may go on."""
        if plan.ends or reply.pictures or not self.discipline.may_nudge(reply, self.totals):
            return False
        self.scope.check_not_paused()
        announces, events = await self.end_judge.announces(reply, self.totals, self.conversation)
        await self.context.emit_all(events)
        return announces

    async def _take(self, messages: Sequence[Message]) -> bool:
        """Put the person's messages into the history; return whether there are any."""
        if messages and (marks := self.scope.marks):
            await marks.read(message.text for message in messages)
        for message in messages:
            self.conversation.append(message)
        if messages and any(one.untrusted for one in self.conversation.messages[-len(messages) :]):
            self.scope.gate.taint()
        await self.context.emit_all(map(added, messages))
        return bool(messages)

    async def _answer_anyway(self, reason: str, draft: str) -> str:
        """Answer for a run that has no answer, and return why it ends: without a word of the model, not as answered.

        The answer is shown whole: it is no part of the model's unfinished reply. A `draft`, its text beside calls that
        were not run, is the answer if there is no better one.
        """
        text, why = "", ""
        cut = False
        emit = self.context.emit
        if not self.discipline.limits.spent(self.totals):
            self.scope.check_not_paused()
            await emit(Notice("synthesis", ASKED))
            answer = await synthesise(self.side_query, self.new_reply(), self.totals, self.conversation)
            await self.context.emit_all((*answer.notices, *answer_again(self.side_query.provider, answer.reply)))
            await emit(answer.usage)
            text, cut = answer_in(answer.reply), bool(answer.trouble)
            why = IN_VAIN if answer.reply.is_whole_thought else ""
        if not text and draft.strip() and reason != TOKEN_LIMIT:
            return reason
        self.silent = not text
        if not text:
            why = why if reason == ANSWERED else ""
            reason = NO_ANSWER if reason == ANSWERED else reason
            text, cut = fallback_answer(reason, self.totals, self.conversation, why), False
        self.totals.text = self.conversation.redactor.redact(text)
        self.conversation.append(Message("assistant", text, shown=text, cut=cut))
        await emit(TextDelta(text))
        return reason

    def _changed(self) -> bool:
        return any(one.outcome == "ok" and self.scope.toolbox.changes(one.name) for one in self.totals.actions.values())

    async def _check(self) -> None:
        self.scope.check_not_paused()
        verdict = await verify(self.side_query, self.totals, self.conversation)
        if verdict.wanting:
            self.discipline.found_wanting(verdict.wanting, self.totals)
        if verdict.usage:
            await self.context.emit(verdict.usage)
        await self.context.emit(verdict.notice)


def no_answer(reply: Reply) -> bool:
    """Return True if the last reply is empty or little more than an announcement of its calls."""
    prose = reply.prose.strip()
    return (not prose and not reply.pictures) or (bool(reply.calls) and len(prose) < SHORT)


def answer_in(reply: Reply) -> str:
    """Return the text of a reply that is not to call anything, with its code, unless it is nothing but calls."""
    return reply.shown.strip() if reply.prose.strip() else ""
