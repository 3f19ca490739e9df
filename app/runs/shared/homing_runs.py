"""As SharedRuns, for servers that do not all have one workspace: the runs of a person are at their home, a node."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from msgspec.structs import replace

from app.replicas.peers import Body
from app.runs.agent import Agent
from app.runs.run_manager import AgentOf, Resume
from app.runs.run_task import RunTask
from app.runs.shared.crossing import CROSSING, refusal_of
from app.runs.shared.homes import HomeAway, begun_at, begun_here
from app.runs.shared.shared_runs import SharedRuns
from app.storage.changes import StoreFailed
from app.storage.principals import Principal
from app.storage.runs import RunRow
from app.transcript.run_request import RunRequest
from tools.process.process_tree import run_shielded

RELEASE_S = 1.0

logger = logging.getLogger(__name__)


class HomingRuns(SharedRuns):
    def __init__(self, **collaborators: Any) -> None:
        super().__init__(**collaborators)
        self._agent_of: AgentOf | None = None
        self._nodes = self.replicas.nodes
        self.replicas.answerers["start"] = self._start_here

    async def recover(self, resume: Resume, agent_of: AgentOf) -> None:
        self._agent_of = agent_of
        await super().recover(resume, agent_of)

    async def start(self, agent: Agent, principal: Principal, turn: RunRequest) -> RunRow:
        """Begin a run where the files of its principal are. Also raises HomeAway."""
        if self._nodes.shares or not agent.keeps_files or turn.helper_of:
            return await super().start(agent, principal, turn)
        self._may_begin()
        if (home := await self._nodes.fix_home(principal.name)) == self._nodes.here:
            return await super().start(agent, principal, turn)
        begun = await begun_at(home, self.replicas, self._store, agent=agent, principal=principal, turn=turn)
        return begun or await super().start(agent, principal, replace(turn, parked=True))

    async def _start_here(self, body: Body) -> Any:
        assert self._agent_of
        try:
            return await begun_here(body, self._nodes, self._agent_of, super().start)
        except CROSSING as error:
            raise refusal_of(error) from error

    async def _start(self, agent: Agent, principal: Principal, turn: RunRequest) -> RunRow:
        row = await super()._start(agent, principal, turn)
        if turn.parked:
            await run_shielded(self._release(row.id))
        return row

    def _begin(self, live: RunTask) -> None:
        if live.turn is None or not live.turn.parked:
            super()._begin(live)
            return
        self._ring(live.row)
        self.ledger.places.leave(live.row.principal, live.row.session)

    async def _release(self, run: str) -> None:
        """Leave a run that is stored to its home, however long the database is away."""
        while True:
            try:
                return await self.replicas.release([run])
            except StoreFailed as failure:
                logger.warning("run %s is not left to its node yet: %s", run, failure)
                await asyncio.sleep(RELEASE_S)

    async def cancel(self, run: str, why: str = "cancelled") -> None:
        if run not in self._live and not self._nodes.shares and await self._nodes.end(run, why):
            await self.ended(run)  # by any server
        else:
            await super().cancel(run, why)

    async def _ask_owner(self, run: str, question: str, body: Body, *, again: bool = True) -> Any:
        if not self._nodes.shares and (away := await self._nodes.waits_for(run)):
            raise HomeAway(away)
        return await super()._ask_owner(run, question, body, again=again)
