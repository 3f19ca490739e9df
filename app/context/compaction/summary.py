"""Pure functions for summaries: where to cut, the transcript to summarise, and the text that replaces it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from app.context.compaction.steps import GOAL, Measure
from app.core.data_delimiters import RULE, framed, new_code
from app.core.messages import Message, in_words
from app.models.tokens.cutting import shortened
from parsing.dialects import FENCED

HEADINGS = "What was done, Current state, Pending, Key facts"
MOST_GOAL, LEAST_GOAL = GOAL, 400  # characters of each request that is quoted


def cut_position(messages: Sequence[Message], start: int, tail: int, measure: Measure) -> int | None:
    """Return the start of the newer part (at most `tail` tokens): at a turn, or within a very long turn at a round.

    None if there is no such position after `start`.
    """
    turns, rounds, total, of_turn = list[int](), list[int](), 0, 0
    for at in range(len(messages) - 1, start, -1):
        total += measure(messages[at])
        if total > tail:
            break
        if messages[at].role == "assistant":
            rounds.append(at)
        elif messages[at].role == "user" and messages[at - 1].role != "user":
            turns.append(at)
            of_turn = total
    if turns and (of_turn >= tail // 4 or not rounds or rounds[-1] > turns[-1]):
        return turns[-1]
    return rounds[-1] if rounds else None


def goal_text(messages: Sequence[Message], upto: int, most: int) -> str:
    """Quote the first request, and the latest one too if it is among the first `upto` messages."""
    requests = [in_words(message) for message in messages[:upto] if message.role == "user"]
    later = any(message.role == "user" for message in messages[upto:])
    quoted = requests[:1] if later else list(dict.fromkeys([*requests[:1], *requests[-1:]]))
    return "\n\n".join(shortened(text, max(LEAST_GOAL, min(MOST_GOAL, most))) for text in quoted)


def summary_text(goal: str, notes: str, upto: int, code: str = "") -> str:
    """Return the text that replaces the summarised messages. Notes may repeat tool results: they are data."""
    code = code or new_code(notes)
    return (
        f"[This stands for the first {upto} messages of the conversation.]\n\nUser goal:\n{goal}\n\n"
        f"Notes [{code}]:\n{notes}\n[end {code}]\n{RULE}"
    )


def transcript(messages: Sequence[Message]) -> str:
    """Return the messages as text; tool results stay between data delimiters."""
    return "\n\n".join(part for message in messages for part in _transcript_lines(message))


def _transcript_lines(message: Message) -> Iterator[str]:
    match message.role:
        case "tool":
            name, call = message.name or "a tool", message.call or ""
            yield framed(message.text, call=call, name=name, untrusted=message.untrusted, code=message.code)
        case "user":
            yield f"Person: {in_words(message)}"
        case "assistant":
            text = message.text if message.shown is None else message.shown
            yield from [f"Assistant: {text}"] if text.strip() else ()
            unseen = (one for one in message.calls if one.dialect != FENCED.name or f"`{one.name}\n" not in text)
            yield from (f"Assistant calls {one.name} {json.dumps(one.arguments)}" for one in unseen)
        case _:
            yield f"Note: {message.text}"
