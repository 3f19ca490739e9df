"""The first phase: the data directory, the database and its one writer, and what is read of it before all else."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path

from msgspec import Struct

from app.config.folders import lock_data_dir
from app.config.settings import Settings
from app.log.event_writer import EventWriter
from app.metrics.recorder import Metrics
from app.metrics.table import COMMIT_SECONDS
from app.redaction.logs import redacted_logs
from app.redaction.redactor import Redactor, secrets_in
from app.replicas.secret_store import SecretStore
from app.runs.composition.server_metrics import count_failure
from app.secrets.library import Secrets
from app.secrets.sources import SecretSources
from app.storage.changes import reload_forever
from app.storage.database import DATABASE, open_store
from app.storage.kill_switch import KillSwitch
from app.storage.store import Store
from routes.replication.one_server import OneServer, Replication
from tools.base.tasks import in_background

LEAVES_S = 10.0  # for the end of a server, beside what the settings give it

OpenStore = Callable[[Path], Awaitable[Store]]


class StoragePhase(Struct, frozen=True, kw_only=True):
    redactor: Redactor
    store: Store
    switch: KillSwitch
    replication: Replication
    vault: SecretStore | None
    secrets: Secrets
    metrics: Metrics
    journal: EventWriter


@asynccontextmanager
async def opened_storage(settings: Settings, open_database: OpenStore | None) -> AsyncGenerator[StoragePhase, None]:
    """Raises StoreFailed."""
    async with AsyncExitStack() as stack:
        redactor = Redactor(secrets_of(settings))
        stack.enter_context(redacted_logs(redactor))
        # The worker of a parent that has died may still drain.
        leaves_s = settings.drain_delay_s + settings.shutdown_grace_s + LEAVES_S if settings.workers > 1 else 0.0
        stack.enter_context(lock_data_dir(settings.own_dir, leaves_s))
        open_database = open_database or partial(open_store, url=settings.postgres_url)
        store = await open_database(settings.data_dir / DATABASE)
        stack.push_async_callback(store.close)
        switch = KillSwitch(store)
        await switch.load()
        replication = replication_of(settings, store)
        vault = await replication.opened_vault()
        secrets = Secrets(store, SecretSources.of(settings, os.environ), redactor)
        await secrets.reload()
        await stack.enter_async_context(in_background(reload_forever(secrets.reload, "secrets"), "secrets"))
        metrics = Metrics()
        writer = EventWriter(
            store,
            redactor,
            documents=settings.documents,
            spacing_s=store.spacing_s,
            observe_commit=metrics.histogram(COMMIT_SECONDS).observe,
            observe_failure=partial(count_failure, metrics),
        )
        journal = await stack.enter_async_context(writer)
        yield StoragePhase(
            redactor=redactor,
            store=store,
            switch=switch,
            replication=replication,
            vault=vault,
            secrets=secrets,
            metrics=metrics,
            journal=journal,
        )


def replication_of(settings: Settings, store: Store) -> Replication:
    if settings.postgres_url is None:
        return OneServer()
    from routes.replication.several_servers import SeveralServers  # the driver is an extra, and 40 ms of a start

    return SeveralServers(settings, store)


def secrets_of(settings: Settings) -> list[str]:
    """Secrets that no answer, log or database may hold; access tokens are known by their shape."""
    keys = (
        *(settings.model_key, settings.search_key, settings.memory_embeddings_key),
        *(settings.metrics_token, settings.model_hub_token),
    )
    given = [key.get_secret_value() for key in keys if key]
    return [*secrets_in(os.environ), *given, *settings.database_secrets]
