"""Reasons of failed connections and calls, in sentences for users and models."""

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
    """Yield the exceptions of a group, and of nested groups."""
    if isinstance(error, BaseExceptionGroup):
        for one in error.exceptions:
            yield from leaves(one)
    else:
        yield error


def reason(error: BaseException, session: McpSession, start_s: float) -> tuple[str, BaseException]:
    """Return the reason why a server could not be connected, and its exception."""
    causes = list(leaves(error))
    for cause in causes:
        if isinstance(cause, NeedsAuth):
            return "it requires a sign-in", cause
        if isinstance(cause, CannotStart):
            return str(cause), cause
    if session.last_failure.status == HTTPStatus.UNAUTHORIZED:
        return "it answers HTTP 401: it requires a sign-in, or a header `Authorization`", NeedsAuth("")
    first = causes[0]
    if isinstance(first, TimeoutError):
        return f"it did not answer within {start_s:g} s", first
    message = session.last_failure.message or session.why
    if message and "connection ended" not in message:
        return line(message), first
    return line(str(first)) or type(first).__name__, first
