"""A run's log as Server-Sent Events: `id:` is the sequence number, `event:` the type, `data:` the JSON.

The response is our own, not sse-starlette's: no lock, no layer and no second task. A token is written where it is
committed (`Watcher`); one that has to wait costs one await of the server's `send`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import aclosing, suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from app.core.events import TERMINAL
from app.log.event_writer import Watcher
from app.runs.connections import OpenStream
from app.runs.run_manager import RunManager
from app.storage.runs import EventRow, RunRow
from routes.protocol.errors import SAFE_HEADERS, Refused
from routes.protocol.numbers import MAX_QUOTED, whole_number

if TYPE_CHECKING:
    from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

PING_S = 15
PIECE = 16_384  # characters
# A browser comes back after a second. Part of the first event: clients exist that take it for an event of its own.
RETRY = b"retry: 1000\n"
PING = b": ping\n\n"
NOTHING: Message = {"type": "http.response.body", "body": b"", "more_body": True}
END: Message = {"type": "http.response.body", "body": b"", "more_body": False}
HEADERS = SAFE_HEADERS | {
    "Cache-Control": "no-cache, no-transform",
    "Connection": "keep-alive",
    "X-Accel-Buffering": "no",
    "Content-Type": "text/event-stream; charset=utf-8",
}
CLIENT = "client"  # where `scope["state"]` has the Client of the response
STREAM = "stream"  # where `scope["state"]` has the response whose events are still to be sent
ATTENDED_AFTER_S = 0.5  # until then a client that leaves is not noticed
PARTING_S = 0.5  # for the end of a stream that is cut to be written; a reader that has stalled does not take it


class Last(bytes):
    """A piece behind which nothing follows: the end of the stream leaves with it."""


def cursor(request: Request) -> int:
    """The position to resume from: `Last-Event-ID`, else `?after=`, else the beginning. Raises Refused."""
    given = request.headers.get("last-event-id") or request.query_params.get("after") or "0"
    if (seq := whole_number(given)) is None:
        raise bad_cursor(given)
    return seq


def bad_cursor(given: str) -> Refused:
    message = f"Last-Event-ID (or ?after=) is {given[:MAX_QUOTED]!a}; send the `id:` of the last event you saw"
    return Refused(400, "invalid_cursor", message)


def frame(row: EventRow) -> str:
    return f"id: {row.seq}\nevent: {row.type}\ndata: {row.data}\n\n"


def pieces(frames: Iterable[str], last: Callable[[bytes], bytes] = bytes) -> Iterator[bytes]:
    """The frames, together where they are small: what a stalled reader holds up in memory is one piece.

    The last one is what `last` makes of it.
    """
    waiting, size = list[str](), 0
    for text in frames:
        if waiting and size + len(text) > PIECE:
            yield "".join(waiting).encode()
            waiting, size = [], 0
        waiting.append(text)
        size += len(text)
    if size:
        yield last("".join(waiting).encode())


Frames = Callable[[EventRow], str]


class Client:
    """The client of a response: no task is needed to write to it, or to see that it leaves."""

    __slots__ = ("_connection", "_cycle")

    def __init__(self, cycle: RequestResponseCycle, connection: Any) -> None:
        self._cycle, self._connection = cycle, connection

    @property
    def has_left(self) -> bool:
        return self._cycle.disconnected

    def break_off(self) -> None:
        """Close the connection without an answer."""
        self._cycle.disconnected = True  # else it answers 500 instead
        self._connection.transport.abort()

    @property
    def _takes(self) -> bool:
        cycle = self._cycle
        is_open = not (cycle.response_complete or cycle.disconnected)
        return is_open and not cycle.flow.write_paused and cycle.chunked_encoding is True

    def keep_awake(self, part: bytes) -> None:
        """Do what `send` would, unless it would wait. An empty part lets go a head that waits for one.

        A long body, or a request behind this one, has paused reading, without which no end of the connection is seen.
        """
        if not self.has_left:
            self._cycle.flow.resume_reading()
        if self._takes:
            self._cycle.transport.write(b"%x\r\n%b\r\n" % (len(part), part) if part else b"")

    def write_event(self, frames: Frames, row: EventRow) -> bool:
        """Write an event as `send` would; return False if that would wait: then no frames are made."""
        if not self._takes:
            return False
        if part := frames(row).encode():
            self._cycle.transport.write(b"%x\r\n%b\r\n" % (len(part), part))
        return True

    def watch(self, leaves: Callable[[], None] | None) -> None:
        """Have `leaves` called once it has left."""
        self._connection.leaves = leaves
        if leaves and self.has_left:
            leaves()


async def frames(runs: RunManager, run: str, watcher: Watcher) -> AsyncGenerator[bytes, None]:
    """Frames of events; events that are there at once leave in one piece."""
    prefix = RETRY
    async with aclosing(runs.watch(run, watcher.seq, watcher)) as pages:
        async for rows in pages:
            for piece in pieces(map(frame, rows), Last if rows[-1].type in TERMINAL else bytes):
                yield prefix + piece if prefix else piece
                prefix = b""
            del rows, piece  # while it waits, which may be for long


Direct = tuple[Watcher, Frames]  # writes text by itself once a stream has begun
OnLeave = Callable[[], Awaitable[None]]


def event_stream(
    place: OpenStream, runs: RunManager, row: RunRow, after: int = 0, on_leave: OnLeave | None = None
) -> EventStreamResponse:
    """The response only reads the log: a client that leaves does not stop the run."""
    named = {"X-Run-Id": row.id, "X-Session-Id": row.session}
    watcher = Watcher(after)
    return EventStreamResponse(place, frames(runs, row.id, watcher), named, on_leave, (watcher, frame))


class EventStreamResponse(Response):
    """Encoded events, kept awake by comments, past proxies that would hold them back. Needs a StreamingApplication.

    It gives its place back when it ends, and ends when its place is closed. `on_leave` is called if the client leaves
    before. Most answers of one token have ended before anything has to attend to their client.
    """

    ping_s: float = PING_S
    attended_after_s: float = ATTENDED_AFTER_S

    def __init__(
        self,
        place: OpenStream,
        events: AsyncGenerator[bytes, None],
        headers: Mapping[str, str] | None = None,
        on_leave: OnLeave | None = None,
        direct: Direct | None = None,
    ) -> None:
        self.status_code = 200
        self.background = None
        self.raw_headers = [*RAW_HEADERS, *_encoded(headers or {})]
        self._timer: asyncio.TimerHandle | None = None
        self._place = place
        self._events = events
        self._on_leave = on_leave
        self._direct = direct

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._place:
            self._place.check()
        if scope["method"] == "HEAD":  # gets no body, and would wait for its end
            self._place.leave()
            await self._send_head(send)
            await send(END)
        else:
            scope["state"][STREAM] = self

    async def send_events(self, send: Send, client: Client) -> None:
        """Until they end, the client leaves or the place is closed."""
        try:
            await self._send_head(send)  # as late as the reader takes it: the place may be closed meanwhile
            async with asyncio.timeout(None) as until, aclosing(self._events) as events:
                self._place.cut = partial(expire, until)
                loop = asyncio.get_running_loop()
                self._timer = loop.call_later(self.attended_after_s, self._attend, client)
                try:
                    ended = not self._place.closed and await self._send_bodies(events, send, client)
                finally:
                    self._timer.cancel()
                    client.watch(None)
                if not ended:
                    await send(END)
        except TimeoutError:
            if not until.expired():
                raise
            self._place.leave()
            await self._end_early(send, left=client.has_left)
        finally:
            self._place.leave()

    async def _send_head(self, send: Send) -> None:
        head, self.raw_headers = self.raw_headers, []  # not kept as long as the stream lasts
        await send({"type": "http.response.start", "status": self.status_code, "headers": head})

    async def _send_bodies(self, events: AsyncGenerator[bytes, None], send: Send, client: Client) -> bool:
        """Return True if the end has left with the last one."""
        async for body in events:
            last = type(body) is Last
            await send({"type": "http.response.body", "body": body, "more_body": not last})
            if last:
                return True
            if self._direct:
                watcher, frames = self._direct
                watcher.write = partial(client.write_event, frames)
            del body
        return False

    def _attend(self, client: Client) -> None:
        """End the stream when the client leaves, and keep the connection awake."""
        client.watch(self._place.cut)
        self._keep_awake(client, b"")

    def _keep_awake(self, client: Client, part: bytes = PING) -> None:
        client.keep_awake(part)  # where it would wait, much is to be sent anyway
        self._timer = asyncio.get_running_loop().call_later(self.ping_s, self._keep_awake, client)

    async def _end_early(self, send: Send, *, left: bool) -> None:
        if not left:
            with suppress(TimeoutError):
                async with asyncio.timeout(PARTING_S):
                    await send(END)
        elif self._on_leave:
            await self._on_leave()


def _encoded(headers: Mapping[str, str]) -> list[tuple[bytes, bytes]]:
    return [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]


RAW_HEADERS = _encoded(HEADERS)


def expire(until: asyncio.Timeout) -> None:
    """Once: the client may leave while its place is being closed."""
    if until.when() is None:
        until.reschedule(0)
