"""Replies that came whole as reasoning, without a word of text.

A server whose reasoning parser does not fit the model takes all that the model writes for a thought (vLLM and SGLang
with `--reasoning-parser deepseek_r1` and a model that does not think): text and calls of such a reply are the answer.
A model that does think can end a reply behind its thought as well, and that thought is no answer. What tells them apart
is learnt of each model of a server:

- Its replies have had reasoning and text, or reasoning and native calls: what comes as reasoning is a thought.
- Nothing is known, and the reply ends in its calls: a model that quotes a call in a thought goes on behind it, so the
  model has called. These are calls in text like any other.
- Nothing is known otherwise: the model is asked once more, for the answer alone. If that comes as reasoning as well,
  it is the answer, and so is what comes as reasoning from then on.
"""

from __future__ import annotations

from collections.abc import Iterator

from app.core.events import AgentEvent, Notice
from app.core.provider import Provider
from app.transcript.reply import Reply

REASONING = "reasoning"  # the ability
APART, WHOLE, UNSURE = "apart", "whole replies", ""  # its values
MISFIT = "If the model does not think, start its server without `--reasoning-parser`"
TAKEN = Notice(
    REASONING, f"The whole reply came as reasoning, and nothing as text: it is taken as the answer. {MISFIT}."
)
IN_VAIN = f"all that the model wrote came as reasoning. {MISFIT}"


def as_answer(provider: Provider, reply: Reply, *, asks_again: bool) -> Iterator[AgentEvent]:
    """Take a whole reply that came as reasoning as the answer if it is one. The reply has ended.

    `asks_again`: where that is not known, the model will be asked for the answer.
    """
    known = provider.ability(REASONING).value
    if reply.has_thought_apart and known != APART:
        provider.show(REASONING, APART, "a reply had reasoning and an answer")
    if not reply.is_whole_thought or known == APART:
        return
    calls = known == WHOLE or reply.thought_ends_in_calls
    if calls or not asks_again:
        yield TAKEN
        yield from reply.take_thought(calls=calls)


def known_as_answer(provider: Provider, reply: Reply) -> None:
    """Take the reply to a side query as the answer where whole replies are known to come as reasoning."""
    if reply.is_whole_thought and provider.ability(REASONING).value == WHOLE:
        list(reply.take_thought(calls=True))  # its events are not shown


def answer_again(provider: Provider, reply: Reply) -> Iterator[Notice]:
    """Take what came as reasoning when the model was asked once more as the answer, if no reply has been apart yet."""
    if not reply.is_whole_thought:
        return
    if provider.ability(REASONING).value == APART:  # perhaps no longer: the next replies show it
        provider.show(REASONING, UNSURE, "two replies came whole as reasoning")
        return
    provider.show(REASONING, WHOLE, "two replies came whole as reasoning")
    known_as_answer(provider, reply)
    yield TAKEN
