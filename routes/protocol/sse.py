"""A run's log as Server-Sent Events: `id:` is the sequence number, `event:` the type, `data:` the JSON.

The response is our own, not sse-starlette's: a token costs one await of the server's `send` here, no lock and no layer,
and a stream two tasks.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing, suppress
from functools import partial

from starlette.applications import Starlette
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from app.runs.connections import Place
from app.runs.run_manager import RunManager
from app.storage.runs import EventRow, RunRow

PING_S = 15
PIECE = 16_384  # characters
# A browser comes back after a second. Part of the first event: clients exist that take it for an event of its own.
RETRY = b"retry: 1000\n"
PING: Message = {"type": "http.response.body", "body": b": ping\n\n", "more_body": True}
END: Message = {"type": "http.response.body", "body": b"", "more_body": False}
HEADERS = {"Cache-Control": "no-cache, no-transform", "Connection": "keep-alive", "X-Accel-Buffering": "no"}
STREAM = "stream"  # where `scope["state"]` has the response whose events are still to be sent
PARTING_S = 0.5  # for the end of a stream that is cut to be written; a reader that has stalled does not take it


def frame(row: EventRow) -> str:
    return f"id: {row.seq}\nevent: {row.type}\ndata: {row.data}\n\n"


def pieces(rows: Sequence[EventRow], frame: Callable[[EventRow], str] = frame) -> Iterator[bytes]:
    """The rows' frames, together where they are small: what a stalled reader holds up in memory is one piece."""
    if len(rows) == 1:  # a token, most of the time
        yield frame(rows[0]).encode()
        return
    waiting, size = list[str](), 0
    for row in rows:
        text = frame(row)
        if waiting and size + len(text) > PIECE:
            yield "".join(waiting).encode()
            waiting, size = [], 0
        waiting.append(text)
        size += len(text)
    yield "".join(waiting).encode()


async def frames(runs: RunManager, run: str, after: int) -> AsyncGenerator[bytes, None]:
    """Frames of events; events that are there at once leave in one piece."""
    prefix = RETRY
    async with aclosing(runs.watch(run, after)) as pages:
        async for rows in pages:
            for piece in pieces(rows):
                yield prefix + piece
                prefix = b""


OnLeave = Callable[[], Awaitable[None]]


def event_stream(
    place: Place, runs: RunManager, row: RunRow, after: int = 0, on_leave: OnLeave | None = None
) -> EventStreamResponse:
    """The response only reads the log: a client that leaves does not stop the run."""
    named = {"X-Run-Id": row.id, "X-Session-Id": row.session}
    return EventStreamResponse(place, frames(runs, row.id, after), named, on_leave)


class StreamingApplication(Starlette):
    """Sends the events of a stream itself, when all layers have returned.

    They have seen its head. A token passes none of them, and the memory that they hold for a request is free again.
    """

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        state = scope.setdefault("state", {})
        await super().__call__(scope, receive, send)
        if stream := state.pop(STREAM, None):
            await stream.send_events(receive, send)


class EventStreamResponse(Response):
    """Encoded events, kept awake by comments, past proxies that would hold them back. Needs a StreamingApplication.

    It gives its place back when it ends, and ends when its place is closed. `on_leave` is called if the client leaves
    before.
    """

    media_type = "text/event-stream"
    ping_s: float = PING_S

    def __init__(
        self,
        place: Place,
        events: AsyncGenerator[bytes, None],
        headers: Mapping[str, str] | None = None,
        on_leave: OnLeave | None = None,
    ) -> None:
        self.status_code = 200
        self.background = None
        self.init_headers(HEADERS | dict(headers or {}))
        self._place = place
        self._events = events
        self._on_leave = on_leave

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._place:
            self._place.check()
            head, self.raw_headers = self.raw_headers, []  # not kept as long as the stream lasts
            await send({"type": "http.response.start", "status": self.status_code, "headers": head})
        if scope["method"] == "HEAD":  # gets no body, and would wait for its end
            self._place.leave()
            await send(END)
        else:
            scope["state"][STREAM] = self

    async def send_events(self, receive: Receive, send: Send) -> None:
        """Until they end, the client leaves or the place is closed."""
        try:
            async with asyncio.timeout(None) as until, aclosing(self._events) as events:
                self._place.cut = partial(_expire, until)
                attendant = asyncio.create_task(self._attend(receive, send, self._place.cut))
                try:
                    async for body in events:
                        await send({"type": "http.response.body", "body": body, "more_body": True})
                finally:
                    attendant.cancel()
                await send(END)
        except TimeoutError:
            if not until.expired():
                raise
            self._place.leave()
            await self._end_early(send, left=attendant.done())
        finally:
            self._place.leave()

    async def _attend(self, receive: Receive, send: Send, end: Callable[[], None]) -> None:
        """Keep the connection awake, and `end` the stream when the client has left."""
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


def _expire(until: asyncio.Timeout) -> None:
    """Once: the client may leave while its place is being closed."""
    if until.when() is None:
        until.reschedule(0)
