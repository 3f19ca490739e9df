"""One client connection: sends a request, receives its response, and can then be reused."""

from __future__ import annotations

import asyncio
import select
from collections.abc import AsyncIterable, Callable
from typing import cast

import httpx2

from app.models.http.transport.incoming import Head, Incoming

MOST_HELD = 256 * 1024  # bytes of unread body before reading from the socket is paused
Tap = Callable[[bytes], bool]
"""Take a block of the body, or return False and change nothing."""


class Connection(asyncio.Protocol):
    """Call `send`, then `head`, then `block` until it is empty, then `rest`. `on_end`: an idle one has ended.

    While `block` waits, `tap` is offered what arrives: what it takes costs no step of the waiting task. An error of
    `tap` breaks the connection.
    """

    def __init__(self, on_end: Callable[[Connection], None]) -> None:
        self.tap: Tap | None = None
        self._on_end = on_end
        self._loop = asyncio.get_running_loop()
        self._incoming = Incoming()
        self._idle = False
        self._open = False
        self._full = False  # the write buffer is full
        self._paused = False  # reading is paused
        self._sent = False
        self._timer: asyncio.TimerHandle | None = None
        self._limit_s: float | None = None
        self._since = 0.0
        self._waiting: asyncio.Future[None] | None = None

    @property
    def usable(self) -> bool:
        return self._open and not self._transport.is_closing()

    @property
    def received(self) -> bool:
        """True if the whole response has arrived."""
        return self._incoming.complete

    @property
    def fresh(self) -> bool:
        """True if an idle connection is usable: no unread bytes and no unseen end of the stream."""
        if not self.usable:
            return False
        watched = select.poll()
        watched.register(self._transport.get_extra_info("socket"), select.POLLIN)
        return not watched.poll(0)

    # --- asyncio.Protocol callbacks ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's are not of its class
        self._open = True

    def data_received(self, data: bytes) -> None:
        if self._idle:
            self.abort()  # unsolicited data
            return
        incoming = self._incoming
        incoming.feed(data)
        if self.tap and self._is_taken(self.tap):
            return
        if incoming.held > MOST_HELD and not self._paused:
            self._paused = True
            self._transport.pause_reading()
        self._wake()

    def eof_received(self) -> None:
        self._incoming.end()
        self._wake()

    def connection_lost(self, exc: Exception | None) -> None:
        self._open = False
        if exc is not None:
            self._incoming.fail(httpx2.ReadError(str(exc)))
        self._incoming.end()
        self._stop_timer()
        self._wake()
        if self._idle:
            self._on_end(self)

    def pause_writing(self) -> None:
        self._full = True

    def resume_writing(self) -> None:
        self._full = False
        self._wake()

    # --- request and response ---

    async def send(self, head: bytes, body: AsyncIterable[bytes], *, headless: bool, limit_s: float | None) -> None:
        """Send until all is written, or an answer has arrived. Raises WriteTimeout.

        A connection that breaks meanwhile is reported by `head`: servers may answer and close early.
        """
        self._stop_timer()
        self._idle = self._sent = False
        self.tap = None
        self._incoming.release()  # of a new connection nothing was fed to it
        self._incoming = Incoming(headless=headless)
        chunked = b"\r\ntransfer-encoding: chunked" in head.lower()
        async for part in body:
            if not await self._write(head + (chunk(part) if chunked else part), limit_s):
                return
            head = b""
        self._sent = await self._write(head + (b"0\r\n\r\n" if chunked else b""), limit_s)

    async def _write(self, data: bytes, limit_s: float | None) -> bool:
        """Write; return False if there is no reason to continue."""
        incoming = self._incoming
        if data and self.usable:
            self._transport.write(data)
        while self._full and not incoming.started and incoming.failure is None:
            try:
                await self._expect(limit_s)
            except httpx2.ReadTimeout as error:
                raise httpx2.WriteTimeout("") from error
        return not self._full and incoming.failure is None

    async def head(self, limit_s: float | None) -> Head:
        """Wait for the response head. Raises TransportError."""
        incoming = self._incoming
        while not incoming.started:
            if incoming.failure:
                raise incoming.failure
            await self._expect(limit_s)
        return incoming.head

    async def block(self, limit_s: float | None) -> bytes:
        """Return the next bytes of the body, empty at its end. Raises TransportError."""
        incoming = self._incoming
        while not incoming.held:
            if incoming.complete:
                return b""
            if incoming.failure:
                raise incoming.failure
            await self._expect(limit_s)
        data = incoming.take()
        self._read_on()
        return data

    def _is_taken(self, tap: Tap) -> bool:
        """Offer the unread body to the tap, unless its reader is busy with what came before, or the body has ended."""
        incoming = self._incoming
        if self._waiting is None or self._waiting.done() or not incoming.held or incoming.complete or incoming.failure:
            return False
        block = incoming.take()
        if not tap(block):
            incoming.put_back(block)
            return False
        self._since = self._loop.time()
        return True

    def rest(self, limit_s: float | None) -> bool:
        """Make the connection idle for up to `limit_s`; return False if it cannot be reused."""
        self.tap = None
        incoming = self._incoming
        if not (incoming.complete and incoming.keeps and self._sent and self.usable):
            self.abort()
            return False
        self._idle = True
        self._read_on()
        self._stop_timer()
        if limit_s is not None:
            self._timer = self._loop.call_later(limit_s, self.abort)
        return True

    def abort(self) -> None:
        self._stop_timer()
        if self._open:
            self._transport.abort()

    def _read_on(self) -> None:
        if self._paused and self.usable:
            self._paused = False
            self._transport.resume_reading()

    # --- waiting ---

    def _expect(self, limit_s: float | None) -> asyncio.Future[None]:
        """Done when something has changed; fails with ReadTimeout.

        One timer serves all waits of an answer: to set and cancel one for each token would cost more than the rest.
        """
        if limit_s != self._limit_s or self._timer is None:
            self._stop_timer()
            self._limit_s = limit_s
            if limit_s is not None:
                self._timer = self._loop.call_later(limit_s, self._check_time)
        self._since = self._loop.time()
        self._waiting = self._loop.create_future()
        return self._waiting

    def _check_time(self) -> None:
        self._timer = None
        if self._limit_s is None or self._waiting is None or self._waiting.done():
            return
        left = self._since + self._limit_s - self._loop.time()
        if left > 0:
            self._timer = self._loop.call_later(left, self._check_time)
        else:
            self._waiting.set_exception(httpx2.ReadTimeout(""))

    def _wake(self) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data) if data else b""
