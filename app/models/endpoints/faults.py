"""Classify failures before the first token, by HTTP status or else by error code, never by the message text."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from app.core.provider import ProviderFailed

LIMIT_S = 30.0  # cooldown of a rate-limited key without a Retry-After
LONGEST_S = 3600.0  # the longest cooldown that a server can ask for
TOO_LONG = "model_context"  # whatever the status
# Codes of ProviderFailed after which, if nothing was streamed, no model has read the prompt.
UNREAD = frozenset(
    {"model_auth", "model_busy", "model_context", "model_down", "model_not_found", "model_rejected", "no_vision"}
)
FaultyPart = Literal["request", "model", "server", "key", "key_here"]


class Fault(Struct, frozen=True):
    """The reaction to one kind of failure.

    `of` is the faulty part, which cools down for `cooldown_s`: a key for all models, or `key_here` for this model only.
    The same model gets `tries` attempts in all, or `tries_with_fallback` if a fallback exists. `try_fallback` is false
    for errors of the request itself, which would fail everywhere.
    """

    of: FaultyPart
    tries: int = 1
    tries_with_fallback: int = 1
    cooldown_s: float = 0.0
    try_fallback: bool = True


REQUEST = Fault("request", try_fallback=False)
PASSING = Fault("model", tries=5, tries_with_fallback=2, cooldown_s=20.0)
SILENT = Fault("model", tries=2, cooldown_s=20.0)  # each try takes the whole inactivity limit
ABSENT = Fault("model", cooldown_s=60.0)
DEAD = Fault("server", tries=5, cooldown_s=20.0)
LIMITED = Fault("key_here", tries=5, tries_with_fallback=2, cooldown_s=LIMIT_S)

BY_STATUS: dict[int, Fault] = {
    401: Fault("key"),
    402: Fault("key_here"),
    403: Fault("key_here"),
    404: ABSENT,
    408: PASSING,
    425: PASSING,
    429: LIMITED,
}
BY_CODE: dict[str, Fault] = {
    "model_auth": Fault("key"),
    "model_busy": LIMITED,
    "model_cut": PASSING,
    "model_down": DEAD,
    "model_garbled": PASSING,
    "model_not_found": ABSENT,
    "model_silent": SILENT,
}


def fault_of(failure: ProviderFailed) -> Fault:
    """Return the row for a failure."""
    status = failure.status
    if failure.code == TOO_LONG:  # the agent shortens the prompt; a fallback need not have a larger window
        return REQUEST
    if status is None:
        return BY_CODE.get(failure.code, PASSING if failure.retryable else REQUEST)
    if 300 <= status < 400:
        return ABSENT
    return BY_STATUS.get(status, PASSING if status >= 500 else REQUEST)


def refuses_key(fault: Fault) -> bool:
    return fault.of in ("key", "key_here") and fault is not LIMITED


def cooldown_s(fault: Fault, failure: ProviderFailed) -> float:
    """Return the server's Retry-After, or the default cooldown of this fault."""
    if failure.retry_after_s is None:
        return fault.cooldown_s
    least = 1.0 if fault is LIMITED else fault.cooldown_s
    return max(least, min(failure.retry_after_s, LONGEST_S))
