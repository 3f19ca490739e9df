"""A conversation that cannot be made to fit."""

from __future__ import annotations

from collections import Counter

from app.context.compaction.steps import Draft

NAMED = 3  # parts, the largest first
LARGER = "or use a model with a larger window"
NO_ROOM = (
    f"The tools' definitions and the room for an answer take the model's whole window. Offer fewer tools, {LARGER}."
)
PROMPT, EXAMPLES = "the system prompt", "the worked examples"
REQUEST, GOAL = "your message", "the session's first message"
ADVICE = {
    PROMPT: "Offer fewer tools, shorten the system prompt",
    EXAMPLES: "Offer fewer tools",
    REQUEST: "Send a shorter message",
    GOAL: "Start a new session",
}
LESS_AT_A_TIME = "Send a message that asks for less at a time"


class ContextOverflow(Exception):
    """Nothing more may be left out. The message names what is too big and says what to do; it is for people."""


def overflow(draft: Draft, budget: int) -> ContextOverflow:
    """Why the draft, as short as it can be, is still too long."""
    if budget <= 0:
        return ContextOverflow(NO_ROOM)
    now, whole = Counter[str](), Counter[str]()
    for at, tokens in draft.sizes.items():
        part = _part(draft, at)
        now[part] += tokens
        whole[part] += draft.whole_sizes[at]
    largest = [part for part, _ in now.most_common(NAMED)]
    told = ", ".join(f"{part} ({_tokens(now[part], whole[part])})" for part in largest)
    advice = ADVICE.get(largest[0], LESS_AT_A_TIME)
    return ContextOverflow(
        f"At its shortest this conversation takes {draft.total:,} tokens, and the model has room for {budget:,}. "
        f"Largest: {told}. {advice}, {LARGER}."
    )


def _tokens(now: int, whole: int) -> str:
    return f"{now:,} tokens" if now == whole else f"{now:,} of {whole:,} tokens"


def _part(draft: Draft, at: int) -> str:
    """What people call the message."""
    message, shape = draft.whole[at], draft.shape
    if at == shape.prompt:
        return PROMPT
    if at < draft.opening:
        return EXAMPLES
    if message.role == "user":
        return REQUEST if at in shape.requests else GOAL
    if message.role == "tool":
        return f"the result of {message.name or 'a tool'}"
    return f"the call of {message.calls[0].name}" if message.calls else "the model's last answer"
