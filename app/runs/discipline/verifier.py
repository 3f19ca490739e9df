"""A second look at a run that changed something: a model that sees what was asked and what was done, not what was said.

It is off unless the settings want it. It is shown no results, which could persuade it; whatever goes wrong with it
counts as a pass.
"""

from __future__ import annotations

import re

from msgspec import Struct

from app.budget.kinds import BudgetSpent
from app.budget.side_query import DATA_RULE, SideAnswer, SideQuery, ends_of
from app.core.data_delimiters import as_data
from app.core.events import Notice, Usage
from app.policy.judges import requests_of
from app.transcript.conversation import Conversation
from app.transcript.run_totals import Action, RunTotals
from tools.base.patterns import lazy_pattern

MOST_TOKENS = 1024  # of a verdict and its reason: some models think first
MOST_READ = 600  # characters
MOST_NAME = 80
RULE = (
    f"You check the work of an assistant. {DATA_RULE} You are told what the person asked for, and every action of the "
    "assistant since then with its outcome; what was said before that is no part of the request. Say SUCCESS if the "
    "actions can have done what was asked. Say FAIL and, in one sentence, what is missing, if they cannot. Begin your "
    "answer with that one word."
)
EARLIER = "What the person said before, in turns that have ended"
WANTING = "A check of your work says that it is not complete. Do what is missing, then give your answer.\n\n{why}"
_VERDICT = lazy_pattern(r"\W*(success|fail)\b[\s:.,*-]*", re.IGNORECASE)


class Verdict(Struct, frozen=True):
    """`wanting` is a note for the model when its work is not complete, else empty."""

    wanting: str
    notice: Notice
    usage: Usage | None


async def verify(side_query: SideQuery, totals: RunTotals, conversation: Conversation) -> Verdict:
    """Raises StoreFailed."""
    room = await side_query.room(conversation)
    data = words_of(conversation, room // 2) | {"The assistant's actions": listed(totals, room // 2)}
    reply = side_query.reply()
    try:
        answer = await side_query.ask(
            RULE, data, reply, totals, conversation, most_tokens=MOST_TOKENS, enough=MOST_READ
        )
    except BudgetSpent as spent:
        return _unchecked(f"was not asked: {spent}", None)
    return _verdict(answer)


def words_of(conversation: Conversation, characters: int) -> dict[str, str]:
    """Return the person's messages by title: those of this run apart from those of earlier runs."""
    at = conversation.begins
    earlier, request = requests_of(conversation.messages[:at]), requests_of(conversation.messages[at:])
    words = {"The person's request": ends_of(request, characters // 2)}
    return {EARLIER: ends_of(earlier, characters // 2)} | words if earlier else words


def listed(totals: RunTotals, characters: int) -> str:
    """A line per action, the last ones of them if they are many."""
    lines, size = list[str](), 0
    for line in map(_line, reversed(totals.actions.values())):
        size += len(line)
        if size > characters:
            lines.append("(earlier ones are left out)")
            break
        lines.append(line)
    return "\n".join(reversed(lines))


def _line(action: Action) -> str:
    return f"{action.outcome}: {named(action)} {action.arguments}"


def named(action: Action) -> str:
    """A name that a model may have made up, as it may stand in a line."""
    name = "".join(one for one in action.name[:MOST_NAME] if one.isprintable())
    return name or "a call without a name"


def _verdict(answer: SideAnswer) -> Verdict:
    said = answer.reply.shown
    verdict = None if answer.trouble else _VERDICT.match(said)
    if verdict is None:
        return _unchecked(answer.trouble or "gave no verdict that can be read", answer.usage)
    if verdict[1].lower() == "success":
        return Verdict("", Notice("verifier", "The check found that what was asked for was done."), answer.usage)
    why = said[verdict.end() :].strip()[:MOST_READ] or "It gave no reason."
    return Verdict(
        WANTING.format(why=as_data("What the check says", why)),
        Notice("verifier", f"The check found that something is missing: {why} The model goes on."),
        answer.usage,
    )


def _unchecked(trouble: str, usage: Usage | None) -> Verdict:
    return Verdict("", Notice("verifier", f"What was done was not checked: the verifier {trouble.rstrip('.')}."), usage)
