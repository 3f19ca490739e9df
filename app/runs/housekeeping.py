"""Housekeeping of the database: compact old logs, delete old sessions and keys, expired sign-ins and links."""

from __future__ import annotations

import asyncio
import logging
import time

from msgspec import Struct

from app.core.settings_fields import DAY_S
from app.log.log_compaction import joined_rows
from app.storage.changes import StoreFailed
from app.storage.library.shares import SharesExpired
from app.storage.people.sign_ins import SignInsExpired
from app.storage.runs import ALL, KEY_LIFE_S
from app.storage.store import Store

EVERY_S = 60.0
RUNS_AT_ONCE = 64
logger = logging.getLogger(__name__)


class Housekeeping(Struct, frozen=True):
    """`join_after_s`: how long after its run's end a log is joined. `keep_days`, `audit_days`: 0 keeps for ever."""

    store: Store
    join_after_s: float
    keep_days: int
    audit_days: int = 0

    async def run_forever(self) -> None:
        """Tidy once a minute; a store that fails is tried again."""
        while True:
            await asyncio.sleep(EVERY_S)
            try:
                await self.tidy(time.time())
            except StoreFailed as failure:
                logger.warning("housekeeping failed, retrying later: %s", failure)

    async def tidy(self, now: float) -> None:
        while runs := await self.store.bulky_runs(now - self.join_after_s, RUNS_AT_ONCE):
            for run in runs:
                rows = await self.store.events(run, 0, ALL)
                await self.store.replace_events(run, await asyncio.to_thread(joined_rows, rows))
        sessions = now - self.keep_days * DAY_S if self.keep_days else 0.0
        await self.store.forget_before(sessions, now - KEY_LIFE_S)
        await self.store.write([SignInsExpired(now), SharesExpired(now)])
        if self.audit_days:
            await self.store.forget_audit(now - self.audit_days * DAY_S)
