"""The base of all rows and changes, and how they are written."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from msgspec import Struct

RELOAD_EVERY_S = 2.0  # how often rows are reloaded: other processes may change them

logger = logging.getLogger(__name__)


class Change(Struct, frozen=True):
    """A row to insert, or a change of rows: its fields are the columns, in their order.

    Times are Unix times in seconds.
    """


class ChangeWriter(Protocol):
    """The part of a store that writes. Every method of a store raises StoreFailed."""

    async def write(self, changes: Sequence[Change]) -> None:
        """Write all of the changes in one transaction, or none."""


class StoreFailed(Exception):
    """The database could not read or write. The message says what happened and what to do next."""


async def reload_forever(reload: Callable[[], Awaitable[object]], rows: str) -> None:
    """Reload rows periodically; a failure of the store is logged, and the next time comes."""
    while True:
        await asyncio.sleep(RELOAD_EVERY_S)
        try:
            await reload()
        except StoreFailed as failure:
            logger.error("%s not reloaded from the store: %s", rows, failure)


LOST = "lost"  # in place of the id of a replica: none has it, so nothing is written


class LeaseLost(StoreFailed):
    """Other servers hold this one for dead: nothing that it writes is taken, and its runs are another server's."""


class StartsPaused(StoreFailed):
    """The kill switch is on, and the changes start a run or a tool: none of them is written."""
