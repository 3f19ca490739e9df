"""Why a connection or a call came to nothing, in words for people and models."""

from __future__ import annotations

from collections.abc import Iterator
from http import HTTPStatus
from typing import TYPE_CHECKING

from tools.mcp.connection.child import CannotStart
from tools.mcp.model import NeedsAuth
from tools.mcp.results import line

if TYPE_CHECKING:
    from tools.mcp.connection.session import McpSession


def leaves(error: BaseException) -> Iterator[BaseException]:
    """What is in a group of exceptions, and in groups in it."""
    if isinstance(error, BaseExceptionGroup):
        for one in error.exceptions:
            yield from leaves(one)
    else:
        yield error


def reason(error: BaseException, session: McpSession, start_s: float) -> tuple[str, BaseException]:
    """Why a server could not be connected, and the exception that says so."""
    causes = list(leaves(error))
    for cause in causes:
        if isinstance(cause, NeedsAuth):
            return "it wants somebody to sign in", cause
        if isinstance(cause, CannotStart):
            return str(cause), cause
    if session.last_failure.status == HTTPStatus.UNAUTHORIZED:
        return "it answers HTTP 401: it wants somebody to sign in, or a header `Authorization`", NeedsAuth("")
    first = causes[0]
    if isinstance(first, TimeoutError):
        return f"it did not answer within {start_s:g} s", first
    message = session.last_failure.message or session.why
    if message and "connection ended" not in message:
        return line(message), first
    return line(str(first)) or type(first).__name__, first
