"""The limit of a principal's background jobs, which servers that share a database keep together."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager

from msgspec import Struct

from app.replicas.peers import Body, Refusal, ReplicaGone, Replicas
from app.storage.changes import StoreFailed
from tools.jobs.manager import Jobs
from tools.jobs.records import JobsFailed

QUESTION = "running_jobs"
LOCK = "jobs"


class JobLimit(Struct):
    """Counts what other servers run now, while none of them starts a job of the principal.

    The jobs of a server that has stopped count again once it is back.
    """

    jobs: Jobs
    replicas: Replicas

    def share(self) -> None:
        self.replicas.answerers[QUESTION] = self._running_here
        self.jobs.elsewhere = self.elsewhere

    @asynccontextmanager
    async def elsewhere(self, principal: str) -> AsyncGenerator[int, None]:
        async with AsyncExitStack() as stack:
            try:
                await stack.enter_async_context(self.replicas.lock(LOCK, principal))
                others = await self.replicas.others()
                counts = await asyncio.gather(*(self._running_at(other, principal) for other in others))
            except StoreFailed as failure:
                raise JobsFailed(str(failure)) from failure
            yield sum(counts)

    async def _running_at(self, replica: str, principal: str) -> int:
        try:
            return int(await self.replicas.ask(replica, QUESTION, {"principal": principal}))
        except (ReplicaGone, Refusal):  # one of an older version does not know the question
            return 0

    async def _running_here(self, body: Body) -> int:
        return len(self.jobs.running(body["principal"]))
