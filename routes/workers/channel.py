"""The worker's end of the socket between it and its parent, which hands it the connections of clients.

The parent sends a byte with each connection, the worker one for each thing that its parent should know. When the
parent's end closes, no more connections come: the parent wants this worker to leave, or is dead. Both end the worker as
SIGTERM does.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable
from pathlib import Path

from msgspec import Struct

from tools.base.tasks import wait_at_most

READY, CLOSED, LEAVING = b"r", b"c", b"l"  # takes connections; one has ended; wants no more of them
LEFT_S = 2.0  # for the parent to hear that a worker leaves


class Place(Struct, frozen=True):
    """A worker's number, from 1, and the port that its parent listens on."""

    number: int
    port: int


def socket_of_parent() -> socket.socket:
    """Take the socket from standard input, which nothing that this process starts may have."""
    own = socket.socket(fileno=os.dup(0))
    with Path(os.devnull).open("rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    return own


class Channel:
    """Use `open` once the server can take connections."""

    def __init__(self, own: socket.socket) -> None:
        own.setblocking(False)
        self._socket = own
        self._unsent = b""
        self._ended = asyncio.Event()
        self._arriving = set[asyncio.Task[object]]()

    def open(self, protocol: Callable[[], asyncio.BaseProtocol], on_end: Callable[[], None]) -> None:
        """Serve each connection by a new `protocol`, until there are no more: then call `on_end`."""
        self._protocol, self._on_end = protocol, on_end
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._socket, self._receive)
        self._send(READY)

    def closed(self) -> None:
        """A connection has ended."""
        self._send(CLOSED)

    async def leave(self) -> None:
        """Return when all connections have come that the parent has handed over."""
        self._send(LEAVING)
        await wait_at_most(LEFT_S, self._ended)

    def _receive(self) -> None:
        try:
            message, files, _, _ = socket.recv_fds(self._socket, 1, 1)
        except BlockingIOError:
            return
        except OSError:
            message, files = b"", []
        if not message:
            self._loop.remove_reader(self._socket)
            self._ended.set()
            self._on_end()
            return
        if not files:  # no more can be open here: it is closed
            self.closed()
        for file in files:
            arriving = self._loop.create_task(self._serve(socket.socket(fileno=file)))
            self._arriving.add(arriving)
            arriving.add_done_callback(self._arriving.discard)

    async def _serve(self, connection: socket.socket) -> None:
        try:
            connection.setblocking(False)
            await self._loop.connect_accepted_socket(self._protocol, connection)
        except OSError:  # it has ended before it began
            connection.close()
            self.closed()

    def _send(self, news: bytes = b"") -> None:
        """Send what the parent does not know yet, as soon as it takes that."""
        self._unsent += news
        try:
            self._unsent = self._unsent[self._socket.send(self._unsent) :]
        except BlockingIOError:
            pass
        except OSError:  # without a parent nothing needs to be known
            self._unsent = b""
        if self._unsent:
            self._loop.add_writer(self._socket, self._send)
        else:
            self._loop.remove_writer(self._socket)
