"""Work that one server of all does, such as sending what the outbox has."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Protocol

from app.replicas.peers import Peers
from app.storage.changes import StoreFailed
from tools.base.tasks import in_background

AGAIN_S = 5.0  # after the store has failed

logger = logging.getLogger(__name__)


class Attendant(Protocol):
    async def begin(self) -> None:
        """Go on with what the server before has left. Raises StoreFailed."""

    async def rest(self) -> None:
        """Leave it to another server; `begin` may follow."""


@asynccontextmanager
async def attended(peers: Peers, name: str, attendant: Attendant) -> AsyncGenerator[None, None]:
    """Let it work while this is open and this server is the one of all that does. Raises StoreFailed."""
    if peers.is_alone:
        await attendant.begin()
        try:
            yield
        finally:
            await attendant.rest()
        return

    async def work() -> None:
        try:
            await _begun(attendant, name)
            await asyncio.Event().wait()  # until the duty is another server's
        finally:
            await attendant.rest()

    async with in_background(peers.on_duty(name, work), f"duty {name}"):
        yield


async def _begun(attendant: Attendant, name: str) -> None:
    while True:
        try:
            return await attendant.begin()
        except StoreFailed as failure:
            logger.warning("the duty %s begins later, the store failed: %s", name, failure)
        await asyncio.sleep(AGAIN_S)
