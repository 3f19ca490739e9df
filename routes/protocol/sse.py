"""A run's log as Server-Sent Events: `id:` is the sequence number, `event:` the type, `data:` the JSON.

The response is our own, not sse-starlette's: no lock and no layer, and a stream that lasts two tasks. A token is
written where it is committed (`Watcher`); one that has to wait costs one await of the server's `send`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import aclosing, suppress
from functools import partial

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

PING_S = 15
PIECE = 16_384  # characters
# A browser comes back after a second. Part of the first event: clients exist that take it for an event of its own.
RETRY = b"retry: 1000\n"
PING: Message = {"type": "http.response.body", "body": b": ping\n\n", "more_body": True}
NOTHING: Message = {"type": "http.response.body", "body": b"", "more_body": True}
END: Message = {"type": "http.response.body", "body": b"", "more_body": False}
HEADERS = SAFE_HEADERS | {
    "Cache-Control": "no-cache, no-transform",
    "Connection": "keep-alive",
    "X-Accel-Buffering": "no",
    "Content-Type": "text/event-stream; charset=utf-8",
}
WRITE = "write"  # where `scope["state"]` has the function that writes an event at once
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


async def frames(runs: RunManager, run: str, watcher: Watcher) -> AsyncGenerator[bytes, None]:
    """Frames of events; events that are there at once leave in one piece."""
    prefix = RETRY
    async with aclosing(runs.watch(run, watcher.seq, watcher)) as pages:
        async for rows in pages:
            for piece in pieces(map(frame, rows), Last if rows[-1].type in TERMINAL else bytes):
                yield prefix + piece if prefix else piece
                prefix = b""


Direct = tuple[Watcher, Callable[[EventRow], str]]  # writes text by itself once a stream has begun; makes its frames
WriteEvent = Callable[[Callable[[EventRow], str], EventRow], bool]  # or returns False: then no frames have been made
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
        self._attendant: asyncio.Task[None] | None = None
        self._begun = False
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

    async def send_events(self, receive: Receive, send: Send, write: WriteEvent | None = None) -> None:
        """Until they end, the client leaves or the place is closed."""
        attendant: asyncio.Task[None] | None = None
        try:
            await self._send_head(send)  # as late as the reader takes it: the place may be closed meanwhile
            async with asyncio.timeout(None) as until, aclosing(self._events) as events:
                self._place.cut = partial(expire, until)
                loop = asyncio.get_running_loop()
                attending = loop.call_later(self.attended_after_s, self._begin_to_attend, receive, send)
                try:
                    ended = not self._place.closed and await self._send_bodies(events, send, write)
                finally:
                    attending.cancel()
                    attendant, self._attendant = self._attendant, None  # its traceback refers to this response
                    if attendant:
                        attendant.cancel()
                if not ended:
                    await send(END)
        except TimeoutError:
            if not until.expired():
                raise
            self._place.leave()
            await self._end_early(send, left=attendant is not None and attendant.done())
        finally:
            self._place.leave()

    async def _send_head(self, send: Send) -> None:
        head, self.raw_headers = self.raw_headers, []  # not kept as long as the stream lasts
        await send({"type": "http.response.start", "status": self.status_code, "headers": head})

    async def _send_bodies(self, events: AsyncGenerator[bytes, None], send: Send, write: WriteEvent | None) -> bool:
        """Return True if the end has left with the last one."""
        async for body in events:
            self._begun, last = True, type(body) is Last
            await send({"type": "http.response.body", "body": body, "more_body": not last})
            if last:
                return True
            if write and self._direct:
                watcher, frames = self._direct
                watcher.write = partial(write, frames)
        return False

    def _begin_to_attend(self, receive: Receive, send: Send) -> None:
        self._attendant = asyncio.create_task(self._attend(receive, send, self._place.cut))

    async def _attend(self, receive: Receive, send: Send, end: Callable[[], None]) -> None:
        """Keep the connection awake, and `end` the stream when the client has left."""
        if not self._begun:
            await send(NOTHING)  # a head that waits for the first event does so no longer
        while True:
            try:
                async with asyncio.timeout(self.ping_s):
                    message = await receive()
            except TimeoutError:
                await send(PING)  # as late as the reader takes it
                continue
            if message["type"] == "http.disconnect":
                end()
                return

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
