"""Every error has one shape: {"error": {"code": ..., "message": what happened and what to do next, ...}}."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Mapping
from typing import Any

from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.types import Scope


class ASCIIResponse(JSONResponse):
    """JSON with everything else escaped: a lone surrogate in a model's words must not break an answer."""

    def render(self, content: Any) -> bytes:
        return json.dumps(content).encode()


class Refused(Exception):
    """A request that is answered with an error. `more` goes into the error object beside code and message."""

    def __init__(
        self, status: int, code: str, message: str, headers: Mapping[str, str] | None = None, **more: Any
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.headers = headers
        self.more = more


class TooSoon(Refused):
    """429: what may be done again at `reset`, a Unix time."""

    def __init__(self, code: str, message: str, reset: float, **more: Any) -> None:
        wait = {"Retry-After": str(max(1, math.ceil(reset - time.time())))}
        super().__init__(429, code, message, wait, reset=reset, **more)


# A browser that is made to open an answer must make nothing of it. A page of ours says what it needs instead.
SAFE_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}

# Without the second Claude Code asks again for minutes with a key that is wrong; the SDKs heed it, too.
UNAUTHORIZED = {"WWW-Authenticate": "Bearer", "x-should-retry": "false"}


def error_answer(refused: Refused, body: Mapping[str, Any] | str, status: int | None = None) -> Response:
    """The body as JSON, or as plain text for clients that show it as it is, with a status or with the error's own.

    Safe by itself: what answers an unforeseen error stands outside of all middleware.
    """
    status = status or refused.status
    more = UNAUTHORIZED if status == 401 else refused.headers
    headers = SAFE_HEADERS | dict(more or {})
    if isinstance(body, str):
        return PlainTextResponse(body.encode("utf-8", "replace"), status, headers)
    return ASCIIResponse(body, status, headers)


AnswerError = Callable[[Refused, Scope], Response]
"""The answer to a refused request, in the shape that its client expects."""


def native_error(refused: Refused, _: Scope) -> Response:
    body = {"code": refused.code, "message": refused.message} | refused.more
    return error_answer(refused, {"error": body})
