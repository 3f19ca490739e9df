"""Several servers on one database: a lease, runs and jobs that all can ask for, and memory that follows the others."""

from __future__ import annotations

import socket
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

from app.budget.places import SharedPlaces
from app.budget.tallies import StoredTallies
from app.config.settings import Settings
from app.metrics.recorder import Metrics, Reading
from app.metrics.table import FENCED, LEASE_LEFT_SECONDS, TAKEOVERS
from app.redaction.redactor import Redactor
from app.replicas.changes import ALL, DOCUMENTS, SEALED
from app.replicas.postgres.lease import Replica, new_id
from app.replicas.postgres.peers import PostgresPeers
from app.replicas.secret_store import SecretStore, opened_vault
from app.replicas.sharing import Sharing
from app.runs.run_manager import RunManager
from app.runs.shared.home_watch import HomeWatch, limit_in
from app.runs.shared.shared_jobs import SharedJobs
from app.runs.shared.shared_runs import SharedRuns
from app.storage.postgres.store import PostgresStore
from app.storage.store import Store
from routes.replication.one_server import Held, RunParts
from routes.replication.reloads import END_ALL, SIGNED_IN, answerers_of, reloads_of
from tools.base.tasks import in_background

NODE = "node"  # a file in the data directory


class SeveralServers:
    """A server that shares its database with others."""

    def __init__(self, settings: Settings, store: Store) -> None:
        assert isinstance(store, PostgresStore)
        assert settings.postgres_url
        me = Replica(new_id(), node_of(settings), version("dragoman"), str(settings.own_dir.resolve()))
        self.peers = self.replicas = PostgresPeers(settings.postgres_url, me, settings.lease_s)
        self._sharing = Sharing(self.peers, self.peers.messages)
        self._settings = settings
        self._store = store

    async def opened_vault(self) -> SecretStore | None:
        key = self._settings.secret_key
        secret = key.get_secret_value() if key else None
        return await opened_vault(self._store, secret, on_put=partial(self._changed, SEALED))

    @asynccontextmanager
    async def opened_runs(self, parts: RunParts) -> AsyncGenerator[RunManager, None]:
        """Hold a lease while the server runs."""
        store, journal, replicas, settings = parts.store, parts.journal, self.replicas, self._settings
        async with replicas.opened():
            observe_replica(parts.metrics, lambda: replicas.left_s)
            runs = SharedRuns(
                store,
                journal,
                parts.switch,
                approvals=parts.approvals,
                ledger=parts.make_ledger(
                    tallies=StoredTallies(self._store, journal.flush), places=SharedPlaces(self._store, replicas)
                ),
                replicas=replicas,
                outboxes=parts.outboxes,
                announce_document=partial(self._changed, DOCUMENTS),
                observe_takeover=partial(parts.metrics.add, TAKEOVERS),
            )
            replicas.begin(runs, self._store.belong_to, self._store.connections)
            if settings.workspace_shared:
                await replicas.nodes.share()
            watch = HomeWatch(store, journal, replicas, partial(limit_in, default_s=settings.run_time_limit_s))
            async with in_background(replicas.on_duty("waiting runs", watch.watch_forever), "waiting runs"):
                yield runs

    def jobs(self, folder: Path, redactor: Redactor, **options: Any) -> SharedJobs:
        return SharedJobs(self.replicas, redactor.redact_value, folder, **options)

    @asynccontextmanager
    async def following(self, held: Held) -> AsyncGenerator[None, None]:
        runs, reloads = held.factory.runs, reloads_of(held)
        async with self._sharing.following(runs.notifier, runs.documents.journal.flush):
            self._sharing.reloads.update(reloads)
            self.replicas.answerers.update(answerers_of(held.factory))
            self._store.on_written = self._sharing.written
            try:
                for reload in reloads.values():  # what has changed since it was read first
                    await reload(ALL)
                yield
            finally:
                self._store.on_written = None

    def _changed(self, kind: str, part: str) -> None:
        self._sharing.announce({kind: frozenset({part})})

    async def end_all_elsewhere(self) -> None:
        await self._sharing.ask_others(END_ALL, {})

    async def signed_in_elsewhere(self, state: str, code: str, issuer: str | None) -> str | None:
        name = await self._sharing.first_answer(SIGNED_IN, {"state": state, "code": code, "issuer": issuer})
        return None if name is None else str(name)


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
