"""Text that the wire format adds to a message (delimiters, time, reminder), for token counting."""

from __future__ import annotations

from app.core.clock import Clock
from app.core.data_delimiters import framed
from app.core.messages import Message
from app.models.wire.openai.history import ENOUGH

CODE = "qzvkwxjp"  # placeholder of a result code: rare letters, which take as many tokens as any code


def added(message: Message, *, native: bool = False, bare: bool = False, clock: Clock | None = None) -> str:
    """Return the added text, identical for all messages of a kind so that it is counted once.

    A text result is counted as the last of its round, with a reminder, which overestimates the others. With native
    tools, results are counted as native.
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
