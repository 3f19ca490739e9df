"""Decide if a model's text can hold calls: not where the model calls natively.

A model that has native calls and writes one as text, quotes it, or is made to. Only servers that are known to leave
calls in the text are believed to have meant it.
"""

from __future__ import annotations

from collections.abc import Sequence

from app.core.messages import Message
from app.core.provider import Provider


def name_of(provider: Provider) -> str:
    """Return the name of the model that answers or answered last, with its endpoint's name if known."""
    return provider.answers or provider.model


def text_may_call(provider: Provider, messages: Sequence[Message], natively: bool) -> bool:
    """`natively`: it has called natively in this reply; `messages` are those before.

    Asked when the model's text begins: only then is it known which one answers.
    """
    if provider.leaves_calls or not provider.native_tools:
        return True
    if provider.calls_natively or natively:
        return False
    name = name_of(provider)
    return not any(message.by == name for message in messages)
