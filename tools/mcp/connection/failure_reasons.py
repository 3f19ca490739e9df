"""Reasons of failed connections and calls, in sentences for users and models; and the last words of a server: the line
of its stderr that says best why it ended, or what it lacks.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from http import HTTPStatus
from typing import TYPE_CHECKING

from tools.base.patterns import lazy_pattern
from tools.mcp.connection.child import CannotStart
from tools.mcp.model import NeedsAuth
from tools.mcp.results import line

if TYPE_CHECKING:
    from tools.mcp.connection.session import McpSession

_KEY = lazy_pattern(
    r"\b[A-Z][A-Z0-9]*(_[A-Z0-9]+)*_(KEY|TOKEN|SECRET|PASSWORD|PAT|CREDENTIALS)\b"
    r"|(?i:\b(api|access|auth|secret)[ _-]?(key|token)s?\b|\bcredentials?\b|\benvironment variables?\b)"
)
_LACKS = lazy_pattern(
    r"\b(requires?|required|missing|must|needs?|please|unset|undefined|provide|no)\b|\bnot (be )?(set|found|given|"
    r"provided|configured|specified|defined)\b",
    re.IGNORECASE,
)
_TELLS = lazy_pattern(r"error|fatal|cannot|failed|missing|required|not found", re.IGNORECASE)


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


def request_for_key(tail: Sequence[str]) -> str:
    """Return the last line that asks for a key; an empty string if none does."""
    return next((line(text) for text in reversed(tail) if _KEY.search(text) and _LACKS.search(text)), "")


def last_words(tail: Sequence[str]) -> str:
    """Return the last line that asks for a key, else one that tells of an error: few stack traces end in that."""
    telling = next((line(text) for text in reversed(tail) if _TELLS.search(text)), "")
    return request_for_key(tail) or telling or next((line(text) for text in reversed(tail) if text.strip()), "")
