"""httpx2's own client over connections that cost little: HTTP/1.1, kept alive."""

from __future__ import annotations

import asyncio
import ssl
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from functools import partial

import httpx2

from app.models.http.transport.connection import Connection
from app.models.http.transport.dial import Origin, dial
from app.models.http.transport.head import head_of
from app.models.http.transport.incoming import Head

PORTS = {"http": 80, "https": 443}


class LeanTransport(httpx2.AsyncBaseTransport):
    """Raises what httpx2's own transport raises. `tls` makes the rules for https, when they are first needed.

    No proxies and no HTTP/2: httpx2's own has those.
    """

    def __init__(self, limits: httpx2.Limits, *, verify: ssl.SSLContext | bool = True, trust_env: bool = True) -> None:
        self._limits = limits
        self._verify, self._trust_env = verify, trust_env
        self._tls: ssl.SSLContext | None = None
        self.resting: deque[tuple[Origin, Connection]] = deque()  # the one that began to rest last at the end
        self.used: set[Connection] = set()
        self._places = asyncio.Semaphore(limits.max_connections) if limits.max_connections is not None else None

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        head, origin = head_of(request), self._origin(request)
        limits: dict[str, float | None] = request.extensions.get("timeout", {})
        if self._places:
            await self._place(self._places, limits.get("pool"))
        answer = _Answer(partial(self._done, origin), limits.get("read"))
        try:
            connection = answer.connection = self._rested(origin) or await self._dialled(origin, limits.get("connect"))
            self.used.add(connection)
            assert isinstance(request.stream, httpx2.AsyncByteStream)
            headless = request.method == "HEAD"
            await connection.send(head, request.stream, headless=headless, limit_s=limits.get("write"))
            found = await connection.head(limits.get("read"))
        except BaseException:
            await answer.aclose()
            raise
        return _Response(found, answer)

    async def aclose(self) -> None:
        resting, self.resting = self.resting, deque()
        for connection in [*self.used, *(connection for _, connection in resting)]:
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

    async def _place(self, places: asyncio.Semaphore, limit_s: float | None) -> None:
        try:
            async with asyncio.timeout(limit_s):
                await places.acquire()
        except TimeoutError as error:
            raise httpx2.PoolTimeout("") from error

    def _rested(self, origin: Origin) -> Connection | None:
        """The one that was used last: its server is the least likely to have given it up."""
        for at in range(len(self.resting) - 1, -1, -1):
            leads_to, connection = self.resting[at]
            if leads_to == origin:
                del self.resting[at]
                if connection.fresh:
                    return connection
                connection.abort()
        return None

    async def _dialled(self, origin: Origin, limit_s: float | None) -> Connection:
        return await dial(origin, lambda: Connection(self._ended), limit_s)

    def _done(self, origin: Origin, connection: Connection | None) -> None:
        if self._places:
            self._places.release()
        if connection is None:
            return
        self.used.discard(connection)
        if connection.rest(self._limits.keepalive_expiry):
            self.resting.append((origin, connection))
            most = self._limits.max_keepalive_connections
            if most is not None and len(self.resting) > most:
                self.resting.popleft()[1].abort()

    def _ended(self, connection: Connection) -> None:
        self.resting = deque(pair for pair in self.resting if pair[1] is not connection)


class _Answer(httpx2.AsyncByteStream):
    """The body, in blocks as they come. Closing it gives the connection back, once."""

    def __init__(self, done: Callable[[Connection | None], None], limit_s: float | None) -> None:
        self.connection: Connection | None = None
        self._done = done
        self._limit_s = limit_s
        self._closed = False

    def block(self) -> Awaitable[bytes]:
        """The next one, empty at the end."""
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


class _Response(httpx2.Response):
    """Without the generators between a block and its reader that undo what was not done: compression, mostly.

    Each of them is a frame that every token would go through.
    """

    def __init__(self, head: Head, answer: _Answer) -> None:
        told = {"http_version": f"HTTP/{head.version}".encode(), "reason_phrase": head.reason}
        super().__init__(head.status, headers=head.headers, stream=answer, extensions=told)
        self._answer = answer

    async def aiter_bytes(self, chunk_size: int | None = None) -> AsyncGenerator[bytes, None]:
        coded = chunk_size is not None or "content-encoding" in self.headers
        if coded or self.is_stream_consumed or self.is_closed:
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
