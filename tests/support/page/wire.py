"""A wire between browsers and a server, which a test cuts, or leads to another server."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

LOCAL = "127.0.0.1"


class Wire:
    """Between a browser and the server: each stream ends once `most` bytes of it have passed; None ends none.

    Those arrive, or streams would be cut for ever; each may have more than the one before.
    """

    def __init__(self, to: int) -> None:
        self.to = to
        self.url = ""
        self.port = 0
        self.most: int | None = None
        self.cuts = 0
        self.down = False  # no connection gets through
        self.asked: Callable[[bytes], Awaitable[bytes]] | None = None  # what becomes of each block of requests
        self._writers: set[asyncio.StreamWriter] = set()

    async def carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        ends = [writer]
        self._writers.add(writer)
        try:
            if self.down:
                return
            with suppress(ConnectionRefusedError):
                up, down = await asyncio.open_connection(LOCAL, self.to)
                ends.append(down)
                self._writers.add(down)
                await asyncio.gather(self._copy(reader, down), self._copy(up, writer, bounded=True))
        finally:
            for one in ends:
                self._writers.discard(one)
                one.close()

    async def _copy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, bounded: bool = False) -> None:
        passed, streams = 0, False
        with suppress(ConnectionError):
            while block := await reader.read(1024):
                streams = bounded and (streams or b"text/event-stream" in block)
                passed += len(block) if streams else 0
                if self.asked and not bounded:
                    block = await self.asked(block)
                writer.write(block)
                await writer.drain()
                if self.most is not None and passed > self.most:
                    self.cuts += 1
                    self.most += 8_000
                    break
        writer.close()

    def cut(self) -> None:
        """All that is under way ends in the middle of whatever it is."""
        for writer in list(self._writers):
            writer.transport.abort()


@asynccontextmanager
async def wired(to: int, host: str = LOCAL) -> AsyncGenerator[Wire, None]:
    """A wire from a free port of this address to a port of this machine."""
    wire = Wire(to)
    server = await asyncio.start_server(wire.carry, host, 0)
    wire.port = server.sockets[0].getsockname()[1]
    wire.url = f"http://{'localhost' if host == LOCAL else host}:{wire.port}"
    try:
        yield wire
    finally:
        server.close()
        wire.cut()


def own_address() -> str:
    """The address of this machine in its network, whose pages browsers do not trust as those of localhost."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe, suppress(OSError):
        probe.connect(("192.0.2.1", 9))  # sends nothing
        return str(probe.getsockname()[0])
    return LOCAL
