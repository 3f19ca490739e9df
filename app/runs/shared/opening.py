"""The runs of a server: its own, or with a database that servers share, those of all."""

from __future__ import annotations

import socket
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from importlib.metadata import version

from app.budget.budgets import Ledger
from app.budget.places import SharedPlaces
from app.budget.tallies import StoredTallies
from app.config.settings import Settings
from app.log.event_writer import EventWriter
from app.metrics.recorder import Metrics, Reading
from app.metrics.table import FENCED, LEASE_LEFT_SECONDS, TAKEOVERS
from app.policy.approvals import Approvals
from app.runs.run_manager import MakeOutbox, RunManager
from app.storage.kill_switch import KillSwitch
from app.storage.store import Store
from tools.base.tasks import in_background

NODE = "node"  # a file in the data directory


@asynccontextmanager
async def opened_runs(
    settings: Settings,
    *,
    store: Store,
    journal: EventWriter,
    switch: KillSwitch,
    approvals: Approvals,
    make_ledger: Callable[..., Ledger],
    outboxes: Sequence[MakeOutbox],
    metrics: Metrics,
) -> AsyncGenerator[RunManager, None]:
    """Hold a lease while the server runs, if it shares its database. Raises StoreFailed.

    `make_ledger` takes where budgets and places are kept, if the servers keep them together.
    """
    if settings.postgres_url is None:
        yield RunManager(store, journal, switch, approvals, make_ledger(), outboxes=outboxes)
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
        observe_replica(metrics, lambda: replicas.left_s)
        runs = HomingRuns(
            store=store,
            journal=journal,
            switch=switch,
            approvals=approvals,
            ledger=make_ledger(tallies=StoredTallies(store, journal.flush), places=SharedPlaces(store, replicas)),
            replicas=replicas,
            outboxes=outboxes,
            observe_takeover=partial(metrics.add, TAKEOVERS),
        )
        replicas.begin(runs, store.belong_to, store.connections)
        if settings.workspace_shared:
            await replicas.nodes.share()
        watch = HomeWatch(store, journal, replicas, partial(limit_in, default_s=settings.run_time_limit_s))
        async with in_background(replicas.on_duty("waiting runs", watch.watch_forever), "waiting runs"):
            yield runs


def observe_replica(metrics: Metrics, left_s: Callable[[], float]) -> None:
    """Begin the counters of a server that shares its database at zero, and read its lease."""

    def lease_readings() -> Iterator[Reading]:
        yield LEASE_LEFT_SECONDS, (), max(0.0, left_s())

    metrics.add(TAKEOVERS, amount=0)
    metrics.add(FENCED, amount=0)
    metrics.gauges.append(lease_readings)


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
