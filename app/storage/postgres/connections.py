"""Connections to PostgreSQL: made when needed, kept for the next statement, made anew when the server was away."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeAlias
from weakref import WeakSet

import asyncpg

MOST = 8  # of one server; PostgreSQL allows 100 to all
CONNECT_S = 10.0
AGAIN_S = 3.0  # of that, until a second try: what is sent to a host that is away gets no answer at all
CLOSE_S = 1.0
COMMAND_S = 60.0  # for one statement
# Statements are small and planned once: compiling them would take longer than executing them.
SETTINGS = {
    "jit": "off",
    "timezone": "UTC",
    "tcp_keepalives_idle": "10",
    "tcp_keepalives_interval": "5",
    "tcp_keepalives_count": "3",
    "tcp_user_timeout": "25000",  # while what the database sent is not acknowledged, there are no keepalives
}
BACKENDS = """
    SELECT pid, state = 'idle' AND state_change < clock_timestamp() - interval '1 s' AS waits
    FROM pg_stat_activity WHERE pid = ANY ($1::int[]) AND application_name = $2
"""


class _Connection(asyncpg.Connection):  # type: ignore[misc]  # it has no types
    """Say that it was closed when it is ended between the steps of a statement, where asyncpg has an AttributeError."""

    async def _do_execute(self, *args: Any, **options: Any) -> Any:
        try:
            return await super()._do_execute(*args, **options)
        except AttributeError as error:
            if self.is_closed():
                raise asyncpg.InterfaceError("the connection was closed") from error
            raise


Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"

UseOf = Callable[["Connection"], object]


async def _first(tries: list[asyncio.Task[Connection]], hung_up: asyncio.Future[None]) -> Connection:
    """Take the first connection that is made out of `tries`. Raises what the last of them raises."""
    while True:
        await asyncio.wait((hung_up, *tries), return_when=asyncio.FIRST_COMPLETED)
        if hung_up.done():
            raise ConnectionAbortedError("the connection was given up while it was made")
        ended = next(one for one in tries if one.done())
        tries.remove(ended)
        if ended.exception() is None or not tries:
            return ended.result()


def name_of(replica: str) -> str:
    """Return the name that the connections of a replica have in the database: by it others can end them."""
    return f"dragoman {replica}"


class Line:
    """The way to one database. `name` is that of its connections there."""

    def __init__(self, url: str, name: str = "dragoman", command_s: float = COMMAND_S) -> None:
        self._url = url
        self._name = name
        self._command_s = command_s
        self._open: WeakSet[Connection] = WeakSet()
        self._connecting = set[asyncio.Future[None]]()
        self._closed = False

    async def connect(self, *_: object, again_s: float = AGAIN_S, **options: Any) -> Connection:
        """Return a connection of the caller's own; asyncpg's pool gives `options`.

        After `again_s` there is a second try. The first one goes on: its database may be slow, and is asked six times.
        """
        until = asyncio.get_running_loop().time() + CONNECT_S
        while True:
            try:
                return await self._connect(until, again_s, options)
            except ConnectionAbortedError:  # nothing was executed
                if asyncio.get_running_loop().time() > until - AGAIN_S:
                    raise

    async def _connect(self, until: float, again_s: float, options: dict[str, Any]) -> Connection:
        if self._closed:
            raise TimeoutError("the database has not answered while this server was being stopped")
        loop = asyncio.get_running_loop()
        hung_up = loop.create_future()
        tries = [self._begin(until - loop.time(), options)]
        self._connecting.add(hung_up)
        try:
            done, _ = await asyncio.wait((hung_up, *tries), timeout=again_s, return_when=asyncio.FIRST_COMPLETED)
            if not done:
                tries.append(self._begin(until - loop.time(), options))
            connection = await _first(tries, hung_up)
        except TimeoutError as error:
            raise ConnectionAbortedError(f"there was no answer within {CONNECT_S:g} s") from error
        finally:
            self._connecting.discard(hung_up)
            for one in tries:  # cancelled in the middle of it, asyncpg leaves an error behind that no caller can fetch
                one.add_done_callback(_hang_up)
        self._open.add(connection)
        return connection

    def _begin(self, limit_s: float, options: dict[str, Any]) -> asyncio.Task[Connection]:
        settings = SETTINGS | {"application_name": self._name}
        options = options | {"connection_class": _Connection, "server_settings": settings}
        options |= {"timeout": limit_s, "command_timeout": self._command_s}
        return asyncio.create_task(asyncpg.connect(self._url, **options), name="connect to PostgreSQL")

    def rename(self, name: str) -> None:
        """End all connections. The next ones have this name."""
        self._name = name
        self.hang_up()

    def hang_up(self) -> None:
        """End all connections, also those that are being made: what waits for an answer of one gets an error."""
        self.give_up_connecting()
        for connection in list(self._open):
            connection.terminate()
        self._open.clear()

    def give_up_connecting(self) -> None:
        """Give up connections that are being made: each caller gets an error, and may try again."""
        for connecting in self._connecting:
            if not connecting.done():
                connecting.set_result(None)

    async def hang_up_half_open(self, asking: Connection, use_of: UseOf | None = None) -> None:
        """End the connections whose backend is gone, or waits for us while we may wait for it, as the database says.

        `use_of` returns what a connection is used for now: it is not ended if that is something else than before, or
        nothing. Without it any that waits is ended. Raises what `asking` raises.
        """
        use_of = use_of or id
        self.give_up_connecting()
        uses = {one: use_of(one) for one in self._open if one is not asking and not one.is_closed()}
        pids = {one: one.get_server_pid() for one in uses}
        backends = {row["pid"]: row["waits"] for row in await asking.fetch(BACKENDS, [*pids.values()], self._name)}
        for one, use in uses.items():
            is_stuck = backends.get(pids[one]) and use is not None and use_of(one) == use
            if is_stuck or pids[one] not in backends:
                one.terminate()

    def close(self) -> None:
        """End all connections, and make no more: nothing is waited for any longer."""
        self._closed = True
        self.hang_up()


class Connections:
    """At most MOST at a time. asyncpg's own pool asks the server to reset a connection after each use: a round trip."""

    def __init__(self, url: str) -> None:
        self.line = Line(url)
        self._idle: list[Connection] = []
        self._uses: dict[Connection, object] = {}
        self._free = asyncio.Semaphore(MOST)
        self._closed = False

    async def connect(self) -> Connection:
        """Return a connection of the caller's own."""
        return await self.line.connect(statement_cache_size=400)

    @asynccontextmanager
    async def one(self) -> AsyncIterator[Connection]:
        async with self._free:
            connection = self._kept() or await self.connect()
            self._uses[connection] = object()
            try:
                yield connection
            except BaseException as error:
                if not _is_intact(connection, error):
                    connection.terminate()
                raise
            finally:
                del self._uses[connection]
                if self._closed:
                    connection.terminate()
                elif not connection.is_closed():
                    self._idle.append(connection)

    def _kept(self) -> Connection | None:
        while self._idle:
            if not (connection := self._idle.pop()).is_closed():
                return connection
        return None

    async def hang_up_half_open(self, asking: Connection) -> None:
        """End those that may get no answer; what waits for one gets an error. Raises what `asking` raises."""
        idle, self._idle = self._idle, []
        for connection in idle:
            connection.terminate()
        await self.line.hang_up_half_open(asking, self._uses.get)

    async def close(self) -> None:
        self._closed = True
        idle, self._idle = self._idle, []
        await asyncio.gather(*map(close, idle))


async def close(connection: Connection) -> None:
    """Say good-bye to the server, if it answers; a connection that is half-open never ends by itself."""
    try:
        await connection.close(timeout=CLOSE_S)
    except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError):
        connection.terminate()


def _is_intact(connection: Connection, error: BaseException) -> bool:
    """Return True if the server has refused a statement, and the connection takes the next one."""
    refused = isinstance(error, asyncpg.PostgresError) and getattr(error, "severity_en", "ERROR") == "ERROR"
    return refused and not connection.is_closed() and not connection.is_in_transaction()


def _hang_up(connecting: asyncio.Task[Connection]) -> None:
    """End a connection for which no caller waits any more."""
    if not connecting.cancelled() and connecting.exception() is None:
        connecting.result().terminate()
