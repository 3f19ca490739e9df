"""The runs of a server: its own, or with a database that servers share, those of all."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
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

NODE = "node"  # a file in the data directory


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
    from app.runs.shared.home_watch import HomeWatch, limit_in
    from app.runs.shared.homing_runs import HomingRuns
    from app.storage.postgres.store import PostgresStore

    assert isinstance(store, PostgresStore)
    me = Replica(new_id(), node_of(settings), version("dragoman"), str(settings.data_dir.resolve()))
    async with opened(settings.postgres_url, me, settings.lease_s) as replicas:
        tallies, places = StoredTallies(store, journal.flush), SharedPlaces(store, replicas)
        ledger = Ledger(store, default, tallies=tallies, places=places)
        runs = HomingRuns(store, journal, switch, approvals, ledger, replicas)
        replicas.begin(runs, store.belong_to, store.connections)
        if settings.workspace_shared:
            await replicas.nodes.share()
        watch = HomeWatch(store, journal, replicas, partial(limit_in, default_s=settings.run_time_limit_s))
        watching = asyncio.create_task(replicas.on_duty("waiting runs", watch.watch_forever), name="waiting runs")
        try:
            yield runs
        finally:
            watching.cancel()
            await asyncio.wait([watching])


def node_of(settings: Settings) -> str:
    """The name of this node: that of the settings, else the host name of the server's first start on this data.

    A container that is made anew has another host name, and the workspace of before.
    """
    if settings.node:
        return settings.node
    kept = settings.data_dir / NODE
    with suppress(OSError, UnicodeError):
        if name := kept.read_text().strip():
            return name
    name = socket.gethostname()
    kept.write_text(f"{name}\n")
    return name
