"""A proxy of commands on loopback, and servers that must not be reached through it."""

from __future__ import annotations

import asyncio
from asyncio import StreamReader, StreamWriter
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from tests.support.fetching import World
from tools.sandbox.network.proxy import MAX_HEAD, Proxy
from tools.sandbox.network.rules import Rules

HERE = "127.0.0.1"


@dataclass
class Server:
    """What a server was sent, a connection each."""

    port: int = 0
    heads: list[bytes] = field(default_factory=list)


@asynccontextmanager
async def serving(*addresses: str, answer: bytes = b"here") -> AsyncGenerator[Server, None]:
    """One server on several addresses of this machine, on the same port, that says the same to all."""
    server = Server()

    async def serve(reader: StreamReader, writer: StreamWriter) -> None:
        server.heads.append(b"")
        try:
            server.heads[-1] = await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\nconnection: close\r\n\r\n" % len(answer) + answer)
            await writer.drain()
        except (EOFError, OSError):
            pass
        writer.close()

    first = await asyncio.start_server(serve, addresses[0], 0)
    server.port = first.sockets[0].getsockname()[1]
    others = [await asyncio.start_server(serve, address, server.port) for address in addresses[1:]]
    try:
        yield server
    finally:
        for one in (first, *others):
            one.close()


@dataclass
class Proxied:
    proxy: Proxy
    port: int

    async def ask(self, request: bytes) -> bytes:
        """All that comes back for these bytes."""
        async with asyncio.timeout(30):
            reader, writer = await asyncio.open_connection(HERE, self.port)
            try:
                writer.write(request)
                return await reader.read()
            finally:
                writer.close()

    async def get(self, url: str, *headers: str) -> bytes:
        lines = [f"GET {url} HTTP/1.1", "Host: elsewhere.example", *headers]
        return await self.ask("\r\n".join([*lines, "", ""]).encode())

    async def tunnel(self, authority: str, inside: bytes = b"GET / HTTP/1.1\r\nhost: x\r\n\r\n") -> bytes:
        return await self.ask(f"CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n\r\n".encode() + inside)


@asynccontextmanager
async def proxied(
    *hosts: str, world: World | None = None, private: tuple[str, ...] = (), **more: object
) -> AsyncGenerator[Proxied, None]:
    closed = more.pop("closed", ())
    assert isinstance(closed, tuple)
    proxy = Proxy(Rules(hosts or ("*",), private, closed), **({"resolve": world.resolve} if world else {}), **more)  # type: ignore[arg-type]
    server = await asyncio.start_server(proxy, HERE, 0, limit=MAX_HEAD)
    async with server:
        yield Proxied(proxy, server.sockets[0].getsockname()[1])
