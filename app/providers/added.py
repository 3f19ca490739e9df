"""What `wire` adds to a message's own words, for those who count its tokens."""

from __future__ import annotations

from app.clock import Clock
from app.framing import framed
from app.messages import Message
from app.providers.wire import ENOUGH

CODE = "qzvkwxjp"  # of no result: rare letters, that take as many tokens as any code's


def added(message: Message, *, bare: bool = False, clock: Clock | None = None) -> str:
    """The same for all messages of a kind, so that it is counted once. A result is taken to be the last of its round:
    the reminder behind it is few tokens too many for the others."""
    match message.role:
        case "tool" if bare and not message.untrusted:
            return f"Result of {message.name}:\n\n\n{ENOUGH}"
        case "tool":
            name = message.name or "the call"
            return framed("", call="", name=name, untrusted=message.untrusted, code=CODE) + f"\n\n{ENOUGH}"
        case "user" if clock and message.at is not None:
            return clock.stamped("", message.at)
    return ""
