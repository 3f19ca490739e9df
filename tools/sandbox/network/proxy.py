"""The proxy through which one command reaches the hosts that its call was allowed, and nothing else.

It speaks HTTP's CONNECT, and GET and the like with whole URLs. It looks a name up once, refuses what `web_fetch` would
refuse, by the same function, and connects to the address that it has checked. It listens inside the command's network
namespace, on a socket that was made there and handed out, and connects from the machine's.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import socket
import ssl
from asyncio import StreamReader, StreamWriter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Protocol
from urllib.parse import urlsplit

import h11

from tools.sandbox.network.rules import Rules
from tools.web.addresses import own_addresses
from tools.web.egress import pattern_of
from tools.web.public_hosts import (
    WEB_PORTS,
    HostRefused,
    NoSuchHost,
    OwnAddresses,
    Resolve,
    allowed_addresses,
    host_name,
    resolve,
)

MAX_HEAD = 32_768
_CONNECT_S = 10.0
_CLOSE_S = 10.0
BLOCK = 65_536
_SSH = 22
_REASONS = {400: "Bad Request", 403: "Forbidden", 502: "Bad Gateway", 503: "Service Unavailable"}
_KEPT = 200  # hosts that are remembered, reached or refused
_SHOWN = 10
# Hop-by-hop headers (RFC 9110, 7.6.1). The host is always the URL's.
NOT_PASSED_ON = (b"host", b"connection", b"keep-alive", b"proxy-connection", b"proxy-authorization", b"upgrade")


class NotAllowed(HostRefused):
    """The call is not allowed to reach this host."""


class MalformedRequest(Exception):
    """Not a proxy request. The message says what to send."""


Streams = tuple[StreamReader, StreamWriter]


@dataclass(frozen=True, slots=True)
class ProxyRequest:
    """A parsed request: its target, and the head to forward; None for a tunnel (CONNECT)."""

    host: str
    port: int
    head: bytes | None


class Interception(Protocol):
    """A connection that is not passed on as it is. `tls`: of the connection to the host. `head`: of its one request,
    as it can be forwarded, if that is not in a tunnel."""

    tls: ssl.SSLContext | None

    async def __call__(self, here: Streams, there: Streams, head: bytes) -> None: ...


class Intercept(Protocol):
    """Decides which connections are intercepted. Raises HostRefused."""

    def __call__(self, request: ProxyRequest) -> Interception | None: ...

    def notes(self) -> list[str]: ...


@dataclass(slots=True)
class Proxy:
    """The proxy of one command. Call it with each connection; `notes` then reports what was reached and refused."""

    rules: Rules
    intercept: Intercept | None = None
    resolve: Resolve = resolve
    own_addresses: OwnAddresses = own_addresses
    connections: int = 128  # at a time
    head_s: float = 30.0  # for a request to arrive
    _open: set[object] = field(default_factory=set)  # tasks, of which asyncio keeps weak references only
    _reached: dict[str, None] = field(default_factory=dict)
    _refused: dict[str, HostRefused] = field(default_factory=dict)

    async def __call__(self, reader: StreamReader, writer: StreamWriter) -> None:
        """Serve one connection to its end; what a client or a server does ends that connection only."""
        task = asyncio.current_task()
        self._open.add(task)
        try:
            if len(self._open) > self.connections:
                answer(writer, 503, f"More than {self.connections} connections are open: close some.")
            else:
                await self._serve(reader, writer)
        except (OSError, EOFError, TimeoutError, asyncio.LimitOverrunError):
            pass  # the client has gone, or its request is endless: no answer is possible
        finally:
            self._open.discard(task)
            await _close(writer)

    async def _serve(self, reader: StreamReader, writer: StreamWriter) -> None:
        async with asyncio.timeout(self.head_s):
            head = await reader.readuntil(b"\r\n\r\n")
        try:
            request = _parse_request(head)
            intercepted = self.intercept(request) if self.intercept else None
            there = await self._connected(request, intercepted.tls if intercepted else None)
        except MalformedRequest as error:
            return answer(writer, 400, str(error))
        except NoSuchHost as error:
            return answer(writer, 502, f"{self._refuse(request.host, error)} {error}: check the name.")
        except HostRefused as error:
            return answer(writer, 403, f"{self._refuse(request.host, error)} {error}.")
        except ssl.SSLError as error:
            found = getattr(error, "verify_message", "")
            why = HostRefused(f"is not trusted: {found}" if found else f"does not speak TLS: {error.reason}")
            return answer(writer, 502, f"{self._refuse(request.host, why)} {why}.")
        except OSError as error:
            return answer(writer, 502, f"{request.host} does not answer: {error.strerror or type(error).__name__}.")
        if len(self._reached) < _KEPT:
            self._reached[request.host] = None
        if request.head is None:
            writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        elif not intercepted:
            there[1].write(request.head)
        try:
            if intercepted:
                await intercepted((reader, writer), there, request.head or b"")
            else:
                await _join((reader, writer), there)
        finally:
            await _close(there[1])

    async def _connected(self, request: ProxyRequest, tls: ssl.SSLContext | None) -> Streams:
        """Raises HostRefused, OSError."""
        host, port = host_name(request.host), request.port
        patterns = [pattern for text in self.rules.hosts if (pattern := pattern_of(text))]
        naming = [pattern for pattern in patterns if pattern.matches(host, port)]
        if not naming:  # before the lookup: DNS queries can carry data out, too
            raise NotAllowed("is not among the hosts allowed for this call")
        addresses = await allowed_addresses(
            host,
            port,
            private_hosts=self.rules.private_hosts,
            resolve=self.resolve,
            own_addresses=self.own_addresses,
            # Of those below 1024: of the web and of ssh, and the ones that the call names.
            ports=WEB_PORTS | {_SSH} | {pattern.port for pattern in naming if pattern.port},
            closed_ports=self.rules.closed_ports,
        )
        failure: OSError = OSError("no address")
        for address in addresses:
            try:
                async with asyncio.timeout(_CONNECT_S):
                    return await asyncio.open_connection(
                        str(address), port, limit=BLOCK, ssl=tls, server_hostname=host if tls else None
                    )
            except OSError as error:
                failure = error
        raise failure

    def _refuse(self, host: str, why: HostRefused) -> str:
        """Keep it for the notes; the host as it can be shown."""
        shown = ascii(host[:80])[1:-1]
        if len(self._refused) < _KEPT:
            self._refused[shown] = why
        return shown

    def notes(self) -> list[str]:
        """Lines for the end of the command's output: the hosts that were reached, and what was refused and why."""
        lines = [f"reached {_listed(self._reached)}"] if self._reached else []
        of_others = [host for host, why in self._refused.items() if isinstance(why, NotAllowed)]
        if of_others:
            one = len(of_others) == 1
            again = json.dumps([*self.rules.hosts, *of_others][:_SHOWN])
            lines.append(
                f"{_listed(of_others)} {'was' if one else 'were'} refused: {'it is' if one else 'they are'} not among "
                f"the hosts allowed for this call; ask again with network: {again}"
            )
        rest = [
            f"{host} {why}: check the name" if isinstance(why, NoSuchHost) else f"{host} was refused: it {why}"
            for host, why in self._refused.items()
            if not isinstance(why, NotAllowed)
        ]
        lines += rest[:_SHOWN]
        if len(rest) > _SHOWN:
            lines.append(f"{len(rest) - _SHOWN} more were refused")
        lines += self.intercept.notes()[:_SHOWN] if self.intercept else []
        return [f"[network: {line}]" for line in lines]


def _parse_request(head: bytes) -> ProxyRequest:
    """Parse the head of a request. Raises MalformedRequest."""
    parsed = h11.Connection(h11.SERVER, max_incomplete_event_size=MAX_HEAD)
    try:
        parsed.receive_data(head)
        request = parsed.next_event()
    except h11.RemoteProtocolError as error:
        raise MalformedRequest(f"This is not HTTP as a proxy reads it: {error}.") from error
    if not isinstance(request, h11.Request):
        raise MalformedRequest("This is not HTTP as a proxy reads it.")
    target = request.target.decode("ascii", "replace")
    if request.method == b"CONNECT":
        host, port = _authority(target, None)
        return ProxyRequest(host, port, None)
    scheme, separator, rest = target.partition("://")
    if scheme.lower() != "http" or not separator:
        raise MalformedRequest("This is a proxy: ask for a whole http:// URL, or use CONNECT for anything else.")
    authority = re.split(r"[/?]", rest, maxsplit=1)[0]
    host, port = _authority(authority, 80)
    path = rest.removeprefix(authority)
    path = path if path.startswith("/") else f"/{path}"
    shown = f"[{host}]" if ":" in host else host
    lines = [
        request.method + b" " + path.encode() + b" HTTP/" + request.http_version,
        f"Host: {shown}{'' if port == 80 else f':{port}'}".encode(),
        *(name + b": " + value for name, value in request.headers if name not in NOT_PASSED_ON),
        b"Connection: close",
    ]
    return ProxyRequest(host, port, b"\r\n".join([*lines, b"", b""]))


def _authority(written: str, port: int | None) -> tuple[str, int]:
    """Parse `host:port`. Raises MalformedRequest."""
    try:
        split = urlsplit(f"//{written}")
        host, port = split.hostname, split.port or port
    except ValueError as error:
        raise MalformedRequest(f"{written[:80]!a} is not a host and a port.") from error
    if not host or port is None or "@" in written or split.path:
        raise MalformedRequest(f"{written[:80]!a} is not a host and a port.")
    return host, port


async def _join(here: Streams, there: Streams) -> None:
    """Pass on what comes from either side until both have ended, or one breaks off."""
    ways = {asyncio.create_task(_pass(here[0], there[1])), asyncio.create_task(_pass(there[0], here[1]))}
    try:
        await asyncio.wait(ways, return_when=asyncio.FIRST_EXCEPTION)
    finally:
        for way in ways:
            way.cancel()
        await asyncio.gather(*ways, return_exceptions=True)


async def _pass(reader: StreamReader, writer: StreamWriter) -> None:
    while block := await reader.read(BLOCK):
        writer.write(block)
        await writer.drain()  # so that no more than a block or two is under way
    if writer.can_write_eof():
        writer.write_eof()


def answer(writer: StreamWriter, status: int, sentence: str) -> None:
    """Write a whole answer of the proxy's own."""
    reason = _REASONS.get(status, "Refused")
    body = f"{sentence}\n".encode()
    writer.write(
        f"HTTP/1.1 {status} {reason}\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {len(body)}\r\n"
        "Connection: close\r\n\r\n".encode()
        + body
    )


async def _close(writer: StreamWriter) -> None:
    writer.close()
    with suppress(OSError, TimeoutError):
        async with asyncio.timeout(_CLOSE_S):
            await writer.wait_closed()


def _listed(hosts: Sequence[str] | Iterable[str]) -> str:
    names = list(hosts)
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more


def serve(rules: Mapping[str, Any], channel: socket.socket, sandbox: int, intercept: Intercept | None = None) -> None:
    """Serve until `sandbox`, a pidfd, says that the box has ended. It may end before it has handed out anything."""
    _, handles, _, _ = socket.recv_fds(channel, 1, 1)
    channel.close()
    if handles:
        listener = socket.socket(fileno=handles[0])
        proxy = Proxy(Rules(**{name: tuple(values) for name, values in rules.items()}), intercept)
        asyncio.run(_serve_until(proxy, listener, sandbox))


async def _serve_until(proxy: Proxy, listener: socket.socket, sandbox: int) -> None:
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_reader(sandbox, ended.set)
    if proxy.intercept:  # no traceback of this process is shown to the command
        loop.set_exception_handler(lambda *_: None)
    server = await asyncio.start_server(proxy, sock=listener, limit=MAX_HEAD)
    await ended.wait()
    server.close()
    # Before anything else, and then at once: the command has ended, and its output is read for a moment only.
    with suppress(OSError):
        print(*(f"\n{note}" for note in proxy.notes()), sep="", end="", flush=True)
    os._exit(0)
