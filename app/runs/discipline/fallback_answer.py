"""The end of a run without an answer: the model is asked once more; if it stays silent, code says what happened."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from app.budget.side_query import DATA_RULE, SideAnswer, SideQuery, ends_of
from app.core.messages import Message
from app.runs.discipline.end_judge import request_of
from app.runs.discipline.verifier import listed, named, words_of
from app.transcript.conversation import Conversation
from app.transcript.reply import Reply
from app.transcript.run_totals import Outcome, RunTotals

MOST_TOKENS = 1024
MOST_RESULTS = 6  # the last results that are repeated
MOST_REQUEST = 200  # characters of the request that are repeated
MOST_NAMES = 12  # that are told
RULE = (
    f"Write the final answer to a person's request, in plain text. {DATA_RULE} You are told what the person asked for, "
    "what was done and what came of it. There are no tools. If something is missing or failed, say so. Write in the "
    "person's language."
)
ASKED = "The model ended without an answer: it is asked once more, for the answer alone."
GO_ON = "Send a message to go on."
# Why a run ended, to follow `I have no answer:`.
WHY = {
    "no_answer": "the model ended without words",
    "round_limit": "the limit of rounds was reached",
    "call_limit": "the limit of tool calls was reached",
    "token_limit": "the limit of tokens was reached",
    "deadline": "the time limit was reached",
    "budget": "the budget was spent",
    "loop_broken": "the same calls were made again and again",
}
WORDS: dict[Outcome, str] = {"failed": "failed", "refused": "not run", "unknown": "with an unknown outcome"}


async def synthesise(side_query: SideQuery, reply: Reply, totals: RunTotals, conversation: Conversation) -> SideAnswer:
    """An answer from a fresh start, with few words to read. Raises BudgetSpent, StoreFailed."""
    room = await side_query.room(conversation)
    data = words_of(conversation, room // 4)
    if totals.actions:
        data["What was done"] = listed(totals, room // 8)
    results = [one for one in conversation.messages[conversation.begins :] if one.role == "tool"]
    for number, result in enumerate(results[-MOST_RESULTS:], start=1):
        data[f"Result {number}, of {result.name}"] = ends_of(result.text, room // 10)
    # Of temperature 0 small models fall into saying the same sentence for ever.
    return await side_query.ask(RULE, data, reply, totals, conversation, most_tokens=MOST_TOKENS, temperature=None)


def fallback_answer(
    reason: str, totals: RunTotals, conversation: Conversation, why: str = "", *, advice: str = GO_ON
) -> str:
    """Say what was done, what is missing and why, and what to do, where the model gave no answer."""
    asked = " ".join(request_of(conversation).split())
    asked = f"{asked[:MOST_REQUEST]}…" if len(asked) > MOST_REQUEST else asked
    done = ", ".join(_done(totals)) or "nothing"
    why = why or WHY.get(reason, reason.replace("_", " "))
    return f"I have no answer: {why}. Done so far: {done}. Missing: an answer to “{asked}”. {advice}"


def answer_of(conversation: Conversation) -> str:
    """Return the model's last message, whole or cut, if it ends the conversation; else an empty string."""
    match conversation.messages[-1:]:
        case [Message(role="assistant", calls=(), shown=str(words))] if words.strip():
            return words
    return ""


def _done(totals: RunTotals) -> Iterator[str]:
    """Calls by name, and how many of them came to what: `bash 3 times (1 failed)`."""
    names = Counter(map(named, totals.actions.values()))
    for name, times in names.most_common(MOST_NAMES):
        often = "once" if times == 1 else f"{times} times"
        came = Counter(action.outcome for action in totals.actions.values() if named(action) == name)
        trouble = ", ".join(f"{came[outcome]} {words}" for outcome, words in WORDS.items() if came[outcome])
        yield f"{name} {often} ({trouble})" if trouble else f"{name} {often}"
    if len(names) > MOST_NAMES:
        yield f"and {len(names) - MOST_NAMES} more tools"
