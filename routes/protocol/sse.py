"""A run's log as Server-Sent Events: `id:` is the sequence number, `event:` the type, `data:` the JSON."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing, suppress
from typing import Any

from sse_starlette import EventSourceResponse, ServerSentEvent
from starlette.types import Message, Receive, Scope, Send

from app.runs.connections import Place
from app.runs.run_manager import RunManager
from app.storage.runs import EventRow, RunRow

PING_S = 15
PIECE = 16_384  # characters
# A browser comes back after a second. Part of the first event: clients exist that take it for an event of its own.
RETRY = b"retry: 1000\n"
HEADERS = {"Cache-Control": "no-cache, no-transform"}
PARTING_S = 0.5  # for the end of a stream that is cut to be written; a reader that has stalled does not take it


def frame(row: EventRow) -> str:
    return f"id: {row.seq}\nevent: {row.type}\ndata: {row.data}\n\n"


def pieces(rows: Sequence[EventRow], frame: Callable[[EventRow], str] = frame) -> Iterator[bytes]:
    """The rows' frames, together where they are small: what a stalled reader holds up in memory is one piece."""
    waiting, size = list[str](), 0
    for row in rows:
        waiting.append(frame(row))
        size += len(waiting[-1])
        if size >= PIECE:
            yield "".join(waiting).encode()
            waiting, size = [], 0
    if waiting:
        yield "".join(waiting).encode()


async def frames(runs: RunManager, run: str, after: int) -> AsyncGenerator[bytes, None]:
    """Frames of events; events that are there at once leave in one piece."""
    prefix = RETRY
    async with aclosing(runs.watch(run, after)) as pages:
        async for rows in pages:
            for piece in pieces(rows):
                yield prefix + piece
                prefix = b""


def event_stream(
    place: Place,
    runs: RunManager,
    row: RunRow,
    after: int = 0,
    on_leave: Callable[[Message], Awaitable[None]] | None = None,
) -> EventSourceResponse:
    """The response only reads the log: a client that leaves does not stop the run."""
    named = {"X-Run-Id": row.id, "X-Session-Id": row.session}
    return sse_response(place, frames(runs, row.id, after), named, on_leave)


class _Stream(EventSourceResponse):
    """Gives its place back when it ends, and ends when its place is closed. It has no limit for a single event."""

    def __init__(self, place: Place, content: AsyncGenerator[bytes, None], **options: Any) -> None:
        super().__init__(content, **options)
        self._content = content
        self._place = place

    async def _stream_response(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        async with aclosing(self._content) as content:
            async for body in content:
                await send({"type": "http.response.body", "body": body, "more_body": True})
        async with self._send_lock:  # a ping may be on its way
            self.active = False
            await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _send_with_timeout(self, send: Send, message: Message) -> None:
        """No time limit is set here, and to find out that there is none would cost a tenth of each event."""
        await send(message)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            self._place.check()
            async with asyncio.timeout(None) as until_closed:
                self._place.cut = lambda: until_closed.reschedule(0)
                await super().__call__(scope, receive, send)
        except TimeoutError:
            if not self._place.closed:
                raise
            with suppress(TimeoutError):
                async with asyncio.timeout(PARTING_S):
                    await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            self._place.leave()


def sse_response(
    place: Place,
    content: AsyncGenerator[bytes, None],
    headers: Mapping[str, str] | None = None,
    on_leave: Callable[[Message], Awaitable[None]] | None = None,
) -> EventSourceResponse:
    """Encoded events, kept awake by comments, past proxies that would hold them back."""
    return _Stream(
        place,
        content,
        headers=HEADERS | dict(headers or {}),
        ping=PING_S,
        client_close_handler_callable=on_leave,
        ping_message_factory=lambda: ServerSentEvent(comment="ping", sep="\n"),
    )
