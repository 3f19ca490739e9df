"""The last words of a server: the line of its stderr that says best why it ended, or what it lacks."""

from __future__ import annotations

import re
from collections.abc import Sequence

from tools.base.patterns import lazy_pattern
from tools.mcp.results import line

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


def request_for_key(tail: Sequence[str]) -> str:
    """Return the last line that asks for a key; an empty string if none does."""
    return next((line(text) for text in reversed(tail) if _KEY.search(text) and _LACKS.search(text)), "")


def last_words(tail: Sequence[str]) -> str:
    """Return the last line that asks for a key, else one that tells of an error: few stack traces end in that."""
    telling = next((line(text) for text in reversed(tail) if _TELLS.search(text)), "")
    return request_for_key(tail) or telling or next((line(text) for text in reversed(tail) if text.strip()), "")
