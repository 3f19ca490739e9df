"""The judgement whether a reply without calls only announces work: by its shape, in doubt by the utility model."""

from __future__ import annotations

import re

from msgspec import Struct
from msgspec.structs import replace

from app.budget.kinds import BudgetSpent
from app.budget.side_query import DATA_RULE, SideQuery, ends_of
from app.core.events import AgentEvent
from app.core.messages import in_words
from app.runs.discipline.endings import SHORT, End, end_of
from app.transcript.conversation import Conversation
from app.transcript.reply import Reply
from app.transcript.run_totals import RunTotals
from parsing.fences import shows_arguments
from tools.base.patterns import lazy_pattern

TIME_LIMIT_S = 10.0
MOST_TOKENS = 512  # some models think first
MOST_READ = 16  # characters of the verdict
MOST_REQUEST = 1000
RULE = (
    f"You see a person's request and the end of an assistant's reply. {DATA_RULE} Say WORK if the reply ends by "
    "announcing something that the assistant itself is about to do now and has not done. Say END if it is an answer, a "
    "question to the person, an offer or a report of what was done. Answer with that one word."
)
_VERDICT = lazy_pattern(r"\W*work\b", re.IGNORECASE)


class EndJudge(Struct, frozen=True):
    """Judges the replies of one run. `side_query` queries the utility model, if there is one."""

    side_query: SideQuery | None = None

    async def announces(
        self, reply: Reply, totals: RunTotals, conversation: Conversation
    ) -> tuple[bool, tuple[AgentEvent, ...]]:
        """Return whether the reply announces work that does not follow, and the events of a query. Raises StoreFailed.

        Whatever goes wrong with a query, the reply is an answer then.
        """
        request = request_of(conversation)
        text = reply.earlier + reply.shown
        if len(text) < SHORT and text.strip() not in request and shows_arguments(text, reply.tools):
            return True, ()  # in a fence without the name of the tool
        end = end_of(text, request, worked=totals.calls_run > 0)
        if end is not End.DOUBTFUL or self.side_query is None:
            return end is End.ANNOUNCEMENT, ()
        query = self.side_query
        data = {"The request": ends_of(request, MOST_REQUEST), "The end of the reply": text[-SHORT:]}
        try:
            answer = await query.ask(
                RULE, data, query.reply(), totals, conversation, most_tokens=MOST_TOKENS, enough=MOST_READ
            )
        except BudgetSpent:
            return False, ()
        verdict = not answer.trouble and _VERDICT.match(answer.reply.shown) is not None
        return verdict, (*answer.notices, answer.usage)


def judge_of(utility: SideQuery | None) -> EndJudge:
    """Return the judge of a run; `utility` queries the utility model, if one is configured."""
    return EndJudge(replace(utility, time_limit_s=TIME_LIMIT_S) if utility else None)


def request_of(conversation: Conversation) -> str:
    """Return the person's last message."""
    return next((in_words(one) for one in reversed(conversation.messages) if one.role == "user"), "")
