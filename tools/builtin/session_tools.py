"""The tools list_sessions, read_session and send_to_session: the other conversations of the same principal."""

from __future__ import annotations

from collections.abc import AsyncGenerator

from parsing import Arguments
from tools.base.outcome import Progress, Result, ToolFailed, required
from tools.tool import Context

SEND = "send_to_session"
NEW = "new"  # in place of the id of a session
LONGEST = 20_000  # characters of a message
_OFF = "Other sessions cannot be reached here. Ask the person for what you need."


async def list_sessions(arguments: Arguments, context: Context) -> AsyncGenerator[Progress | Result, None]:
    """Return ids and titles; untrusted if one of the sessions is."""
    yield await required(context.sessions, _OFF).list(arguments.get("query", ""))


async def read_session(arguments: Arguments, context: Context) -> AsyncGenerator[Progress | Result, None]:
    """Return a part of the messages; untrusted if the session is."""
    yield await required(context.sessions, _OFF).read(arguments["session"], int(arguments.get("offset", 0)))


async def send_to_session(arguments: Arguments, context: Context) -> str:
    """Begin a run in another session, or queue it there, or begin a session with it."""
    message = arguments["message"]
    if not message.strip() or len(message) > LONGEST:
        raise ToolFailed(f"message must have 1 to {LONGEST:,} characters.")
    return await required(context.sessions, _OFF).send(arguments["session"], message)
