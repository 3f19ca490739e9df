"""The last phase: what begins runs without a request, and what follows the other servers of the database."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager

from msgspec import Struct

from app.replicas.sharing import Sharing
from app.runs.composition.unattended import UnattendedRuns
from app.runs.digests.jobs import opened_digests
from app.schedules.service import Automation, opened_automation
from routes.sharing import opened_sharing_of
from routes.startup.models import ModelPhase
from routes.startup.run_factory import FactoryPhase
from routes.startup.run_manager import ManagerPhase
from routes.startup.storage import StoragePhase


class SurfacePhase(Struct, frozen=True, kw_only=True):
    automation: Automation
    sharing: Sharing | None


@asynccontextmanager
async def opened_surfaces(
    storage: StoragePhase, manager: ManagerPhase, models: ModelPhase, running: FactoryPhase
) -> AsyncGenerator[SurfacePhase, None]:
    """Raises StoreFailed."""
    factory, notifications = running.factory, manager.notifications
    async with AsyncExitStack() as stack:
        enter = stack.enter_async_context
        automation = await enter(opened_automation(UnattendedRuns(factory), notifications.keys))
        digests = await enter(opened_digests(factory, storage.journal))
        sharing = await enter(
            opened_sharing_of(
                factory,
                registry=models.registry,
                notifications=notifications,
                automation=automation,
                settings=running.runtime_settings,
                presence=running.presence,
                digests=digests,
                vault=storage.vault,
            )
        )
        yield SurfacePhase(automation=automation, sharing=sharing)
