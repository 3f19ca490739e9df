"""The end of a run without an answer: the model is asked once more; if it stays silent, code says what happened."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from app.account import Account, Action, Outcome
from app.aside import DATA_RULE, Aside, Heard, ends_of
from app.conversation import Conversation
from app.discipline.verifier import listed
from app.judges import requests_of
from app.messages import Message
from app.reply import Reply

MOST_TOKENS = 1024
MOST_RESULTS = 6  # the last results that are repeated
MOST_REQUEST = 200  # characters of the request that are repeated
MOST_NAMES, MOST_NAME = 12, 80  # names that are told, and characters of one
RULE = (
    f"Write the final answer to a person's request, in plain text. {DATA_RULE} You are told what the person asked for, "
    "what was done and what came of it. There are no tools. If something is missing or failed, say so. Write in the "
    "person's language."
)
ASKED = "The model ended without an answer: it is asked once more, for the answer alone."
# Why a run ended, to follow `I have no answer:`.
WHY = {
    "answered": "the model ended without words",
    "round_limit": "the limit of rounds was reached",
    "call_limit": "the limit of tool calls was reached",
    "token_limit": "the limit of tokens was reached",
    "deadline": "the time limit was reached",
    "budget": "the budget was spent",
    "loop_broken": "the same calls were made again and again",
}
WORDS: dict[Outcome, str] = {"failed": "failed", "refused": "not run", "unknown": "with an unknown outcome"}


async def synthesise(aside: Aside, reply: Reply, account: Account, conversation: Conversation) -> Heard:
    """An answer from a fresh start, with few words to read. Raises BudgetSpent, StoreFailed."""
    room = await aside.room()
    data = {"The person's words": ends_of(requests_of(conversation), room // 4)}
    if account.actions:
        data["What was done"] = listed(account, room // 8)
    for number, result in enumerate(list(_results(conversation))[-MOST_RESULTS:], start=1):
        data[f"Result {number}, of {result.name}"] = ends_of(result.text, room // 10)
    # Of temperature 0 small models fall into saying the same sentence for ever.
    return await aside.hear(RULE, data, reply, account, conversation, most_tokens=MOST_TOKENS, temperature=None)


def last_words(reason: str, account: Account, conversation: Conversation) -> str:
    """What was done, what is missing and why: an honest sentence or two where a model said nothing."""
    request = next((one.text for one in reversed(conversation.messages) if one.role == "user"), "")
    asked = " ".join(request.split())
    asked = f"{asked[:MOST_REQUEST]}…" if len(asked) > MOST_REQUEST else asked
    done = ", ".join(_done(account)) or "nothing"
    why = WHY.get(reason, reason.replace("_", " "))
    return f"I have no answer: {why}. Done so far: {done}. Missing: an answer to “{asked}”. Send a message to go on."


def has_answer(conversation: Conversation) -> bool:
    """Whether the last thing that happened was that the model said something, whole or cut."""
    last = conversation.messages[-1] if conversation.messages else None
    return last is not None and last.role == "assistant" and not last.calls and bool((last.shown or "").strip())


def _results(conversation: Conversation) -> Iterator[Message]:
    """Of the turn under way."""
    asked = max((at for at, one in enumerate(conversation.messages) if one.role == "user"), default=0)
    return (one for one in conversation.messages[asked:] if one.role == "tool")


def _done(account: Account) -> Iterator[str]:
    """Calls by name, and how many of them came to what: `bash 3 times (1 failed)`."""
    names = Counter(map(_named, account.actions.values()))
    for name, times in names.most_common(MOST_NAMES):
        often = "once" if times == 1 else f"{times} times"
        came = Counter(action.outcome for action in account.actions.values() if _named(action) == name)
        trouble = ", ".join(f"{came[outcome]} {words}" for outcome, words in WORDS.items() if came[outcome])
        yield f"{name} {often} ({trouble})" if trouble else f"{name} {often}"
    if len(names) > MOST_NAMES:
        yield f"and {len(names) - MOST_NAMES} more tools"


def _named(action: Action) -> str:
    """A name that a model may have made up, as it may stand in a sentence."""
    name = "".join(one for one in action.name[:MOST_NAME] if one.isprintable())
    return name or "a call without a name"
