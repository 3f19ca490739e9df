"""A proxy with secrets on loopback, and a real TLS server that is the host of one: it answers as a test says."""

from __future__ import annotations

import asyncio
import ssl
from asyncio import StreamReader, StreamWriter
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

import trustme

from tests.support.fetching import World
from tests.support.sandbox.proxied import HERE, Proxied, proxied
from tools.sandbox.network.secret_hosts import SecretHosts
from tools.sandbox.network.secrets import BoxSecret, Handed, handed

HOST, EVIL, THERE = "git.example", "evil.example", "127.0.0.2"
VALUE = "ghs_0123/abc+DEF=VALUE&tail"  # with characters that are escaped in URLs and JSON
MARK = "phs_9876abcdefPLACEHOLDERxy"
LIMIT_S = 60

Answer = Callable[[bytes, bytes], Sequence[bytes]]
"""The pieces of an answer to the head and body of a request; each is sent by itself."""


def ok(body: bytes, *headers: str) -> list[bytes]:
    lines = ["HTTP/1.1 200 OK", f"Content-Length: {len(body)}", *headers, "", ""]
    return ["\r\n".join(lines).encode("latin-1") + body]


def plain(_: bytes, __: bytes) -> list[bytes]:
    return ok(b"here")


@dataclass
class Host:
    """A server, what it was sent, and how it answers."""

    port: int = 0
    answer: Answer = plain
    requests: list[tuple[bytes, bytes]] = field(default_factory=list)
    connections: int = 0
    instead: Callable[[StreamReader, StreamWriter], Awaitable[None]] | None = None

    @property
    def received(self) -> bytes:
        return b"\n".join(head + body for head, body in self.requests)

    async def serve(self, reader: StreamReader, writer: StreamWriter) -> None:
        self.connections += 1
        if self.instead:
            await self.instead(reader, writer)
            return
        with suppress(OSError, EOFError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                lower = head.lower()
                if b"expect: 100-continue" in lower:
                    writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
                if b"transfer-encoding: chunked" in lower:
                    body = await reader.readuntil(b"0\r\n\r\n")
                else:
                    size = lower.partition(b"content-length:")[2].partition(b"\r\n")[0]
                    body = await reader.readexactly(int(size or 0))
                self.requests.append((head, body))
                pieces = self.answer(head, body)
                for piece in pieces:
                    writer.write(piece)
                    await writer.drain()
                    await asyncio.sleep(0)
                if b"connection: close" in lower or not pieces or b"Connection: close" in pieces[0]:
                    break
        writer.close()


@dataclass
class Guarded:
    """A proxy with one secret, its host, and another host that is not its."""

    proxied: Proxied
    host: Host
    evil: Host
    trusted: ssl.SSLContext  # as in the box
    handed: Handed

    @property
    def notes(self) -> str:
        return "\n".join(self.proxied.proxy.notes())

    async def talk(self, request: bytes, *, to: str = HOST, port: int = 0, name: str = "") -> bytes:
        """All that comes back for these bytes in a tunnel with TLS to a host, for which `name` is asked."""
        async with asyncio.timeout(LIMIT_S):
            reader, writer = await self.tunnel(to, port, name)
            writer.write(request)
            try:
                return await reader.read()
            finally:
                writer.close()

    async def tunnel(self, to: str = HOST, port: int = 0, name: str = "") -> tuple[StreamReader, StreamWriter]:
        """Raises ConnectionError with the proxy's words when there is none."""
        port = port or (self.evil if to == EVIL else self.host).port
        reader, writer = await asyncio.open_connection(HERE, self.proxied.port)
        writer.write(f"CONNECT {to}:{port} HTTP/1.1\r\nHost: {to}:{port}\r\n\r\n".encode())
        head = await reader.readuntil(b"\r\n\r\n")
        if b" 200 " not in head:
            writer.close()
            raise ConnectionError((await reader.read()).decode())
        await writer.start_tls(self.trusted, server_hostname=name or to)
        return reader, writer


@asynccontextmanager
async def guarded(
    answer: Answer = plain, *, paths: tuple[str, ...] = (), value: str = VALUE, scheme: str = "", of: str = HOST
) -> AsyncGenerator[Guarded, None]:
    """`of` is the name in the host's certificate."""
    authority, host, evil = trustme.CA(), Host(answer=answer), Host(answer=answer)
    world = World({name: [[THERE]] for name in (HOST, EVIL)})
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory()))
        authority.cert_pem.write_to_path(str(folder / "ca.pem"))
        for one, name in ((host, of), (evil, EVIL)):
            context = None
            if not scheme or one is evil:
                context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
                authority.issue_cert(name).configure_cert(context)
            server = await asyncio.start_server(one.serve, THERE, 0, ssl=context, limit=1 << 20)
            one.port = server.sockets[0].getsockname()[1]
            stack.callback(server.close)
        secret = BoxSecret(
            name="github",
            variable="TOKEN",
            placeholder=MARK,
            value=value,
            hosts=(f"{scheme}{HOST}:{host.port}",),
            paths=paths,
        )
        given = handed([secret], [folder / "ca.pem"])
        trusted = ssl.create_default_context(cafile=str(folder / "ca.pem"))
        trusted.load_verify_locations(cadata=given.certificate)
        through = await stack.enter_async_context(
            proxied(HOST, EVIL, world=world, private=(THERE,), intercept=SecretHosts(given))
        )
        yield Guarded(through, host, evil, trusted, given)


def request(target: str = "/", *headers: str, method: str = "GET", body: str = "", host: str = "") -> bytes:
    """A request of a command, after which the connection is closed. `{host}` becomes the host that it goes to."""
    length = [f"Content-Length: {len(body)}"] if body else []
    lines = [f"{method} {target} HTTP/1.1", f"Host: {host or '{host}'}", "Connection: close", *length, *headers]
    return ("\r\n".join([*lines, "", ""]) + body).encode("latin-1")
