"""Errors in the words of OpenAI's and Anthropic's APIs: clients decide by status and code if they ask again.

Codes of the HTTP API and of `run.failed` (docs/errors.md) become theirs by the rows of ERRORS; any other code stays,
with the type that fits its status.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from routes.protocol.errors import Refused

INVALID, LIMITED, FAILED = "invalid_request_error", "rate_limit_error", "server_error"
PASSING_S = 60.0  # a budget that is free again so soon, such as that of runs at a time, is a rate to clients
BUSY_RETRY_S = 5  # a model's server that limits requests seldom says for how long
# Programs find out by these words that a conversation has to be shortened.
TOO_LONG_FOR_OPENAI = "This conversation exceeds the model's maximum context length. "
TOO_LONG_FOR_ANTHROPIC = "prompt is too long: "


class ErrorKind(Struct, frozen=True):
    """A row of ERRORS: the status, and OpenAI's type and code. `param` is the field that is wrong, if that is known."""

    status: int
    type: str
    code: str
    param: str | None = None


NO_MODEL = ErrorKind(404, INVALID, "model_not_found", "model")
TOO_LONG = ErrorKind(400, INVALID, "context_length_exceeded", "messages")
RATE_LIMITED = ErrorKind(429, LIMITED, "rate_limit_exceeded")
NOT_ACCEPTED = ErrorKind(400, INVALID, "invalid_prompt")  # some clients ask again at any code that they do not know
FORBIDDEN = ErrorKind(403, INVALID, "permission_denied")  # by the operator: no use in asking again
UPSTREAM_FAILED = ErrorKind(502, FAILED, FAILED)
UNAVAILABLE = ErrorKind(503, FAILED, FAILED)
BROKEN = ErrorKind(500, FAILED, FAILED)

ERRORS: Mapping[str, ErrorKind] = {
    "unauthorized": ErrorKind(401, INVALID, "invalid_api_key"),
    "unknown_model": NO_MODEL,
    "model_not_found": NO_MODEL,
    "context_overflow": TOO_LONG,
    "model_context": TOO_LONG,
    "budget": ErrorKind(429, "insufficient_quota", "insufficient_quota"),
    "too_many_requests": RATE_LIMITED,
    "too_many_streams": RATE_LIMITED,
    "too_many_messages": RATE_LIMITED,
    "too_many_wrong_tokens": RATE_LIMITED,
    "session_busy": RATE_LIMITED,
    "model_busy": RATE_LIMITED,
    "model_down": UNAVAILABLE,
    "model_missing": UNAVAILABLE,
    "model_silent": ErrorKind(504, FAILED, FAILED),
    "model_cut": UPSTREAM_FAILED,
    "model_garbled": UPSTREAM_FAILED,
    "model_too_long": UPSTREAM_FAILED,
    "model_failed": UPSTREAM_FAILED,
    "model_auth": UPSTREAM_FAILED,  # the key of this server, not that of its client
    "model_list": UPSTREAM_FAILED,
    "model_rejected": NOT_ACCEPTED,
    "no_vision": NOT_ACCEPTED,
    "label_forbidden": FORBIDDEN,
    "hook_denied": FORBIDDEN,
    "model_memory": UNAVAILABLE,
    "storage_failed": UNAVAILABLE,
    "server_stopped": UNAVAILABLE,
    "paused": UNAVAILABLE,
    "interrupted": BROKEN,
    "home_gone": BROKEN,
    "internal": BROKEN,
    "script_ended": BROKEN,
}
# Ends of runs that are neither answers nor limits, with the fields of `run.failed`: a client that took one for a limit
# would go on with half an answer.
STOPPED: Mapping[str, Mapping[str, Any]] = {
    "server_stopped": {
        "code": "server_stopped",
        "message": "The server was stopped before the answer was complete. Send the request again.",
        "retryable": True,
    },
    "paused": {
        "code": "paused",
        "message": "An admin has paused the server. Send the request again once it has resumed.",
        "retryable": True,
    },
    "revoked": {
        "code": "unauthorized",
        "message": "The token of this request was revoked. Send the request with another one.",
        "retryable": False,
    },
}
# Clients ask again at 409, where it means that something is locked; 422 is not a status of theirs.
STATUSES = {409: 400, 422: 400}
ANTHROPIC_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
}

ANTHROPIC_STATUSES = {503: 529}  # by which Claude Code knows a server that is overloaded


def kind_of(refused: Refused) -> ErrorKind:
    """The row of an error, or one that fits its status. Clients give up at a quota, and ask again at a rate."""
    if refused.code == "budget" and refused.more.get("reset", math.inf) < time.time() + PASSING_S:
        return RATE_LIMITED
    if kind := ERRORS.get(refused.code):
        return kind
    status = STATUSES.get(refused.status, refused.status)
    if status >= 500:
        return ErrorKind(status, FAILED, FAILED)
    return ErrorKind(status, INVALID, refused.code) if status != 429 else RATE_LIMITED


def openai_error(refused: Refused) -> tuple[int, dict[str, Any]]:
    """The status and the JSON of an error; `headers` of the error go with it."""
    kind = kind_of(refused)
    message = (TOO_LONG_FOR_OPENAI if kind is TOO_LONG else "") + refused.message
    param = refused.more.get("param", kind.param)
    return kind.status, {"error": {"message": message, "type": kind.type, "param": param, "code": kind.code}}


def anthropic_error(refused: Refused) -> tuple[int, dict[str, Any]]:
    """The same for clients of Anthropic's API, which have no codes."""
    kind = kind_of(refused)
    message = (TOO_LONG_FOR_ANTHROPIC if kind is TOO_LONG else "") + refused.message
    default = "api_error" if kind.status >= 500 else INVALID
    error = {"type": ANTHROPIC_TYPES.get(kind.status, default), "message": message}
    return ANTHROPIC_STATUSES.get(kind.status, kind.status), {"type": "error", "error": error}


def plain_error(refused: Refused) -> tuple[int, str]:
    """The status and the message alone, for clients that show the body to a person."""
    return kind_of(refused).status, refused.message


def failure_of(failed: Mapping[str, Any]) -> Refused:
    """The fields of `run.failed` as an error, with headers for an answer that has not begun."""
    code, message = failed["code"], failed["message"]
    kind = ERRORS.get(code, BROKEN)
    if not failed["retryable"]:  # the SDKs of both ask again at any 5xx otherwise
        return Refused(kind.status, code, message, {"x-should-retry": "false"})
    return Refused(kind.status, code, message, {"Retry-After": str(BUSY_RETRY_S)} if kind is RATE_LIMITED else None)
