"""The time of background jobs counts as time of tools: taken while they run, so that many jobs cannot overdraw."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress

from app.budget.budgets import Ledger
from app.budget.kinds import TOOL_SECONDS, BudgetSpent
from app.budget.run_budget import SLICE_S, ToolTime
from app.budget.tallies import Record
from app.storage.changes import StoreFailed
from app.storage.principals import Principal
from app.transcript.run_request import NotFound
from tools.base.tasks import wait_at_most
from tools.jobs.manager import Jobs
from tools.jobs.records import Job, JobsFailed

LOOK_S = 1.0  # shorter than the time by which a slice is taken early

_log = logging.getLogger(__name__)


class JobTime:
    """`somebody` finds a principal with the rights of today, by name; it raises NotFound."""

    def __init__(self, jobs: Jobs, ledger: Ledger, record: Record, somebody: Callable[[str], Awaitable[Principal]]):
        self._jobs = jobs
        self._ledger = ledger
        self._record = record
        self._somebody = somebody

    async def count(self, job: Job, ended: asyncio.Event) -> None:
        """Meter a job until it or this server ends (for `Jobs.open`). Cancel a job with no time left."""
        try:
            principal = await self._somebody(job.principal)
            held = await self._ledger.reserve(principal, TOOL_SECONDS, self._record, min(job.time_limit_s, SLICE_S))
            with ToolTime(held, job.time_limit_s) as running:
                while not ended.is_set():
                    await running.go_on()
                    await wait_at_most(LOOK_S, ended)
        except NotFound:
            return  # who may not be here any more is shown out, with their jobs
        except (BudgetSpent, StoreFailed) as reason:
            _log.warning("cancelling job %s, no tool time left in the budget: %s", job.id, reason)
            with suppress(JobsFailed):  # forgotten meanwhile
                await self._jobs.cancel(job.id, job.principal)
