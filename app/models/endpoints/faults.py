"""What a failure before the first word means for who asks: rows by status, else by code, never by what was said."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from app.core.provider import ProviderFailed

LIMIT_S = 30.0  # that a limited key rests, if its server does not say
LONGEST_S = 3600.0  # rest that a server can ask for
TOO_LONG = "model_context"  # told with whatever status
# Codes of ProviderFailed that say that no model has read the prompt, if nothing came before.
UNREAD = frozenset(
    {"model_auth", "model_busy", "model_context", "model_down", "model_not_found", "model_rejected", "no_vision"}
)
OutOfOrder = Literal["request", "model", "host", "key", "key_here"]


@dataclass(frozen=True, slots=True)
class Fault:
    """`of` is what is out of order, and rests for `rest_s`: a key in general, or `key_here`, for this model.

    `tries`: how often the same model is asked in all if there is no other to ask, `beside` if there is one. What is
    wrong with the request itself is wrong `elsewhere`, too.
    """

    of: OutOfOrder
    tries: int = 1
    beside: int = 1
    rest_s: float = 0.0
    elsewhere: bool = True


REQUEST = Fault("request", elsewhere=False)
PASSING = Fault("model", tries=5, beside=2, rest_s=20.0)
SILENT = Fault("model", tries=2, rest_s=20.0)  # each try takes as long as a model may be silent
ABSENT = Fault("model", rest_s=60.0)
DEAD = Fault("host", tries=5, rest_s=20.0)
LIMITED = Fault("key_here", tries=5, beside=2, rest_s=LIMIT_S)

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
    status = failure.status
    if failure.code == TOO_LONG:  # another model may have the room, or not: the agent makes it fit
        return REQUEST
    if status is None:
        return BY_CODE.get(failure.code, PASSING if failure.retryable else REQUEST)
    if 300 <= status < 400:
        return ABSENT
    return BY_STATUS.get(status, PASSING if status >= 500 else REQUEST)


def refuses_key(fault: Fault) -> bool:
    return fault.of in ("key", "key_here") and fault is not LIMITED


def rest_s(fault: Fault, failure: ProviderFailed) -> float:
    """As long as the server asks to wait, or as is usual."""
    if failure.retry_after_s is None:
        return fault.rest_s
    least = 1.0 if fault is LIMITED else fault.rest_s
    return max(least, min(failure.retry_after_s, LONGEST_S))
