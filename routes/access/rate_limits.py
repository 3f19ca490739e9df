"""Rate limits per client, and bounds on the head of a request."""

from __future__ import annotations

import asyncio
import json
import re
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from ipaddress import IPv4Address, IPv6Network
from typing import Any, ClassVar

from uvicorn._types import ASGI3Application
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from routes.access.connection_limits import MOST_LINGERING, Connections
from routes.access.peers import PEER, Peer, address_of
from routes.protocol.errors import SAFE_HEADERS
from routes.protocol.sse import CLIENT, Client
from tools.base.tasks import LeanEvent

WINDOW_S = 60.0
REMEMBERED = 4096  # keys; the one that began longest ago is forgotten first
MAX_HEAD = 64 * 1024  # bytes of a request before its body
MAX_URL = 8 * 1024
HEAD_TIME_S = 30.0  # in which they must have arrived
MOST_WAITING = 100  # requests behind another on one connection: a read may bring thousands, each of which takes 1.5 KB
LINGER_S = 1.0
WRITE_BUFFER = 16 * 1024  # bytes that a reader who has stalled holds here, behind those that the kernel has taken
ERROR_TYPES = {429: "rate_limit_error", 503: "server_error"}  # others are the request's fault
ASGI: Any = {"version": "3.0", "spec_version": "2.3"}
HOLD = "hold"  # where `scope["state"]` has what keeps the connection while a request is served


class RateLimiter:
    """Counts per key in windows of a minute, each of which begins with the first count in it. Bounded in memory."""

    def __init__(self) -> None:
        self._windows: OrderedDict[str, tuple[float, int]] = OrderedDict()

    def count(self, key: str, now: float) -> tuple[int, float]:
        """Count one more; return how many there are in the current window, and when it ends."""
        start, before = self._windows.get(key, (now, 0))
        if not start <= now < start + WINDOW_S:
            start, before = now, 0
        if not before:
            self._windows.pop(key, None)
            if len(self._windows) >= REMEMBERED:
                self._windows.popitem(last=False)
        self._windows[key] = start, before + 1
        return before + 1, start + WINDOW_S


@lru_cache(1024)
def client_network(address: str | None) -> str:
    """The network that identifies a client: its IPv4 address, or the /64 of its IPv6 address."""
    found = address_of(address)
    if found is None:  # a proxy may forward anything
        return "unknown"
    return str(found if isinstance(found, IPv4Address) else IPv6Network((found, 64), strict=False))


def names_two_servers(target: bytes, headers: Sequence[tuple[bytes, bytes]]) -> str | None:
    """Return why it is ambiguous which server a request is for: a proxy, or a check, could read the other name."""
    hosts = [value for name, value in headers if name == b"host"]
    if len(hosts) > 1:
        return "The request has two Host headers. Send one."
    scheme, found, rest = target.partition(b"://")
    if not found or b"/" in scheme or b"?" in scheme:
        return None
    if hosts and re.split(rb"[/?#]", rest, maxsplit=1)[0].lower() == hosts[0].strip().lower():
        return None
    return "The request's target names another host than its Host header. Send the path alone."


class _Head(Exception):
    """The head of a request is not to be read any further."""


class HeadHolder:
    """A response's transport until its head has left, together with the first part of its body: one write, not two.

    That part may be empty, for a head that is not to wait for more.
    """

    def __init__(self, cycle: RequestResponseCycle) -> None:
        self._cycle, self._head = cycle, b""
        self._transport, self._on_response = cycle.transport, cycle.on_response
        cycle.transport, cycle.on_response = self, self._complete  # type: ignore[assignment]

    def write(self, data: bytes) -> None:
        if not self._cycle.response_started:  # 100 Continue
            self._transport.write(data)
        elif not self._head:
            self._head = data
        else:
            self._let_go(data)

    def close(self) -> None:
        self._let_go()
        self._transport.close()

    def is_closing(self) -> bool:
        return self._transport.is_closing()

    def _complete(self) -> None:
        """A response without a body has ended."""
        self._let_go()
        self._on_response()

    def _let_go(self, part: bytes = b"") -> None:
        self._cycle.transport, self._cycle.on_response = self._transport, self._on_response
        if not self._cycle.disconnected:  # else it may be closed, and to write an error
            self._transport.write(self._head + part)


class BoundedProtocol(HttpToolsProtocol):
    """uvicorn's HTTP protocol with a limit for headers and URL, in bytes and in time: by itself it has none.

    What is refused here has no application yet to answer it, so the answer is written here, in the one shape of errors.
    """

    head_time_s = HEAD_TIME_S
    room = Connections()
    on_closed: Callable[[], None] | None = None
    _lingering = 0  # of refused connections, in all of the process
    _no_pipeline: ClassVar[deque[Any]] = deque(maxlen=0)  # for all: a deque of its own takes 760 bytes
    # With more attributes than uvicorn's 28 and two, the dict of each connection would take 1,300 bytes more.
    __slots__ = ("_answered", "_arrived", "_in_head", "_parsed", "_peer", "_refusal", "_refused", "_too_slow", "leaves")

    @classmethod
    def within(cls, room: Connections, on_closed: Callable[[], None] | None = None) -> type[BoundedProtocol]:
        """The protocol of a server that has room for these connections. `on_closed` is called as each of them ends."""
        return type(cls.__name__, (cls,), {"room": room, "on_closed": on_closed and staticmethod(on_closed)})

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._arrived = self._parsed = 0  # bytes of the current request's head: what came, what the parser has reported
        self._in_head = True
        self._refused = False
        self.leaves: Callable[[], None] | None = None  # called when the client of the response under way leaves
        self._answered: RequestResponseCycle | None = None  # `cycle` may be that of a request behind it
        self._refusal = 400, "bad_request", "This is not HTTP/1.1. Send a well-formed request."
        self._too_slow: asyncio.TimerHandle | None = None
        super().connection_made(transport)
        self.pipeline = self._no_pipeline
        self.flow._is_writable_event = LeanEvent(is_set=True)
        transport.set_write_buffer_limits(WRITE_BUFFER)
        self._peer = Peer(transport)
        address = self.client[0] if self.client else None
        if objection := self.room.take_in(self, address, client_network(address)):
            self._refusal = 503, "too_many_connections", objection
            self.send_400_response("")
            return
        self._expect_head()

    def make_room(self) -> None:
        self._refused = True
        self.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self.room.let_go(self)
        self._stop_timer()
        self._end_response()
        super().connection_lost(exc)
        if self.on_closed:
            self.on_closed()

    def data_received(self, data: bytes) -> None:
        if self._refused:
            return
        in_head = self._in_head
        super().data_received(data)
        # A header that never ends is held by the parser, which tells nothing of it.
        if in_head and self._in_head and not self._refused:
            self._arrived += len(data)
            if self._arrived > MAX_HEAD:
                self._refuse_head()
                self.send_400_response("")
        # Empty lines between requests end the wait for the next one, and begin none.
        between = self.cycle is not None and self.cycle.response_complete
        if between and self._too_slow is None and not self._refused:
            self._expect_head()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self.scope["asgi"] = ASGI  # one for all: nothing changes it
        self.scope["state"] |= {PEER: self._peer, HOLD: partial(self.room.hold, self)}
        self._arrived, self._parsed, self._in_head = 0, 0, True
        if self._too_slow is None:
            self._expect_head()

    def on_url(self, url: bytes) -> None:
        super().on_url(url)
        if len(self.url) > MAX_URL:
            self._refusal = 414, "url_too_long", f"The URL is longer than {MAX_URL:,} bytes. Send more in the body."
            raise _Head
        self._grow(len(url))

    def on_header(self, name: bytes, value: bytes) -> None:
        self._grow(len(name) + len(value) + len(": \r\n"))
        if self._in_head:  # what follows a body in chunks was seen by no proxy and no check as a header: it is none
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        if objection := names_two_servers(self.url, self.headers):
            self._refusal = 400, "bad_request", objection
            raise _Head
        self._in_head = False
        self._stop_timer()
        if self.pipeline is self._no_pipeline and self.cycle is not None and not self.cycle.response_complete:
            self.pipeline = deque()  # this request has to wait
        if len(self.pipeline) >= MOST_WAITING:
            message = f"More than {MOST_WAITING} requests wait here for the answer to another. Read the answers first."
            self._refusal = 429, "too_many_waiting", message
            raise _Head
        super().on_headers_complete()
        self.cycle.message_event = LeanEvent()
        HeadHolder(self.cycle)
        self.scope["state"][CLIENT] = Client(self.cycle, self)

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        self._answered = cycle
        super()._start_asgi_task(cycle, app)

    def on_response_complete(self) -> None:
        if not self.pipeline:
            self.room.spare(self)
        super().on_response_complete()

    def send_400_response(self, msg: str) -> None:
        status, code, message = self._refusal
        # Before its path is known: in a form that the clients of each API read.
        kind = ERROR_TYPES.get(status, "invalid_request_error")
        error = {"code": code, "message": message, "type": kind, "param": None}
        body = json.dumps({"type": "error", "error": error}).encode()
        headers = SAFE_HEADERS | {
            "Content-Type": "application/json",
            "Content-Length": str(len(body)),
            "Connection": "close",
        }
        lines = "".join(f"{name.lower()}: {value}\r\n" for name, value in headers.items())
        if not self._end_response():
            self.transport.write(STATUS_LINE[status] + lines.encode() + b"\r\n" + body)
        # Closed at once, with unread bytes, the connection would be reset before the answer is.
        self._refused = True
        if self.transport.can_write_eof() and not self.transport.is_closing():
            self.transport.write_eof()
        if BoundedProtocol._lingering >= MOST_LINGERING:
            self.transport.abort()
            return
        BoundedProtocol._lingering += 1
        self.loop.call_later(LINGER_S, self._let_linger_no_more)

    def _end_response(self) -> bool:
        """Let a response under way take its client for gone; return True if it has begun."""
        cycle = self._answered
        if cycle is None or cycle.response_complete:
            return False
        cycle.disconnected = True
        cycle.message_event.set()
        if self.leaves:
            self.leaves()
        return cycle.response_started

    def _let_linger_no_more(self) -> None:
        BoundedProtocol._lingering -= 1
        self.transport.close()

    def _grow(self, size: int) -> None:
        self._parsed += size
        if self._parsed > MAX_HEAD:
            self._refuse_head()
            raise _Head

    def _refuse_head(self) -> None:
        message = f"The request's headers are longer than {MAX_HEAD:,} bytes. Send fewer or shorter ones."
        self._refusal = 431, "headers_too_long", message

    def _expect_head(self) -> None:
        self._too_slow = self.loop.call_later(self.head_time_s, self._give_up)

    def _give_up(self) -> None:
        self._too_slow = None
        if not self.transport.is_closing():
            self.transport.close()

    def _stop_timer(self) -> None:
        if self._too_slow is not None:
            self._too_slow.cancel()
            self._too_slow = None
