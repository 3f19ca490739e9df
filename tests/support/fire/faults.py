"""What befalls the servers, by a seed: a planned restart every so often, and something else in between."""

from __future__ import annotations

import asyncio
import itertools
import random
import signal
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from msgspec import Struct

from tests.support.fire.servers import Stage, until_healed
from tests.support.replicas.servers import passed

RESTART = "planned restart"
FROZEN, STALLED = 1.8, 1.5  # leases


class Done(Struct):
    """A fault that has been."""

    name: str
    who: str
    start: float
    took_s: float = 0.0  # of a restart: until the old process had ended


@dataclass(frozen=True, slots=True)
class Fire:
    stage: Stage
    lease_s: float
    starter: Executor  # its thread stays: a database ends with the one that has started it

    async def kill(self, node: int) -> None:
        await self.stage.members[node].kill()

    async def freeze(self, node: int) -> None:
        self.stage.members[node].send(signal.SIGSTOP)
        await passed(FROZEN * self.lease_s)
        self.stage.members[node].send(signal.SIGCONT)

    async def restart_database(self, node: int, mode: str = "fast") -> None:
        for step in (partial(self.stage.postgres.stop, mode), self.stage.postgres.start):
            await asyncio.get_running_loop().run_in_executor(self.starter, step)

    async def crash_database(self, node: int) -> None:
        await self.restart_database(node, "immediate")

    async def stall_database(self, node: int) -> None:
        self.stage.database_link.stall()
        await passed(STALLED * self.lease_s)
        self.stage.database_link.mend()

    async def stall_clients(self, node: int) -> None:
        self.stage.http_link.stall()
        await passed(STALLED * self.lease_s)
        self.stage.http_link.mend()


FAULTS: Mapping[str, Callable[[Fire, int], Awaitable[None]]] = {
    "kill -9": Fire.kill,
    "frozen past the lease": Fire.freeze,
    "database: fast restart": Fire.restart_database,
    "database: crash": Fire.crash_database,
    "stalled to the database": Fire.stall_database,
    "stalled to nginx": Fire.stall_clients,
}
PLACES = {"stalled to the database": 1, "stalled to nginx": 2}


def schedule(seed: int) -> Iterator[tuple[str, int]]:
    """Faults and servers: each fault once before any comes again."""
    chance = random.Random(seed)
    while True:
        names = list(FAULTS)
        chance.shuffle(names)
        for name in names:
            yield name, PLACES.get(name, chance.randrange(3))


async def rage(fire: Fire, new: Path, seed: int, every_s: float, until: float, begun: Callable[[Done], None]) -> None:
    """Replace a server every so often, and do something else in between, until that time."""
    members, start = fire.stage.members, time.monotonic()
    faults = schedule(seed)
    for turn in itertools.count():
        due = max(start + turn * every_s, time.monotonic())
        if due >= until:
            return
        await passed(due - time.monotonic())
        await until_healed(fire.stage)
        member = members[turn % len(members)]
        begun(done := Done(RESTART, member.node, time.monotonic()))
        done.took_s = await member.replace(new)
        begun(done)
        await passed(max(due + every_s / 2 - time.monotonic(), 0))
        if time.monotonic() < until:
            await until_healed(fire.stage)
            name, node = next(faults)
            begun(Done(name, "" if name.startswith("database") else members[node].node, time.monotonic()))
            await FAULTS[name](fire, node)
