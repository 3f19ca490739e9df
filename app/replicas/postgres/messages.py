"""Messages between replicas, as notifications of the database: hints, any of which may be lost.

They leave over a connection of their own without synchronous_commit, after the transaction that they are about: a
NOTIFY holds a lock of the whole database server until its commit has reached the disk.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

from app.replicas.peers import Body
from app.replicas.postgres.failures import FAILURES, described

ALL = "dragoman"  # the channel of all replicas
ORPHANS = "orphans"  # the kind of a message: runs wait for an owner
MOST_BYTES = 7_900  # of a payload: the database refuses 8,000
MOST_WAITING = 4_096  # messages not yet sent; older ones are dropped, and found by those who look once a second
RETRY_S = 0.5
LISTENS_S = 10.0  # between two looks if the connection is still there: one that nothing comes over ends unnoticed
ANSWER_S = 5.0  # for the database
SEND = "SELECT pg_notify(channel, payload) FROM unnest($1::text[], $2::text[]) AS sent(channel, payload)"

Handler = Callable[[Body], None]
Open = Callable[..., Awaitable[Any]]
"""Opens a connection of asyncpg, whose types are not known here."""

logger = logging.getLogger(__name__)


def channel_of(replica: str) -> str:
    return f"{ALL}_{replica}"


def encoded(kind: str, body: Body) -> str:
    """One line of ASCII; as many bytes as characters."""
    return json.dumps({"kind": kind} | body, separators=(",", ":"))


class Messages:
    """Send to one replica or to all, and listen. `handlers` are called by the kind of a message and do not wait.

    `on_gap` is called when messages may have been lost.
    """

    def __init__(self, open_connection: Open) -> None:
        self.handlers: dict[str, Handler] = {}
        self.on_gap: list[Callable[[], None]] = []
        self._open = open_connection
        self._waiting: deque[tuple[str, str]] = deque(maxlen=MOST_WAITING)
        self._news = asyncio.Event()
        self._channels = {ALL}
        self._listener: Any = None

    def send(self, channel: str, payload: str) -> None:
        """Send soon, behind what was sent before. `payload` is what `encoded` returns, at most MOST_BYTES long."""
        if len(payload) > MOST_BYTES:  # the database would refuse it with all that waits, again and again
            logger.error("a message to other replicas is left out, it has %d bytes: %.80s", len(payload), payload)
            return
        self._waiting.append((channel, payload))
        self._news.set()

    def send_all(self, kind: str, **body: Any) -> None:
        self.send(ALL, encoded(kind, body))

    async def answer_to(self, replica: str) -> None:
        """Listen to the channel of this replica, and of no other."""
        self._channels = {ALL, channel_of(replica)}
        if self._listener is not None:
            await self._close(self._listener)  # it is opened anew for the new channels

    async def send_forever(self) -> None:
        connection: Any = None
        try:
            while True:
                await self._news.wait()
                self._news.clear()
                while self._waiting:
                    batch = list(self._waiting)
                    try:
                        connection = connection or await self._open()
                        await connection.execute("SET synchronous_commit = off")
                        await self._send_from(connection, batch)
                    except FAILURES as error:
                        logger.warning("messages to other replicas wait: %s", described(error))
                        await self._close(connection)
                        connection = None
                        await asyncio.sleep(RETRY_S)
        finally:
            await self._close(connection)

    async def _send_from(self, connection: Any, batch: list[tuple[str, str]]) -> None:
        """Send the batch, and what has come meanwhile, until nothing waits."""
        while batch:
            channels, payloads = zip(*batch, strict=True)
            await connection.execute(SEND, list(channels), list(payloads), timeout=ANSWER_S)
            for _ in batch:
                with suppress(IndexError):  # dropped meanwhile
                    self._waiting.popleft()
            batch = list(self._waiting)

    async def listen_forever(self) -> None:
        while True:
            try:
                self._listener = await self._open()
                gone = asyncio.Event()
                self._listener.add_termination_listener(lambda _, gone=gone: gone.set())
                for channel in self._channels:
                    await self._listener.add_listener(channel, self._received)
                for call in self.on_gap:
                    call()
                await self._until_gone(gone)
            except FAILURES as error:
                logger.warning("messages of other replicas are not heard, connecting again: %s", described(error))
                await asyncio.sleep(RETRY_S)
            finally:
                await self._close(self._listener)

    async def _until_gone(self, gone: asyncio.Event) -> None:
        while not gone.is_set():
            with suppress(TimeoutError):
                async with asyncio.timeout(LISTENS_S):
                    await gone.wait()
                return
            await self._listener.execute("SELECT 1", timeout=ANSWER_S)

    def _received(self, _connection: Any, _pid: int, _channel: str, payload: str) -> None:
        try:
            body = json.loads(payload)
            handler = self.handlers.get(body.pop("kind"))
            if handler:  # a newer version may have kinds that this one has not
                handler(body)
        except (ValueError, TypeError, LookupError):  # of another version: the next message must be heard
            logger.exception("a message of another replica was not understood")

    @staticmethod
    async def _close(connection: Any) -> None:
        if connection is not None:
            connection.terminate()
