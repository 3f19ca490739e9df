"""The runs of a server: its own, or with a database that servers share, those of all."""

from __future__ import annotations

import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial
from importlib.metadata import version

from app.budget.budgets import Ledger, default_budget
from app.budget.places import SharedPlaces
from app.budget.tallies import StoredTallies
from app.config.settings import Settings
from app.log.event_writer import EventWriter
from app.policy.approvals import Approvals
from app.runs.run_manager import RunManager
from app.storage.kill_switch import KillSwitch
from app.storage.store import Store


@asynccontextmanager
async def opened_runs(
    settings: Settings, store: Store, journal: EventWriter, switch: KillSwitch, approvals: Approvals
) -> AsyncGenerator[RunManager, None]:
    """Hold a lease while the server runs, if it shares its database. Raises StoreFailed."""
    default = default_budget(settings)
    if settings.postgres_url is None:
        yield RunManager(store, journal, switch, approvals, Ledger(store, default))
        return
    # An extra that may not be installed, and 40 ms of a start.
    from app.replicas.postgres.lease import Replica, new_id
    from app.replicas.postgres.peers import opened
    from app.runs.shared.shared_runs import SharedRuns
    from app.storage.postgres.store import PostgresStore

    assert isinstance(store, PostgresStore)
    me = Replica(new_id(), settings.node or socket.gethostname(), version("dragoman"), str(settings.data_dir.resolve()))
    async with opened(settings.postgres_url, me, settings.lease_s) as replicas:
        tallies, places = StoredTallies(store, journal.flush), SharedPlaces(store, replicas)
        ledger = Ledger(store, default, tallies=tallies, places=places)
        runs = SharedRuns(store, journal, switch, approvals, ledger, replicas)
        replicas.begin(runs, partial(setattr, store, "fenced_by"))
        yield runs
