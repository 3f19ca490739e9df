"""Recovery at the start of a server: every run that the one before has left goes on, or gets its terminal event."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from app.log.event_writer import EventWriter
from app.runs.recovery.takeover import Takeover
from app.runs.run_manager import AgentOf, RunManager
from app.storage.store import Store


@asynccontextmanager
async def recovered(
    store: Store, journal: EventWriter, runs: RunManager, agent_of: AgentOf
) -> AsyncGenerator[Takeover, None]:
    """Recover all runs when a server starts, in the order in which they came. Raises StoreFailed."""
    await runs.documents.load()
    takeover = Takeover(store, journal, runs, agent_of)
    await runs.recover(takeover.resume_run, agent_of)
    yield takeover
    await takeover.close()
