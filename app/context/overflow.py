"""The error for a conversation that does not fit the model's window even when trimmed."""

from __future__ import annotations

from collections import Counter

from app.context.compaction.steps import TrimState

NAMED = 3  # largest parts in the message
LARGER = "or use a model with a larger context window"
NO_ROOM = (
    "The tool definitions and the tokens reserved for an answer take the model's whole context window. "
    f"Offer fewer tools, {LARGER}."
)
PROMPT, EXAMPLES = "the system prompt", "the worked examples"
REQUEST, GOAL = "your message", "the session's first message"
ADVICE = {
    PROMPT: "Offer fewer tools, shorten the system prompt",
    EXAMPLES: "Offer fewer tools",
    REQUEST: "Send a shorter message",
    GOAL: "Start a new session",
}
LESS_AT_A_TIME = "Split the task into smaller messages"


class ContextOverflow(Exception):
    """Nothing more can be trimmed. The message names the largest parts and says what to do; a user reads it."""


def overflow(state: TrimState, budget: int) -> ContextOverflow:
    """Return the error for messages that are too long after all trimming steps."""
    if budget <= 0:
        return ContextOverflow(NO_ROOM)
    now, whole = Counter[str](), Counter[str]()
    for at, tokens in state.sizes.items():
        part = _part(state, at)
        now[part] += tokens
        whole[part] += state.whole_sizes[at]
    largest = [part for part, _ in now.most_common(NAMED)]
    parts = ", ".join(f"{part} ({_tokens(now[part], whole[part])})" for part in largest)
    advice = ADVICE.get(largest[0], LESS_AT_A_TIME)
    return ContextOverflow(
        f"Fully trimmed, this conversation takes {state.total:,} tokens, but the model has room for {budget:,}. "
        f"Largest parts: {parts}. {advice}, {LARGER}."
    )


def _tokens(now: int, whole: int) -> str:
    return f"{now:,} tokens" if now == whole else f"{now:,} of {whole:,} tokens"


def _part(state: TrimState, at: int) -> str:
    """Return the part that the message belongs to, in a user's words."""
    message = state.whole[at]
    groups = state.groups
    if at == groups.prompt:
        return PROMPT
    if at < state.opening:
        return EXAMPLES
    if message.role == "user":
        return REQUEST if at in groups.requests else GOAL
    if message.role == "tool":
        return f"the result of {message.name or 'a tool'}"
    return f"the call of {message.calls[0].name}" if message.calls else "the model's last answer"
