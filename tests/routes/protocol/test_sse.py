"""A streamed response by itself: its head, its comments, and each way in which it ends."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, ClassVar

import pytest
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.runs.connections import OpenStream
from app.storage.runs import EventRow
from routes.protocol.application import StreamingApplication
from routes.protocol.errors import SAFE_HEADERS
from routes.protocol.route import Route
from routes.protocol.sse import CLIENT, NOTHING, PIECE, EventStreamResponse, Last, frame, pieces

pytestmark = pytest.mark.anyio

LIMIT_S = 30


class Attended(EventStreamResponse):
    attended_after_s = 0


class Awake(Attended):
    ping_s = 0.001


class Noted(Awake):
    """Notes each response that is still there."""

    there: ClassVar[weakref.WeakSet[Noted]] = weakref.WeakSet()

    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        self.there.add(self)


@dataclass(slots=True)
class Layer:
    """Notes the messages that pass it."""

    app: ASGIApp
    passed: list[str]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def noted(message: Message) -> None:
            self.passed.append(message["type"])
            await send(message)

        await self.app(scope, receive, noted)


@dataclass(slots=True)
class Stream:
    """A server's side of one request, and the events that the application streams to it."""

    response: type[EventStreamResponse] = Attended
    on_leave: Callable[[], Awaitable[None]] | None = None
    sent: list[Message] = field(default_factory=list)
    passed: list[str] = field(default_factory=list)
    events: asyncio.Queue[bytes | Exception | None] = field(default_factory=asyncio.Queue)
    has_left: bool = False
    watch_leaving: Callable[[], None] | None = None
    writable: asyncio.Event = field(default_factory=asyncio.Event)
    written: asyncio.Event = field(default_factory=asyncio.Event)
    blocked: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(0))  # one for each write that is
    closed: bool = False  # the events are
    left: list[OpenStream] = field(default_factory=list)
    place: OpenStream = field(init=False)

    def __post_init__(self) -> None:
        self.place = OpenStream(self, "ann")
        self.writable.set()

    def keep_awake(self, part: bytes) -> None:
        if self.writable.is_set():
            self._sent({"type": "http.response.body", "body": part, "more_body": True})

    def watch(self, leaves: Callable[[], None] | None) -> None:
        self.watch_leaving = leaves
        if leaves and self.has_left:
            leaves()

    def client_leaves(self) -> None:
        self.has_left = True
        if self.watch_leaving:
            self.watch_leaving()

    def leave(self, place: OpenStream) -> None:
        self.left.append(place)

    async def run(self, method: str = "GET") -> None:
        async def answer(_: Request) -> Response:
            return self.response(self.place, self._events(), {"X-Run-Id": "run_1"}, self.on_leave)

        layers = [Middleware(Layer, passed=self.passed)]
        application = StreamingApplication(routes=[Route("GET /", answer, rights="open")], middleware=layers)
        scope: Scope = {"type": "http", "method": method, "path": "/", "headers": [], "query_string": b""}
        scope["state"] = {CLIENT: self}
        async with asyncio.timeout(LIMIT_S):
            await application(scope, self._receive, self._send)

    async def until(self, body: bytes) -> None:
        while not any(message.get("body") == body for message in self.sent):
            self.written.clear()
            await self.written.wait()

    @property
    def bodies(self) -> list[bytes]:
        return [message["body"] for message in self.sent[1:] if message != NOTHING]

    @property
    def complete(self) -> bool:
        return [message.get("more_body") for message in self.sent[1:]].index(False) == len(self.sent) - 2

    async def _send(self, message: Message) -> None:
        if not self.writable.is_set():
            self.blocked.release()
            await self.writable.wait()
        self._sent(message)

    def _sent(self, message: Message) -> None:
        self.sent.append(message)
        self.written.set()

    async def _receive(self) -> Message:
        raise AssertionError("nothing waits for the client")

    async def _events(self) -> AsyncGenerator[bytes, None]:
        try:
            while (event := await self.events.get()) is not None:
                if isinstance(event, Exception):
                    raise event
                yield event
        finally:
            self.closed = True


async def test_nothing_of_a_stream_passes_the_layers() -> None:
    stream = Stream()
    for event in (b"one", b"two", None):
        stream.events.put_nowait(event)
    await stream.run()
    assert stream.passed == []
    assert stream.bodies == [b"one", b"two", b""] and stream.complete
    safe = {name.lower().encode(): value.encode() for name, value in SAFE_HEADERS.items()}
    assert dict(stream.sent[0]["headers"]) == safe | {
        b"cache-control": b"no-cache, no-transform",
        b"connection": b"keep-alive",
        b"content-type": b"text/event-stream; charset=utf-8",
        b"x-accel-buffering": b"no",
        b"x-run-id": b"run_1",
    }
    assert stream.left == [stream.place] and stream.closed


async def test_the_end_leaves_with_the_last_event() -> None:
    stream = Stream()
    for event in (b"one", Last(b"two")):
        stream.events.put_nowait(event)
    await stream.run()
    assert stream.bodies == [b"one", b"two"] and stream.complete
    assert stream.left == [stream.place] and stream.closed


async def test_a_head_does_not_wait_for_the_first_event_for_long() -> None:
    stream = Stream()
    running = asyncio.create_task(stream.run())
    await stream.until(b"")
    assert [message.get("more_body") for message in stream.sent] == [None, True]
    stream.events.put_nowait(None)
    await running


async def test_head_is_answered_at_once() -> None:
    stream = Stream()
    await stream.run("HEAD")
    assert stream.bodies == [b""] and stream.complete and stream.left == [stream.place]


async def test_a_silent_stream_sends_comments_until_its_end() -> None:
    stream = Stream(Awake)
    running = asyncio.create_task(stream.run())
    for _ in range(3):
        stream.sent.clear()
        await stream.until(b": ping\n\n")
    stream.events.put_nowait(b"late")
    await stream.until(b"late")
    stream.events.put_nowait(None)
    await running
    assert stream.sent[-1]["body"] == b"" and {*stream.bodies} <= {b": ping\n\n", b"late", b""}


async def test_a_reader_that_stalls_holds_one_event_and_no_comment() -> None:
    stream = Stream(Awake)
    running = asyncio.create_task(stream.run())
    await stream.until(b": ping\n\n")
    stream.writable.clear()
    for number in range(9):
        stream.events.put_nowait(b"%d" % number)
    await stream.blocked.acquire()
    assert stream.events.qsize() == 8, "the events wait where they come from"
    stream.events.put_nowait(None)
    stream.writable.set()
    await running
    assert [body for body in stream.bodies if body != b": ping\n\n"] == [*(b"%d" % number for number in range(9)), b""]
    assert stream.complete


@pytest.mark.parametrize("stalled", [False, True])
async def test_a_client_that_leaves_ends_the_stream_and_is_reported(*, stalled: bool) -> None:
    reported = list[bool]()

    async def on_leave() -> None:
        reported.append(stream.closed)

    stream = Stream(on_leave=on_leave)
    running = asyncio.create_task(stream.run())
    stream.events.put_nowait(b"one")
    await stream.until(b"one")
    if stalled:
        stream.writable.clear()
        stream.events.put_nowait(b"two")
        await stream.blocked.acquire()
    stream.client_leaves()
    await running
    assert reported == [True] and stream.bodies == [b"one"] and stream.left == [stream.place]


async def test_a_client_that_leaves_behind_the_last_event_is_not_reported() -> None:
    async def on_leave() -> None:
        raise AssertionError

    stream = Stream(on_leave=on_leave)
    running = asyncio.create_task(stream.run())
    stream.events.put_nowait(b"one")
    await stream.until(b"one")
    stream.writable.clear()
    stream.events.put_nowait(None)
    await stream.blocked.acquire()
    stream.client_leaves()
    stream.writable.set()
    await running
    assert stream.bodies == [b"one", b""] and stream.left == [stream.place]


@pytest.mark.parametrize("leaves", [False, True])
async def test_a_place_that_is_closed_ends_its_stream(*, leaves: bool) -> None:
    stream = Stream()
    running = asyncio.create_task(stream.run())
    stream.events.put_nowait(b"one")
    await stream.until(b"one")
    if leaves:  # at the same moment
        stream.client_leaves()
        await asyncio.sleep(0)
    stream.place.close()
    await running
    assert stream.closed and stream.left == [stream.place]
    assert leaves or (stream.bodies == [b"one", b""] and stream.complete)


async def test_a_place_that_is_closed_does_not_wait_for_a_reader_that_stalls() -> None:
    stream = Stream()
    running = asyncio.create_task(stream.run())
    stream.events.put_nowait(b"one")
    await stream.until(b"one")
    stream.writable.clear()
    stream.place.close()
    await running
    assert stream.bodies == [b"one"] and stream.left == [stream.place]


async def test_a_place_that_is_closed_before_the_head_has_left_shows_no_event() -> None:
    stream = Stream()
    stream.writable.clear()
    stream.events.put_nowait(b"one")
    running = asyncio.create_task(stream.run())
    await stream.blocked.acquire()
    stream.place.close()
    stream.writable.set()
    await running
    assert stream.bodies == [b""] and stream.complete and stream.left == [stream.place]


async def test_events_that_break_end_the_request_and_give_the_place_back() -> None:
    stream = Stream()
    stream.events.put_nowait(TimeoutError("of the events' own"))
    with pytest.raises(TimeoutError, match="own"):
        await stream.run()
    assert stream.left == [stream.place]


async def test_a_server_that_stops_may_cancel_the_stream() -> None:
    stream = Stream()
    running = asyncio.create_task(stream.run())
    stream.events.put_nowait(b"one")
    await stream.until(b"one")
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert stream.closed and stream.left == [stream.place]


@pytest.mark.parametrize("sizes", [[7], [9] * 4, [PIECE], [PIECE - 100, 200, 300], [9, 3 * PIECE, 9], [9_000] * 9])
def test_events_leave_together_in_pieces_of_a_bounded_size(sizes: list[int]) -> None:
    rows = [EventRow("run_1", number, "text.delta", "x" * size) for number, size in enumerate(sizes, 1)]
    sent, frames = list(pieces(map(frame, rows))), [frame(row).encode() for row in rows]
    assert b"".join(sent) == b"".join(frames)
    assert all(len(piece) <= PIECE or piece in frames for piece in sent)
    assert all(len(one) + len(next_one) > PIECE for one, next_one in pairwise(sent))


async def test_a_stream_that_has_ended_leaves_nothing_to_the_garbage_collector() -> None:
    stream = Stream(Noted)
    gc.disable()
    try:
        running = asyncio.create_task(stream.run())
        stream.events.put_nowait(b"one")
        await stream.until(b"one")
        await stream.until(b": ping\n\n")  # it is attended to
        stream.events.put_nowait(None)
        await running
        del running
        assert not Noted.there
    finally:
        gc.enable()
