"""Whether what a model writes as text can be calls: not where it makes them natively.

A model that has native calls and writes one as text, quotes it, or is made to. Only servers that are known to leave
calls in the text are believed to have meant it.
"""

from __future__ import annotations

from collections.abc import Sequence

from app.core.messages import Message
from app.core.provider import Provider


def name_of(provider: Provider) -> str:
    """Of the model that answers now or has answered last, with its endpoint's if that is known."""
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
