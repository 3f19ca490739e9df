"""Decide what calls in a model's text are: doubted where the model calls natively.

A model that has native calls and writes one as text, shows it, quotes it, is made to write it, or has a server that
could not parse it. Servers that are known to leave calls in the text are believed to have done so.
"""

from __future__ import annotations

from collections.abc import Sequence

from app.core.messages import Message
from app.core.provider import Provider, name_of
from app.models.wire.native_calls import NATIVE
from app.transcript.reply import TextCalls


def calls_in_text(provider: Provider, messages: Sequence[Message], natively: bool) -> TextCalls:
    """`natively`: it has called natively in this reply; `messages` are those before.

    Asked when the model's text begins: only then is it known which one answers.
    """
    if provider.leaves_calls or not provider.native_tools:
        return TextCalls.READ
    name = name_of(provider)
    if provider.calls_natively or natively or any(True for message in messages if message.by == name):
        return TextCalls.DOUBTED
    return TextCalls.READ


def insists(messages: Sequence[Message]) -> bool:
    """Return whether the model has gone on to call in text, when it was asked to call natively, in an earlier run."""
    called, before = False, False
    for message in messages:
        if message.role == "user":
            before = False
        elif message.role == "assistant":
            in_text = called and any(call.dialect != NATIVE for call in message.calls)
            if in_text and before:
                return True
            called, before = called or bool(message.by), in_text
    return False
