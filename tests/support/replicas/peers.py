"""Servers that share one PostgreSQL, without anything else of a server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Any

from app.replicas.postgres.lease import Replica, new_id
from app.replicas.postgres.peers import PostgresPeers
from app.storage.postgres.store import PostgresStore
from app.storage.runs import RunRow
from app.storage.sessions import SessionRow
from tests.support.databases.postgres import Cluster

LIMIT_S = 30


class Holder:
    """The runs of a server in these tests: their ids."""

    def __init__(self) -> None:
        self.runs = set[str]()
        self.abandoned = asyncio.Event()

    def has(self, run: str) -> bool:
        return run in self.runs

    async def abandon(self) -> None:
        self.abandoned.set()


class PeerServer:
    def __init__(self, peers: PostgresPeers, store: PostgresStore) -> None:
        self.peers, self.store, self.holder = peers, store, Holder()
        peers.begin(self.holder, partial(setattr, store, "fenced_by"), store.connections)

    @asynccontextmanager
    async def connected(self) -> AsyncGenerator[Any, None]:
        """A connection of its own: that of the lease is in use."""
        connection = await self.store.connections.connect()
        try:
            yield connection
        finally:
            connection.terminate()

    async def buries(self, replica: str) -> None:
        async with self.connected() as connection:
            await connection.execute("UPDATE replicas SET state = 'gone' WHERE id = $1", replica)
            await connection.execute("UPDATE runs SET owner = NULL WHERE owner = $1 AND ended IS NULL", replica)


@asynccontextmanager
async def peer_servers(postgres: Cluster, *nodes: str, lease_s: float = 60.0) -> AsyncGenerator[list[PeerServer], None]:
    url = postgres.database()
    async with asyncio.timeout(LIMIT_S), AsyncExitStack() as stack:
        found = []
        for node in nodes:
            store = await PostgresStore.open(url)
            stack.push_async_callback(store.close)
            me = Replica(new_id(), node, "1", f"/{node}")
            found.append(PeerServer(await stack.enter_async_context(PostgresPeers(url, me, lease_s).opened()), store))
        yield found


def run_row(run: str, session: str = "ses_1") -> RunRow:
    return RunRow(run, session, "local", "m", "running", 1.0)


async def begin_run(server: PeerServer, run: str = "run_1") -> None:
    await server.store.write([SessionRow("ses_1", "local", 1.0, "t"), run_row(run)])
    server.holder.runs.add(run)
