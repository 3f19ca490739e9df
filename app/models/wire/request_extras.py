"""What `wire` adds to a message's own words, for those who count its tokens."""

from __future__ import annotations

from app.core.clock import Clock
from app.core.data_delimiters import framed
from app.core.messages import Message
from app.models.wire.openai.history import ENOUGH

CODE = "qzvkwxjp"  # of no result: rare letters, that take as many tokens as any code's


def added(message: Message, *, native: bool = False, bare: bool = False, clock: Clock | None = None) -> str:
    """The same for all messages of a kind, so that it is counted once.

    A result in words is taken to be the last of its round: the reminder behind it is too much for the others. Where
    tools are offered natively, results are taken to be native.
    """
    match message.role:
        case "tool":
            reminder = "" if native else f"\n\n{ENOUGH}"
            return framing(message, bare=bare and not message.untrusted) + reminder
        case "user" if clock and message.at is not None:
            return clock.stamped("", message.at)
    return ""


def framing(message: Message, *, bare: bool) -> str:
    name = message.name or "the call"
    if bare:
        return f"Result of {name}:\n"
    return framed("", call="", name=name, untrusted=message.untrusted, code=CODE)
