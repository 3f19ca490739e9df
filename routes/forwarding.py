"""Requests about something that one server has, answered by that one and passed on by the server that was asked.

Only answers in one piece are passed on: streams read the log, which all servers have.
"""

from __future__ import annotations

import asyncio
from base64 import b64decode, b64encode
from collections.abc import Awaitable, Callable
from re import Pattern
from typing import Any

from msgspec import Struct, convert, field, to_builtins
from starlette.applications import Starlette
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.replicas.peers import Body, Refusal, ReplicaGone
from app.runs.shared.shared_runs import SharedRuns
from app.storage.changes import StoreFailed
from app.storage.principals import Principal
from routes.protocol.errors import AnswerError, Refused
from routes.protocol.refusals import FORESEEN, refuse
from routes.services import Services
from tools.base.patterns import lazy_pattern

QUESTION = "http"
MOST_BYTES = 1 << 20  # of a request's body, and of an answer
ANSWERED_S = 60.0
PASSED_ON = frozenset({b"content-type", b"accept", b"range", b"if-none-match"})
GONE = "The server that has it has stopped just now. Try again."
SLOW = f"The server that has it did not answer within {ANSWERED_S:.0f} s. Try again."
Find = Callable[[Services, str], Awaitable[str | None]]
"""Returns the server that has what a request names; None if that is this one, or none."""


async def owner_of_run(services: Services, run: str) -> str | None:
    runs = services.runs
    if not isinstance(runs, SharedRuns) or runs.has(run):
        return None
    owner, has_ended = await runs.replicas.owner_of(run)
    return None if has_ended else owner


class Place(Struct, frozen=True):
    """Paths of requests that one server has to answer; the first group is what `find` takes."""

    paths: Pattern[str]
    find: Find


PLACES = (Place(lazy_pattern(r"/runs/([^/]+)/calls/[^/]+/(?:output|input|cancel)"), owner_of_run),)


class Forwarding:
    """ASGI middleware behind `Access`, for servers that share their runs."""

    def __init__(self, app: ASGIApp, services: Services, runs: SharedRuns, answer: AnswerError) -> None:
        self._app = app
        self._services = services
        self._replicas = runs.replicas
        self._answer = answer
        self._replicas.answerers[QUESTION] = self._answer_here
        self._server: Starlette | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._server = scope.get("app")
        replica = await self._place_of(scope) if scope["type"] == "http" else None
        if replica is None or replica == self._replicas.me:
            await self._app(scope, receive, send)
            return
        status, headers, content = await self._ask(replica, scope, await _body_of(receive))
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": content})

    async def _place_of(self, scope: Scope) -> str | None:
        if scope["state"].get("principal") is None:
            return None
        for place in PLACES:
            if found := place.paths.fullmatch(scope["path"]):
                return await place.find(self._services, found[1])
        return None

    async def _ask(self, replica: str, scope: Scope, body: bytes) -> tuple[int, list[tuple[bytes, bytes]], bytes]:
        asked = {
            "method": scope["method"],
            "path": scope["path"],
            "query": scope["query_string"].decode("latin-1"),
            "headers": [_texts(one) for one in scope["headers"] if one[0] in PASSED_ON],
            "principal": to_builtins(scope["state"]["principal"]),
            "body": b64encode(body).decode(),
        }
        try:
            async with asyncio.timeout(ANSWERED_S):
                answer = await self._replicas.ask(replica, QUESTION, asked)
        except ReplicaGone:
            raise StoreFailed(GONE) from None
        except TimeoutError:
            raise StoreFailed(SLOW) from None
        except Refusal as refusal:
            raise StoreFailed(f"{refusal} Try again.") from refusal
        headers = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in answer["headers"]]
        return answer["status"], headers, b64decode(answer["body"])

    async def _answer_here(self, asked: Body) -> Any:
        """Answer as if the request had come to this server. Raises Refusal."""
        collected = _Collected()
        headers = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in asked["headers"]]
        body = b64decode(asked["body"])
        scope: Scope = {
            "type": "http",
            "http_version": "1.1",
            "scheme": "http",
            "server": None,
            "client": None,
            "root_path": "",
            "method": asked["method"],
            "path": asked["path"],
            "raw_path": asked["path"].encode(),
            "query_string": asked["query"].encode("latin-1"),
            "headers": [*headers, (b"content-length", str(len(body)).encode())],
            "app": self._server,
            "state": {"principal": convert(asked["principal"], Principal)},
        }

        async def receive() -> Message:
            return {"type": "http.request", "body": body, "more_body": False}

        try:
            await self._app(scope, receive, collected.take)
        except FORESEEN as error:
            await self._answer(refuse(error), scope)(scope, receive, collected.take)
        return collected.answer()


class _Collected(Struct):
    status: int = 0
    headers: list[list[str]] = field(default_factory=list)
    content: bytes = b""

    async def take(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.headers = [_texts(one) for one in message["headers"]]
        else:
            self.content += message.get("body", b"")

    def answer(self) -> Body:
        if not self.status or len(self.content) > MOST_BYTES:
            raise Refusal("too_large", "The answer is too large to be passed on from the server that has it.")
        return {"status": self.status, "headers": self.headers, "body": b64encode(self.content).decode()}


def _texts(header: tuple[bytes, bytes]) -> list[str]:
    return [header[0].decode("latin-1"), header[1].decode("latin-1")]


async def _body_of(receive: Receive) -> bytes:
    body, more = b"", True
    while more:
        message = await receive()
        body += message.get("body", b"")
        more = message.get("more_body", False)
        if len(body) > MOST_BYTES:
            raise Refused(413, "too_long", f"A request about what another server has is at most {MOST_BYTES:,} bytes.")
    return body
