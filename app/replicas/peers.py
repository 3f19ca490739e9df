"""The servers that share a database. `Alone` is the only one; `PostgresPeers` knows the others."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Protocol
from weakref import WeakValueDictionary

Work = Callable[[], Awaitable[None]]


class Peers(Protocol):
    """The part of other servers that every room needs: to be the only one at something."""

    def lock(self, kind: str, name: str) -> AbstractAsyncContextManager[None]:
        """Be the only holder of this name among all servers.

        Locks of one kind must not be nested; those of different kinds in the order session in key.
        """
        ...

    async def on_duty(self, name: str, work: Work) -> None:
        """Run `work`, which never ends, while this server is the one of all that does it."""


class Alone:
    """The only server of its database."""

    def __init__(self) -> None:
        self._locks: WeakValueDictionary[tuple[str, str], asyncio.Lock] = WeakValueDictionary()

    @asynccontextmanager
    async def lock(self, kind: str, name: str) -> AsyncGenerator[None, None]:
        async with self._locks.setdefault((kind, name), asyncio.Lock()):
            yield

    async def on_duty(self, name: str, work: Work) -> None:
        await work()


class ReplicaGone(Exception):
    """The server that was asked has stopped; what it has done of the request is not known."""


class Refusal(Exception):
    """A server that was asked by another refuses. `name` says why, for programs; `fields` belong to it."""

    def __init__(self, name: str, words: str, fields: dict[str, Any] | None = None) -> None:
        super().__init__(words)
        self.name = name
        self.fields = fields or {}
