"""Work that one replica does for all: the first that gets the duty's lock, until its connection or lease is lost."""

from __future__ import annotations

import asyncio
from typing import Any

from msgspec import Struct

from app.replicas.peers import Work

TRY = "SELECT pg_try_advisory_lock(hashtextextended($1, 3))"


class Duty(Struct):
    name: str
    work: Work
    wanted: asyncio.Event
    task: asyncio.Task[None] | None = None


class Duties:
    """`look` is called with the connection that holds the lease; its locks are those of the duties."""

    def __init__(self) -> None:
        self._duties: list[Duty] = []
        self._connection: Any = None

    async def run(self, name: str, work: Work) -> None:
        """Run `work` whenever the duty is this replica's, until the caller is cancelled; raise what it raises."""
        duty = Duty(name, work, asyncio.Event())
        self._duties.append(duty)
        try:
            while True:
                await duty.wanted.wait()
                duty.wanted.clear()
                duty.task = asyncio.create_task(_run(work), name=f"duty {name}")
                await asyncio.wait([duty.task])  # not cancelled with it: `finally` is the place for that
                ended, duty.task = duty.task, None
                if not ended.cancelled():
                    ended.result()
        finally:
            self._duties.remove(duty)
            if duty.task:
                duty.task.cancel()
                await asyncio.wait([duty.task])

    async def look(self, connection: Any) -> None:
        """Take what is free."""
        if connection is not self._connection:
            self.stop()
            self._connection = connection
        for duty in self._duties:
            if duty.task is None and not duty.wanted.is_set() and await connection.fetchval(TRY, duty.name):
                duty.wanted.set()

    def stop(self) -> None:
        """The locks are lost."""
        self._connection = None
        for duty in self._duties:
            duty.wanted.clear()
            if duty.task:
                duty.task.cancel()


async def _run(work: Work) -> None:
    await work()
