"""The way of one server to its database, which a test can cut: a TCP proxy that knows PostgreSQL's messages.

async with database_link(postgres.port) as link:
    url = link.url(postgres.database())
    link.cut()         # nothing goes through any more, and no end says so: as a cable that is pulled
    link.mend()        # new connections go through; those that were cut stay so
    link.deaf = True   # notifications are lost
    link.silent = True  # ends do not go through: half-open connections, as behind a firewall that has forgotten them
"""

from __future__ import annotations

import asyncio
import struct
from asyncio import StreamReader, StreamWriter
from collections.abc import AsyncGenerator, Coroutine
from contextlib import asynccontextmanager, suppress
from urllib.parse import urlsplit

NOTIFICATION = b"A"


class DatabaseLink:
    def __init__(self, port: int) -> None:
        self.deaf = self.silent = False
        self.dropped = 0  # notifications
        self.port = 0
        self._to = port
        self._open = asyncio.Event()
        self._open.set()
        self._tasks = set[asyncio.Task[None]]()

    def url(self, database_url: str) -> str:
        """The URL of this database by this link."""
        parts = urlsplit(database_url)
        return f"{parts.scheme}://{parts.username}@127.0.0.1:{self.port}{parts.path}?sslmode=disable"

    def cut(self) -> None:
        self._open = asyncio.Event()  # connections of now keep the old one: what they wait for never comes

    def mend(self) -> None:
        self._open.set()

    async def serve(self, reader: StreamReader, writer: StreamWriter) -> None:
        ends = [writer]
        try:
            with suppress(OSError):
                while not self._open.is_set():
                    await self._open.wait()
                back, onward = await asyncio.open_connection("127.0.0.1", self._to)
                ends.append(onward)
                await self._join(self._to_server(self._open, reader, onward), self._to_client(self._open, back, writer))
            if self.silent:
                await asyncio.Event().wait()
        finally:
            for end in ends:
                end.transport.abort()

    async def _join(self, *ways: Coroutine[None, None, None]) -> None:
        """Go both ways until one of them has ended."""
        tasks = [asyncio.create_task(way) for way in ways]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _to_server(self, mine: asyncio.Event, reader: StreamReader, writer: StreamWriter) -> None:
        with suppress(ConnectionError):
            while data := await reader.read(65_536):
                await self._through(mine)
                writer.write(data)
                await writer.drain()
            await self._through(mine)

    async def _to_client(self, mine: asyncio.Event, reader: StreamReader, writer: StreamWriter) -> None:
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            while True:
                head = await reader.readexactly(5)
                data = head + await reader.readexactly(struct.unpack("!xI", head)[0] - 4)
                await self._through(mine)
                if self.deaf and head[:1] == NOTIFICATION:
                    self.dropped += 1
                    continue
                writer.write(data)
                await writer.drain()

    async def _through(self, mine: asyncio.Event) -> None:
        if mine is not self._open:  # it was cut
            await asyncio.Event().wait()

    def accept(self, reader: StreamReader, writer: StreamWriter) -> None:
        task = asyncio.create_task(self.serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@asynccontextmanager
async def database_link(port: int) -> AsyncGenerator[DatabaseLink, None]:
    link = DatabaseLink(port)
    server = await asyncio.start_server(link.accept, "127.0.0.1", 0)
    link.port = server.sockets[0].getsockname()[1]
    try:
        yield link
    finally:
        server.close()
        await link.close()
