"""HTTP transports to MCP servers: the SDK's, over connections that never raise for a single request.

The SDK ends a whole connection, with all its calls, when one request fails; so a failure becomes an error response
here. Responses are bounded, and servers that were added at run time must be on the public internet.
"""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any
from urllib.request import getproxies, proxy_bypass

import httpx2
from mcp.client import Transport
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client
from mcp_types import INTERNAL_ERROR
from msgspec import Struct

from tools.base.outcome import ToolFailed
from tools.mcp.call_context import current_call
from tools.mcp.connection.lines import MAX_LINE
from tools.mcp.model import ServerConfig
from tools.web.bodies import trusted_certificates
from tools.web.public_hosts import resolve
from tools.web.url_target import target

CONNECT_S = 10.0
NOTICE_S = 5.0  # for notifications, which are only acknowledged

_KEEPALIVE = [
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    *(
        (socket.IPPROTO_TCP, getattr(socket, name), value)
        for name, value in (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3))
        if hasattr(socket, name)
    ),
]
_UNPACKED = ("", "identity")
_NOT_RUN = (401, 403, 404, 405)  # refused before the call was processed

OnFailure = Callable[[str], None]


class LastFailure(Struct):
    """The last HTTP failure of a connection, for errors that the SDK does not describe."""

    status: int = 0
    message: str = ""


class FaultTolerantTransport(httpx2.AsyncBaseTransport):
    """Returns an error response where another transport would raise, if the request is a JSON-RPC message.

    `on_failure` is called for every failure: an SSE connection (the older transport) does not survive one.
    """

    def __init__(
        self, inner: httpx2.AsyncBaseTransport, last_failure: LastFailure, on_failure: OnFailure | None
    ) -> None:
        self._inner = inner
        self._last_failure = last_failure
        self._on_failure = on_failure

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        is_message = request.method == "POST" and request.headers.get("content-type", "").startswith("application/json")
        is_notice = is_message and b'"id":' not in request.content
        try:
            async with asyncio.timeout(NOTICE_S if is_notice else None):
                response = await self._inner.handle_async_request(request)
                return await self._bounded(request, response) if is_message else response
        except (httpx2.TransportError, TimeoutError) as error:
            self._last_failure.status, self._last_failure.message = 0, str(error) or type(error).__name__
            call = current_call.get()
            if call and isinstance(error, httpx2.ConnectError | httpx2.ConnectTimeout | httpx2.PoolTimeout):
                call.unsent = not call.sent
            elif call:
                call.lost = self._last_failure.message
            self._fail()
            if is_notice:
                return httpx2.Response(202)
            if not is_message:
                raise
            return _instead(f"no connection: {self._last_failure.message}")

    async def _bounded(self, request: httpx2.Request, response: httpx2.Response) -> httpx2.Response:
        self._look_at(response)
        if (call := current_call.get()) and response.status_code < 400:
            call.sent = True
        packing = response.headers.get("content-encoding", "")
        kind = response.headers.get("content-type", "").lower()
        if packing not in _UNPACKED:
            await response.aclose()
            return _instead(f"its answer is packed as {packing[:20]!r}, which was not requested")
        if kind.startswith("text/event-stream"):
            return response
        body = bytearray()
        try:
            async for piece in response.aiter_raw():
                body += piece
                if len(body) > MAX_LINE:
                    return _instead(f"its answer has more than {MAX_LINE:,} bytes: ask for less")
        finally:
            await response.aclose()
        if response.status_code == 400 and "mcp-session-id" in request.headers and b"session" in body.lower():
            self._look_at(httpx2.Response(404))  # the status for an unknown session
        headers = {"content-type": kind} | _kept(response.headers)
        return httpx2.Response(response.status_code, headers=headers, content=bytes(body))

    def _look_at(self, response: httpx2.Response) -> None:
        if response.status_code < 400:
            return
        self._last_failure.status = response.status_code
        self._last_failure.message = f"it answers HTTP {response.status_code} {response.reason_phrase}".rstrip()
        if call := current_call.get():
            call.status = response.status_code
            call.unsent = not call.sent and response.status_code in _NOT_RUN
        self._fail()

    def _fail(self) -> None:
        if self._on_failure:
            self._on_failure(self._last_failure.message)

    async def aclose(self) -> None:
        await self._inner.aclose()


def _kept(headers: httpx2.Headers) -> dict[str, str]:
    return {name: headers[name] for name in ("mcp-session-id", "www-authenticate", "location") if name in headers}


def _instead(why: str) -> httpx2.Response:
    """Build an error response; the SDK puts in the id of the request."""
    error = {"jsonrpc": "2.0", "id": None, "error": {"code": INTERNAL_ERROR, "message": why}}
    return httpx2.Response(503, headers={"content-type": "application/json"}, content=json.dumps(error).encode())


class PublicTransport(httpx2.AsyncBaseTransport):
    """Reaches the public internet and allowed private hosts; looks a name up once for each request."""

    def __init__(self, private_hosts: Sequence[str]) -> None:
        self._private_hosts = private_hosts
        self._by_host: dict[str, httpx2.AsyncHTTPTransport] = {}

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        try:
            found = await target(request.url, self._private_hosts, resolve)
        except ToolFailed as failure:
            ours = "and servers that are added at run time must be"
            why = str(failure).replace("and web_fetch reaches nothing else", ours)
            raise httpx2.ConnectError(why, request=request) from failure
        # One for each host: TLS is verified per host, and two may share an address.
        inner = self._by_host.get(found.host) or self._by_host.setdefault(found.host, _plain(None))
        headers = [(name, value) for name, value in request.headers.raw if name.lower() != b"host"]
        for last, address in enumerate(found.addresses, start=1 - len(found.addresses)):
            with suppress(*(() if last == 0 else (httpx2.ConnectError, httpx2.ConnectTimeout))):
                return await inner.handle_async_request(
                    httpx2.Request(
                        request.method,
                        found.url.copy_with(host=str(address), fragment=None),
                        headers=[(b"Host", found.url.netloc), *headers],
                        stream=request.stream,
                        extensions={**request.extensions, "sni_hostname": found.host},
                    )
                )
        raise AssertionError("a target has an address")

    async def aclose(self) -> None:
        await asyncio.gather(*(inner.aclose() for inner in self._by_host.values()))


def _plain(proxy: str | None) -> httpx2.AsyncHTTPTransport:
    return httpx2.AsyncHTTPTransport(
        verify=trusted_certificates(), trust_env=False, proxy=proxy, socket_options=_KEEPALIVE
    )


def _proxy_for(url: str) -> str | None:
    parsed = httpx2.URL(url)
    return None if proxy_bypass(parsed.host) else getproxies().get(parsed.scheme)


def client_for(
    config: ServerConfig,
    auth: httpx2.Auth | None,
    private_hosts: Sequence[str],
    last_failure: LastFailure,
    on_failure: OnFailure,
) -> httpx2.AsyncClient:
    """The HTTP client of a server. `on_failure` is called when an SSE connection (the older transport) breaks."""
    inner = PublicTransport(private_hosts) if config.from_api else _plain(_proxy_for(config.url))
    return httpx2.AsyncClient(
        transport=FaultTolerantTransport(inner, last_failure, on_failure if config.transport == "sse" else None),
        headers={"Accept-Encoding": "identity", "User-Agent": "dragoman", **config.headers},
        auth=auth,
        # An event stream may be silent for minutes; TCP keepalive detects a peer that is gone.
        timeout=httpx2.Timeout(CONNECT_S, read=None),
        trust_env=False,
    )


def transport_for(config: ServerConfig, client: httpx2.AsyncClient) -> Transport:
    """Build the transport for the SDK's client. The HTTP client is closed with it."""
    if config.transport == "sse":
        return sse_client(config.url, httpx_client_factory=lambda *_, **__: client)
    return _streamable(config.url, client)


@asynccontextmanager
async def _streamable(url: str, client: httpx2.AsyncClient) -> AsyncGenerator[tuple[Any, Any], None]:
    async with client, streamable_http_client(url, http_client=client, max_sse_event_size=MAX_LINE) as streams:
        yield streams
