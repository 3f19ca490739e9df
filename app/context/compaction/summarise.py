"""Summarising: one question to a model, whose answer stands for the older half of a conversation from then on."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from app.budget.budgets import BudgetSpent
from app.budget.side_query import DATA_RULE, Aside, Heard
from app.context.compaction.summary import HEADINGS, goals, told, transcript
from app.context.compaction.trim import trim
from app.context.overflow import ContextOverflow
from app.core.events import AgentEvent, ContextSummarised, Notice
from app.core.messages import Message
from app.core.provider import TOO_LONG
from app.models.tokens.cutting import shortened
from app.models.wire.openai.history import encodable
from app.storage.sessions import SummaryRow
from app.transcript.conversation import Conversation
from app.transcript.run_totals import Account

MOST_TOKENS = 2048  # of notes
READ = 0.85  # of the room: titles and frames take the rest
NOTES, CONVERSATION = "Notes on what came before", "The conversation"
BEGUN = "The older half of the conversation is being summarised."
FAILED = "The older part of the conversation was not summarised: the summary {why}. It is left out where need be."


@dataclass(frozen=True, slots=True)
class Stretch:
    """The messages of a session from `start` to `end`, and what stands for those before."""

    start: int
    end: int
    earlier: Message | None = None

    def of(self, messages: Sequence[Message]) -> list[Message]:
        return [*([self.earlier] if self.earlier else []), *messages[self.start : self.end]]


@dataclass(slots=True)
class Summariser:
    """`utility` asks the model that writes the notes, its window counted by `utility.counter`."""

    utility: Aside

    async def summarise(
        self, run: str, stretch: Stretch, conversation: Conversation, account: Account
    ) -> tuple[SummaryRow | None, Sequence[AgentEvent]]:
        """The summary, durable; None if there is none that is worth it. Raises StoreFailed."""
        measure, messages = self.utility.counter.measure, conversation.messages
        window = await self.utility.counter.window()
        conversation.tell(Notice("context", BEGUN))  # at once: the answer waits until it is there
        try:
            heard = await self._ask(stretch, conversation, account, window)
        except BudgetSpent:
            return None, [_failed("has no budget")]
        except ContextOverflow:
            return None, [_failed("has no room")]
        events: list[AgentEvent] = [heard.usage, *heard.notices]
        notes, trouble = heard.reply.shown.strip(), _trouble(heard)
        before = sum(map(measure, stretch.of(messages)))
        goal = goals(messages, stretch.end, window // 2)
        text = encodable(conversation.redactor.redact(told(goal, notes, stretch.end)))
        after = measure(Message("user", text))
        if not trouble and after >= before:
            trouble = "is longer than what it stands for"
        if trouble:
            return None, [*events, _failed(trouble)]
        row = SummaryRow(conversation.session, stretch.end, run, text, before, after, time.time())
        conversation.record(row)
        await conversation.stored()
        return row, [*events, ContextSummarised(stretch.end, before, after)]

    async def _ask(self, stretch: Stretch, conversation: Conversation, account: Account, window: int) -> Heard:
        """Raises BudgetSpent, ContextOverflow, StoreFailed."""
        most = min(MOST_TOKENS, window // 8)
        rule = _rule(most // 2)
        data = self._read(stretch, conversation.messages, window - most, rule)
        reply = self.utility.reply()
        return await self.utility.hear(rule, data, reply, account, conversation, most_tokens=most)

    def _read(self, stretch: Stretch, messages: Sequence[Message], room: int, rule: str) -> dict[str, str]:
        """What the model is given, within its own window: trimmed like any conversation."""
        measure = self.utility.counter.measure
        read = [Message("system", rule), *stretch.of(messages)]
        _, *rest = trim(read, int(READ * room), measure, opening=1).messages
        data = {}
        if stretch.earlier:
            data[NOTES], *rest = rest[0].text, *rest[1:]
        text = transcript(rest)
        left = room - sum(measure(Message("user", one)) for one in (rule, *data.values())) - 2 * len(NOTES)
        while (size := measure(Message("user", text))) > left > 0:
            text = shortened(text, max(100, int(0.9 * len(text) * left / size)))
        return data | {CONVERSATION: text}


def _rule(words: int) -> str:
    return (
        "You keep the notes of an assistant that will not see the beginning of its conversation any more. "
        f"{DATA_RULE} Write, in at most {words} words, what it must know to go on, under four headings: {HEADINGS}. "
        "Keep names, paths, numbers and decisions as they are written. Take over what earlier notes say. "
        "Write nothing else."
    )


def _trouble(heard: Heard) -> str:
    if heard.trouble:
        return heard.trouble
    if heard.reply.stopped in (None, "length", TOO_LONG):
        return "was cut off"
    return "" if heard.reply.shown.strip() else "is empty"


def _failed(why: str) -> Notice:
    return Notice("context", FAILED.format(why=why))
