"""The answer of a guard, and what it is where there is none: a denial."""

from __future__ import annotations

import json
from typing import Any, Literal

from msgspec import Struct

from app.transcript.titles import one_line

LONGEST_REASON = 500  # characters
EXAMPLE = '{"decision": "allow"}'


class Verdict(Struct, frozen=True):
    """`hook` is the guard that has decided so; `reason` is a sentence."""

    decision: Literal["allow", "deny", "ask"]
    reason: str = ""
    hook: str = ""


ALLOWED = Verdict("allow")


class HookFailed(Exception):
    """A hook did not answer as it should. The message is the predicate of a sentence."""


def verdict_of(answer: bytes, hook: str) -> Verdict:
    """Read a guard's answer. Raises HookFailed."""
    try:
        fields: Any = json.loads(answer)
    except (ValueError, RecursionError):
        raise HookFailed(f"answered no JSON such as {EXAMPLE}") from None
    if not isinstance(fields, dict) or fields.get("decision") not in ("allow", "deny", "ask"):
        raise HookFailed(f"answered no decision: allow, deny or ask, such as {EXAMPLE}")
    reason = fields.get("reason", "")
    if not isinstance(reason, str):
        raise HookFailed("answered a reason that is no text")
    return Verdict(fields["decision"], one_line(reason)[:LONGEST_REASON], hook)


def stricter(first: Verdict, second: Verdict) -> Verdict:
    """Return the stricter of two verdicts, of equal ones the first."""
    order = ("allow", "ask", "deny")
    return second if order.index(second.decision) > order.index(first.decision) else first
