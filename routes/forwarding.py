"""Requests about something that one server has, answered by that one and passed on by the server that was asked.

Only answers in one piece are passed on: streams read the log, which all servers have.
"""

from __future__ import annotations

import asyncio
from base64 import b64decode, b64encode
from collections.abc import Awaitable, Callable, Collection
from re import Pattern
from typing import Any

from msgspec import Struct, convert, field, to_builtins
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.replicas.peers import Body, Refusal, ReplicaGone, Replicas
from app.runs.shared.homes import HomeAway
from app.storage.changes import StoreFailed
from app.storage.principals import Principal
from routes.protocol.errors import AnswerError, Refused
from routes.protocol.refusals import FORESEEN, refuse
from routes.services import Services
from tools.base.patterns import lazy_pattern

QUESTION = "http"
MOST_BYTES = 1 << 20  # of a request's body, and of an answer
PIECE = 512 * 1024  # of a file
PARTIAL = 206
ANSWERED_S = 60.0
PASSED_ON = frozenset({b"content-type", b"accept", b"range", b"if-none-match"})
GONE = "The server that has it has stopped just now. Try again."
SLOW = f"The server that has it did not answer within {ANSWERED_S:.0f} s. Try again."
Headers = list[tuple[bytes, bytes]]


class Servers(Struct, frozen=True):
    """Finds the server that has what a request names: None if that is this one, or none."""

    services: Services
    replicas: Replicas

    async def owner_of_run(self, _principal: Principal, run: str) -> str | None:
        if self.services.runs.has(run):
            return None
        owner, has_ended = await self.replicas.owner_of(run)
        return None if has_ended else owner

    async def home_of_caller(self, principal: Principal, _named: str) -> str | None:
        """A server of the node with the caller's files. Raises HomeAway."""
        return await self._home_of(principal.name)

    async def home_of_run(self, principal: Principal, run: str) -> str | None:
        """A server of the node with the files that the run has changed. Raises HomeAway."""
        row = await self.services.store.run(run)
        is_theirs = row is not None and row.principal == principal.name  # others must not learn where it is
        return await self._home_of(principal.name) if is_theirs else None

    async def home_if_up(self, principal: Principal, _named: str) -> str | None:
        """The same as of the caller, or this one if there is none: what is on that node then stays there."""
        try:
            return await self._home_of(principal.name)
        except HomeAway:
            return None

    async def _home_of(self, principal: str) -> str | None:
        nodes = self.replicas.nodes
        if nodes.shares:
            return None
        home = await nodes.home_of(principal)
        if home in (None, nodes.here):
            return None
        if not (there := await nodes.replicas_at(home)):
            raise HomeAway(home)
        return there[0]


Find = Callable[[Servers, Principal, str], Awaitable[str | None]]


class ForwardedPaths(Struct, frozen=True):
    """Paths of requests that one server has to answer; the first group is what `find` takes.

    `is_file`: the answer to GET is a file, which may be longer than one message.
    """

    paths: Pattern[str]
    find: Find
    methods: Collection[str] | None = None
    is_file: bool = False


PLACES = (
    ForwardedPaths(lazy_pattern(r"/runs/([^/]+)/calls/[^/]+/(?:output|input|terminal|cancel)"), Servers.owner_of_run),
    ForwardedPaths(lazy_pattern(r"/runs/([^/]+)/(?:changes|undo|approvals/[^/]+/preview)"), Servers.home_of_run),
    ForwardedPaths(lazy_pattern(r"/sessions/([^/]+)/files"), Servers.home_of_caller),
    ForwardedPaths(lazy_pattern(r"/sessions/([^/]+)/workspace/.+"), Servers.home_of_caller, is_file=True),
    ForwardedPaths(
        lazy_pattern(r"/(workspace)(?:/(?:archive|folders|moves|changes/[^/]+/undo))?"), Servers.home_of_caller
    ),
    ForwardedPaths(lazy_pattern(r"/(workspace)/files/.+"), Servers.home_of_caller, is_file=True),
    ForwardedPaths(lazy_pattern(r"/(project)"), Servers.home_of_caller),
    ForwardedPaths(lazy_pattern(r"/(?:sessions|v1/responses)/([^/]+)"), Servers.home_if_up, methods=("DELETE",)),
)


class Forwarding:
    """ASGI middleware behind `Access`, for servers that share their runs."""

    def __init__(self, app: ASGIApp, servers: Servers, answer: AnswerError) -> None:
        self._app = app
        self._servers = servers
        self._replicas = servers.replicas
        self._answer = answer
        self._replicas.answerers[QUESTION] = self._answer_here
        self._server: Starlette | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._server = scope.get("app")
        place, named = place_of(scope) if scope["type"] == "http" else (None, "")
        principal = scope["state"].get("principal") if place else None
        replica = await place.find(self._servers, principal, named) if place and principal else None
        if replica is None or replica == self._replicas.me:
            await self._app(scope, receive, send)
            return
        if place and place.is_file and scope["method"] == "GET":
            await self._send_file(replica, scope, send)
            return
        status, headers, content = await self._ask(replica, scope, await _body_of(receive), _passed_on(scope))
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": content})

    async def _send_file(self, replica: str, scope: Scope, send: Send) -> None:
        """A file in pieces. It is sent whole, whatever part was wanted."""
        plain = [header for header in _passed_on(scope) if header[0] != b"range"]
        at, size, tag = 0, 1, b""
        while at < size:
            part = [(b"range", b"bytes=%d-%d" % (at, at + PIECE - 1)), *([(b"if-range", tag)] if tag else [])]
            status, headers, content = await self._ask(replica, scope, b"", [*plain, *part])
            fields = dict(headers)
            if not tag:  # the first piece
                if status != PARTIAL:
                    await send({"type": "http.response.start", "status": status, "headers": headers})
                    await send({"type": "http.response.body", "body": content})
                    return
                size, tag = int(fields[b"content-range"].rpartition(b"/")[2]), fields[b"etag"]
                kept = [one for one in headers if one[0] not in (b"content-range", b"content-length")]
                length = (b"content-length", b"%d" % size)
                await send({"type": "http.response.start", "status": 200, "headers": [*kept, length]})
            elif status != PARTIAL:
                return  # it has changed: the connection is closed, which says that this is not all
            at += len(content)
            await send({"type": "http.response.body", "body": content, "more_body": at < size})

    async def _ask(
        self, replica: str, scope: Scope, body: bytes, passed_on: Headers
    ) -> tuple[int, list[tuple[bytes, bytes]], bytes]:
        asked = {
            "method": scope["method"],
            "path": scope["path"],
            "query": scope["query_string"].decode("latin-1"),
            "headers": [_texts(one) for one in passed_on],
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


def forwarding(services: Services, answer: AnswerError) -> list[Middleware]:
    """Return the layer that passes requests on; none if there is no other server."""
    if (replicas := services.replication.replicas) is None:
        return []
    return [Middleware(Forwarding, servers=Servers(services, replicas), answer=answer)]


def place_of(scope: Scope) -> tuple[ForwardedPaths | None, str]:
    """The place that a request belongs to, and what its path names."""
    for place in PLACES:
        found = place.paths.fullmatch(scope["path"])
        if found and (place.methods is None or scope["method"] in place.methods):
            return place, found[1]
    return None, ""


def _passed_on(scope: Scope) -> Headers:
    return [one for one in scope["headers"] if one[0] in PASSED_ON]


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
