"""Schedules and triggers of one server, opened and closed with it."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from msgspec import Struct

from app.notifications.key_files import KeyFiles
from app.replicas.duty import attended
from app.runs.composition.unattended import UnattendedRuns
from app.schedules.scheduler import Scheduler
from app.schedules.starts import Starts
from app.schedules.triggers import Triggers


class Automation(Struct, frozen=True):
    """Everything that begins runs without a request of a person."""

    starts: Starts
    scheduler: Scheduler
    triggers: Triggers


@asynccontextmanager
async def opened_automation(unattended: UnattendedRuns, keys: KeyFiles) -> AsyncGenerator[Automation, None]:
    """Begins what was due while the server was off. Raises StoreFailed."""
    factory = unattended.factory
    starts = Starts(unattended)
    scheduler = Scheduler(starts)
    factory.switch.on_change(scheduler.wake)
    async with attended(factory.runs.peers, "schedules", scheduler):
        yield Automation(starts, scheduler, Triggers(starts, keys))
