"""Hides secrets in JSON answers: those from other sources than the log, and those of the request itself."""

from __future__ import annotations

from collections.abc import Awaitable

from msgspec import Struct
from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.redaction.redactor import Redactor

JSON = "application/json"
# In the state of a request:
SHOWN_ONCE = "shown_once"  # its answer is a secret, for its caller
REDACTED = "redacted"  # its answer was redacted piece by piece, because it is long
AS_IT_IS = {SHOWN_ONCE, REDACTED}


class RedactionMiddleware(Struct, frozen=True):
    """ASGI middleware. Only whole answers in JSON; streams are redacted where their events are made."""

    app: ASGIApp
    redactor: Redactor

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        begin: Message | None = None

        def send_redacted(message: Message) -> Awaitable[None]:
            # Not a coroutine of its own: an event of a stream goes on to `send` as it is.
            nonlocal begin
            if message["type"] == "http.response.start" and _is_json(message) and not AS_IT_IS & scope["state"].keys():
                begin = message
                return _nothing()
            if begin is not None and message["type"] == "http.response.body":
                first, begin = begin, None
                return self._answer(first, message, send)
            return send(message)

        await self.app(scope, receive, send_redacted)

    async def _answer(self, begin: Message, body: Message, send: Send) -> None:
        text = body.get("body", b"").decode()
        redacted = self.redactor.redact_json(text)
        if redacted is not text:
            body = {**body, "body": redacted.encode()}
            MutableHeaders(scope=begin)["content-length"] = str(len(body["body"]))
        await send(begin)
        await send(body)


def _is_json(begin: Message) -> bool:
    return MutableHeaders(scope=begin).get("content-type", "") == JSON


async def _nothing() -> None:
    """The beginning is sent with the body, whose length it tells."""
