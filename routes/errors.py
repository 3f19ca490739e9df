"""Every error has one shape: {"error": {"code": ..., "message": what happened and what to do next, ...}}."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from app.inbox import InboxFull
from app.pause import Paused
from app.runs import KeyReused, NotFound, RunOver, SessionBusy, Stopping
from app.store import StoreFailed
from tools.job_records import JobsFailed, NoSuchJob


class ASCIIResponse(JSONResponse):
    """JSON with everything else escaped: a lone surrogate in a model's words must not break an answer."""

    def render(self, content: Any) -> bytes:
        return json.dumps(content).encode()


class Refused(Exception):
    """A request that is answered with an error. `more` goes into the error object beside code and message."""

    headers: Mapping[str, str] | None = None

    def __init__(self, status: int, code: str, message: str, **more: Any) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.more = more


def refusal(refused: Refused) -> Response:
    body = {"code": refused.code, "message": refused.message} | refused.more
    headers = {"WWW-Authenticate": "Bearer"} if refused.status == 401 else refused.headers
    return ASCIIResponse({"error": body}, refused.status, headers)


def _busy(error: SessionBusy) -> Refused:
    return Refused(409, "session_busy", str(error), run=error.run)


def _http(error: HTTPException) -> Refused:
    message = f"{error.detail}. GET / says what there is."
    refused = Refused(error.status_code, HTTP_CODES.get(error.status_code, "http_error"), message)
    refused.headers = error.headers  # `Allow`, where the method is wrong
    return refused


HTTP_CODES = {404: "not_found", 405: "method_not_allowed"}
BROKEN = "The server has a bug that broke this request; its log has the details."

# What each kind of error becomes. The last row answers what nobody foresaw; the server logs it with its trace.
REFUSALS: dict[type[Exception], Callable[[Any], Refused]] = {
    Refused: lambda error: error,
    NotFound: lambda error: Refused(404, "not_found", str(error)),
    NoSuchJob: lambda error: Refused(404, "not_found", f"{error} GET /jobs lists yours."),
    JobsFailed: lambda error: Refused(503, "jobs_failed", str(error)),
    SessionBusy: _busy,
    RunOver: lambda error: Refused(409, "run_ended", str(error)),
    InboxFull: lambda error: Refused(429, "too_many_messages", str(error)),
    KeyReused: lambda error: Refused(422, "key_reused", str(error)),
    Paused: lambda error: Refused(503, "paused", str(error)),
    Stopping: lambda error: Refused(503, "stopping", str(error)),
    StoreFailed: lambda error: Refused(503, "storage_failed", str(error)),
    HTTPException: _http,
    Exception: lambda _: Refused(500, "internal", BROKEN),
}


def _handler(refuse: Callable[[Any], Refused]) -> Callable[[Request, Exception], Awaitable[Response]]:
    async def handle(_: Request, error: Exception) -> Response:
        return refusal(refuse(error))

    return handle


HANDLERS = {kind: _handler(refuse) for kind, refuse in REFUSALS.items()}
