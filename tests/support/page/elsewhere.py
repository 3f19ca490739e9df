"""A server of somebody else: whatever reaches it from a frame has got out."""

from __future__ import annotations

import asyncio
import socket
from asyncio import DatagramProtocol, StreamReader, StreamWriter
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any


class Elsewhere(DatagramProtocol):
    """A server of somebody else, on an address that is not loopback: all that reaches it, over TCP and UDP."""

    def __init__(self) -> None:
        self.reached: list[str] = []
        self.address = ""

    def datagram_received(self, data: bytes, _: Any) -> None:
        self.reached.append("a packet")

    async def answer(self, reader: StreamReader, writer: StreamWriter) -> None:
        line = (await reader.readline()).decode()
        self.reached.append(line.split(" ")[1] if " " in line else "a connection")
        writer.write(b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n")
        writer.close()


@asynccontextmanager
async def elsewhere() -> AsyncGenerator[Elsewhere, None]:
    found = Elsewhere()
    server = await asyncio.start_server(found.answer, "0.0.0.0", 0)
    port = server.sockets[0].getsockname()[1]
    transport, _ = await asyncio.get_running_loop().create_datagram_endpoint(
        lambda: found, local_addr=("0.0.0.0", port)
    )
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(("192.0.2.1", 9))  # sends nothing: it chooses the address that others see
        found.address = f"{probe.getsockname()[0]}:{port}"
    try:
        yield found
    finally:
        transport.close()
        server.close()
