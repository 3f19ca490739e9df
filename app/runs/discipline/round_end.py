"""What comes after each round of a run, and before its end: the person's messages, last words, a second look."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass

from app.budget.side_query import Aside
from app.core.events import AgentEvent, Notice, TextDelta
from app.core.messages import Message
from app.runs.discipline.fallback_answer import ASKED, last_words, synthesise
from app.runs.discipline.limit_enforcer import Discipline
from app.runs.discipline.limits import TOKEN_LIMIT
from app.runs.discipline.reminders import SHORT
from app.runs.discipline.verifier import verify
from app.transcript.conversation import Conversation
from app.transcript.inbox import Inbox, added
from app.transcript.reply import Reply
from app.transcript.round_plan import Plan
from app.transcript.run_totals import Account

TIME_LIMIT_S = 60.0  # of an answer that is asked for once more, and of a check


@dataclass(slots=True)
class Closing:
    """One per run. `changes` says whether a tool of this name can do more than read.

    `may_go_on` raises Paused; it is asked before each model request.
    """

    discipline: Discipline
    aside: Aside
    account: Account
    conversation: Conversation
    inbox: Inbox
    new_reply: Callable[[], Reply]
    changes: Callable[[str], bool]
    may_go_on: Callable[[], None]
    silent: bool = False  # the run's last words are not the model's

    async def conclude(self, plan: Plan, reply: Reply, results: Sequence[Message]) -> AsyncGenerator[AgentEvent, None]:
        """After a round: afterwards `discipline.over` says whether the run has ended, and then the inbox is closed.

        It is closed last: until it is sure that the run ends, a message for it is taken, and stays in the history even
        if a limit leaves no round for it. Raises Paused, BudgetSpent, StoreFailed.
        """
        self.silent = False
        said = self._take(self.inbox.take())
        for event in said:
            yield event
        ends = self.discipline.saw(plan, reply, results, self.account, steered=bool(said))
        if ends is None:
            return
        if no_answer(reply) and not self.discipline.so_far:
            async with aclosing(self._speak(ends, reply.shown)) as spoken:
                async for event in spoken:
                    yield event
        elif self._changed() and self.discipline.checks(ends, self.account):
            for event in await self._check():
                yield event
            if self.discipline.wanting:
                return
        said = self._take(self.inbox.take_or_close())
        for event in said:
            yield event
        self.discipline.over = self.discipline.ends(ends, self.account, steered=bool(said))
        if self.discipline.over:
            for event in self._take(self.inbox.close()):
                yield event

    def _take(self, messages: Sequence[Message]) -> list[AgentEvent]:
        for message in messages:
            self.conversation.append(message)
        return list(map(added, messages))

    async def _speak(self, reason: str, said: str) -> AsyncGenerator[AgentEvent, None]:
        """An answer for a run that has none. It is shown whole: it is no part of what the model was saying.

        What it had `said` beside calls that were not run stands for an answer if there is no better one.
        """
        text, cut = "", False
        if not self.discipline.limits.spent(self.account):
            self.may_go_on()
            yield Notice("synthesis", ASKED)
            heard = await synthesise(self.aside, self.new_reply(), self.account, self.conversation)
            for notice in heard.notices:
                yield notice
            yield heard.usage
            text, cut = heard.reply.shown.strip(), bool(heard.trouble)
        if not text and said.strip() and reason != TOKEN_LIMIT:
            return
        self.silent = not text
        if not text:
            text, cut = last_words(reason, self.account, self.conversation), False
        self.account.text = self.conversation.redactor.redact(text)
        self.conversation.append(Message("assistant", text, shown=text, cut=cut))
        yield TextDelta(text)

    def _changed(self) -> bool:
        return any(one.outcome == "ok" and self.changes(one.name) for one in self.account.actions.values())

    async def _check(self) -> Sequence[AgentEvent]:
        self.may_go_on()
        verdict = await verify(self.aside, self.account, self.conversation)
        self.account.saw(verdict.notice)
        if verdict.wanting:
            self.discipline.found_wanting(verdict.wanting, self.account)
        return [verdict.usage, verdict.notice] if verdict.usage else [verdict.notice]


def no_answer(reply: Reply) -> bool:
    """Whether a run's last reply says nothing, or little more than what it was about to do."""
    said = reply.shown.strip()
    return not said or (bool(reply.calls) and len(said) < SHORT)
