"""Locks that hold among all replicas, as advisory locks of the database.

Such a lock ends with its connection, perhaps while its holder is still at work: what must not happen twice is prevented
by a unique index too.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Any

from app.replicas.peers import Alone, Peers, Read
from app.replicas.postgres.failures import FAILURES, described
from app.storage.changes import StoreFailed

EACH = 4  # connections that hold locks of one kind
WAIT_S = 60  # for a lock
LOCK = "SELECT pg_advisory_xact_lock(hashtextextended($1, 2))"
BUSY = "Another server has locked {name!r} ({kind}) for {seconds} s, or the database is away ({error}). Try again."


class Locks:
    """`pool` is a pool of connections with room for all kinds at a time."""

    def __init__(self, pool: Any) -> None:
        self._pool = pool
        self._here = Alone()  # first among the requests of this server, so that each lock waits on one connection
        self._room: dict[str, asyncio.Semaphore] = {}

    @asynccontextmanager
    async def lock(self, kind: str, name: str) -> AsyncGenerator[None, None]:
        """Raises StoreFailed if the lock is not to be had."""
        room = self._room.setdefault(kind, asyncio.Semaphore(EACH))
        async with self._here.lock(kind, name), room:
            connection = await self._locked(kind, name)
            try:
                yield
            finally:
                await self._unlock(connection)

    async def _unlock(self, connection: Any) -> None:
        """Give the lock back whole, even if the caller is cancelled: the pool waits for the connection."""
        await asyncio.shield(asyncio.create_task(self._give_back(connection), name="give a lock back"))

    async def _give_back(self, connection: Any) -> None:
        try:
            await connection.execute("COMMIT")
            await self._pool.release(connection)
        except FAILURES:  # what was done under the lock is done
            await self._hang_up(connection)

    async def _hang_up(self, connection: Any) -> None:
        """Give up a connection, and the locks with it; the pool has taken back one that was lost."""
        with suppress(*FAILURES):
            connection.terminate()
            await self._pool.release(connection)

    async def _locked(self, kind: str, name: str) -> Any:
        connection: Any = None
        try:
            async with asyncio.timeout(WAIT_S):
                connection = await self._pool.acquire()
                await connection.execute("BEGIN")
                await connection.execute(LOCK, f"{kind}\n{name}")
                return connection
        except BaseException as error:
            if connection is not None:
                await self._hang_up(connection)
            if isinstance(error, FAILURES):
                raise StoreFailed(BUSY.format(kind=kind, name=name, seconds=WAIT_S, error=described(error))) from error
            raise


class SharedLock:
    """A lock of all servers, whose holder has read anew what it is about to change."""

    def __init__(self, peers: Peers, kind: str, name: str, read: Read | None = None) -> None:
        self._peers = peers
        self._kind = kind
        self._name = name
        self._read = read
        self._held: AsyncExitStack | None = None

    async def __aenter__(self) -> None:
        """Raises StoreFailed."""
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self._peers.lock(self._kind, self._name))
            if self._read:
                await self._read()
            self._held = stack.pop_all()  # one holder at a time

    async def __aexit__(self, *error: Any) -> None:
        held, self._held = self._held, None
        assert held
        await held.__aexit__(*error)
