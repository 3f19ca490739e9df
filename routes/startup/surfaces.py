"""The last phase: what begins runs without a request, and what follows the other servers of the database."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager

from app.runs.composition.unattended import UnattendedRuns
from app.runs.digests.jobs import opened_digests
from app.schedules.service import Automation, opened_automation
from routes.replication.one_server import Held
from routes.startup.models import ModelPhase
from routes.startup.run_factory import FactoryPhase
from routes.startup.run_manager import ManagerPhase
from routes.startup.storage import StoragePhase


@asynccontextmanager
async def opened_surfaces(
    storage: StoragePhase, manager: ManagerPhase, models: ModelPhase, running: FactoryPhase
) -> AsyncGenerator[Automation, None]:
    """Raises StoreFailed."""
    factory, notifications = running.factory, manager.notifications
    async with AsyncExitStack() as stack:
        enter = stack.enter_async_context
        automation = await enter(opened_automation(UnattendedRuns(factory), notifications.keys))
        digests = await enter(opened_digests(factory, storage.journal))
        held = Held(
            factory=factory,
            registry=models.registry,
            notifications=notifications,
            automation=automation,
            settings=running.runtime_settings,
            presence=running.presence,
            digests=digests,
        )
        await enter(storage.replication.following(held))
        yield automation
