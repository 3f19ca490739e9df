"""Lean transport for httpx2: pooled HTTP/1.1 connections with little overhead per chunk.

Other clients hand a chunk to a waiting task. Here it can be handled in the callback that reads the socket (see `tap`),
which saves a quarter of the CPU of a token; docs/performance.md has the figures.
"""

from __future__ import annotations

import ssl
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from functools import partial

import httpx2

from app.models.http.transport.connection import Connection, Tap
from app.models.http.transport.dial import Origin, dial
from app.models.http.transport.incoming import Head
from tools.base.patterns import lazy_pattern

PORTS = {"http": 80, "https": 443}
# Characters beyond these would allow header injection.
_TOKEN = lazy_pattern(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_TARGET = lazy_pattern(rb"[\x21-\x7e]+")
_VALUE = lazy_pattern(rb"(?:[\x21-\x7e\x80-\xff](?:[\t\x20-\x7e\x80-\xff]*[\x21-\x7e\x80-\xff])?)?")


class LeanTransport(httpx2.AsyncBaseTransport):
    """A connection pool that raises the same errors as httpx2's own transport. The TLS context is created on first use.

    It has no proxies, no HTTP/2 and no limit of connections; httpx2's own transport does.
    """

    def __init__(self, limits: httpx2.Limits, *, verify: ssl.SSLContext | bool = True, trust_env: bool = True) -> None:
        self._limits = limits
        self._verify, self._trust_env = verify, trust_env
        self._tls: ssl.SSLContext | None = None
        self.idle: deque[tuple[Origin, Connection]] = deque()  # the most recently used last
        self.used: set[Connection] = set()

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        assert isinstance(request.stream, httpx2.AsyncByteStream)
        return await self.send(request, head_of(request), request.stream)

    async def send(self, request: httpx2.Request, head: bytes, body: httpx2.AsyncByteStream) -> LeanResponse:
        """Send a request whose head is encoded; its stream is not used."""
        origin = self._origin(request)
        limits: dict[str, float | None] = request.extensions.get("timeout", {})
        answer = _Answer(partial(self._done, origin), limits.get("read"))
        try:
            connection = answer.connection = self._reuse(origin) or await self._dial(origin, limits.get("connect"))
            self.used.add(connection)
            await connection.send(head, body, headless=request.method == "HEAD", limit_s=limits.get("write"))
            found = await connection.head(limits.get("read"))
        except BaseException:
            await answer.aclose()
            raise
        return LeanResponse(found, answer)

    async def aclose(self) -> None:
        idle, self.idle = self.idle, deque()
        for connection in [*self.used, *(connection for _, connection in idle)]:
            connection.abort()

    def _origin(self, request: httpx2.Request) -> Origin:
        url = request.url
        if url.scheme not in PORTS:
            raise httpx2.UnsupportedProtocol(f"The address must begin with http:// or https://, not {url.scheme!r}")
        host, port = url.raw_host.decode("ascii"), url.port or PORTS[url.scheme]
        if url.scheme == "http":
            return Origin(host, port, None, None)
        if self._tls is None:
            self._tls = httpx2.create_ssl_context(verify=self._verify, trust_env=self._trust_env)
            self._tls.set_alpn_protocols(["http/1.1"])
        return Origin(host, port, self._tls, request.extensions.get("sni_hostname") or host)

    def _reuse(self, origin: Origin) -> Connection | None:
        """Take the most recently used idle connection: its server is the least likely to have closed it."""
        for at in range(len(self.idle) - 1, -1, -1):
            target, connection = self.idle[at]
            if target == origin:
                del self.idle[at]
                if connection.fresh:
                    return connection
                connection.abort()
        return None

    async def _dial(self, origin: Origin, limit_s: float | None) -> Connection:
        return await dial(origin, lambda: Connection(self._ended), limit_s)

    def _done(self, origin: Origin, connection: Connection | None) -> None:
        if connection is None:
            return
        self.used.discard(connection)
        if connection.rest(self._limits.keepalive_expiry):
            self.idle.append((origin, connection))
            most = self._limits.max_keepalive_connections
            if most is not None and len(self.idle) > most:
                self.idle.popleft()[1].abort()

    def _ended(self, connection: Connection) -> None:
        self.idle = deque(pair for pair in self.idle if pair[1] is not connection)


class _Answer(httpx2.AsyncByteStream):
    """The body, in blocks as they arrive. Closing it releases the connection, once."""

    def __init__(self, done: Callable[[Connection | None], None], limit_s: float | None) -> None:
        self.connection: Connection | None = None
        self._done = done
        self._limit_s = limit_s
        self._closed = False

    def block(self) -> Awaitable[bytes]:
        """Return the next block, empty at the end."""
        return self.connection.block(self._limit_s) if self.connection and not self._closed else _nothing()

    async def __aiter__(self) -> AsyncGenerator[bytes, None]:
        while block := await self.block():
            yield block

    async def aclose(self) -> None:
        if not self._closed:
            self._closed = True
            self._done(self.connection)


async def _nothing() -> bytes:
    return b""


class LeanResponse(httpx2.Response):
    """A response that skips httpx2's decoding generators when the body is not encoded.

    Each generator is a frame that every token would pass through.
    """

    def __init__(self, head: Head, answer: _Answer) -> None:
        extensions = {"http_version": f"HTTP/{head.version}".encode(), "reason_phrase": head.reason}
        super().__init__(head.status, headers=head.headers, stream=answer, extensions=extensions)
        self._answer = answer
        names = {name.lower() for name, _ in head.headers}
        self._coded = b"content-encoding" in names
        self.sets_cookies = b"set-cookie" in names

    def tap(self, tap: Tap) -> None:
        """Offer blocks to `tap` while `aiter_bytes` waits for one, unless they have to be decoded first."""
        if self._answer.connection and not self._coded:
            self._answer.connection.tap = tap

    @property
    def received(self) -> bool:
        """True if the whole response has arrived: its connection can be reused without reading on."""
        return self._answer.connection is None or self._answer.connection.received

    async def aiter_bytes(self, chunk_size: int | None = None) -> AsyncGenerator[bytes, None]:
        if self._coded or chunk_size is not None or self.is_stream_consumed or self.is_closed:
            async with aclosing(super().aiter_bytes(chunk_size)) as blocks:
                async for block in blocks:
                    yield block
            return
        self.is_stream_consumed = True
        try:
            while block := await self._answer.block():
                yield block
        except httpx2.RequestError as error:
            error.request = self.request
            raise
        finally:
            await self.aclose()

    async def aclose(self) -> None:
        self.is_closed = True
        await self._answer.aclose()


def head_of(request: httpx2.Request) -> bytes:
    """Return the head as bytes. Raises LocalProtocolError, without the value: it may be a key."""
    method, target = request.method.encode(), request.url.raw_path
    if not _TOKEN.fullmatch(method) or not _TARGET.fullmatch(target):
        raise httpx2.LocalProtocolError("Illegal method or target")
    lines = [b"%b %b HTTP/1.1\r\n" % (method, target)]
    for name, value in request.headers.raw:
        if not _TOKEN.fullmatch(name):
            raise httpx2.LocalProtocolError("Illegal header name")
        if not _VALUE.fullmatch(value):
            raise httpx2.LocalProtocolError(f"Illegal value of the header {name.decode()}")
        lines.append(b"%b: %b\r\n" % (name, value))
    lines.append(b"\r\n")
    return b"".join(lines)
