"""The third phase: the models, and beside them what runs remember: looks at workspaces, and memories."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial

from msgspec import Struct

from app.checkpoints.checkpoints import Checkpoints
from app.checkpoints.process_locks import ProcessLocks
from app.checkpoints.retention import tidy_forever
from app.checkpoints.scratch import SCRATCH
from app.checkpoints.undo import recover as recover_checkpoints
from app.checkpoints.workspace_scans import WorkspaceScans
from app.config.folders import PEOPLE
from app.config.settings import Settings
from app.memory.memories import Memories
from app.memory.startup import opened_memory
from app.models.endpoints.model_registry import Models
from app.models.endpoints.registry import EndpointRegistry
from app.models.endpoints.startup import ChooseProvider, open_models
from app.redaction.redactor import Redactor
from app.replicas.peers import Replicas
from app.runs.run_manager import RunManager
from app.storage.checkpoints import CheckpointStore
from app.storage.database import CHECKPOINTS
from app.storage.store import Store
from app.workspace.scanner import ScanLimits
from routes.startup.storage import StoragePhase
from tools.base.tasks import in_background

LOCKS = "locks"  # of workspaces, in the data directory


class ModelPhase(Struct, frozen=True, kw_only=True):
    models: Models
    registry: EndpointRegistry
    about: str
    looks: WorkspaceScans
    memories: Memories


@asynccontextmanager
async def opened_models(
    settings: Settings, storage: StoragePhase, runs: RunManager, choose: ChooseProvider | None
) -> AsyncGenerator[ModelPhase, None]:
    """Raises SettingsError, StoreFailed."""
    store, redactor, switch = storage.store, storage.redactor, storage.switch
    async with AsyncExitStack() as stack:
        enter = stack.enter_async_context
        opened = await enter(
            open_models(settings, store, redactor, os.environ, choose, switch=switch, vault=storage.vault)
        )
        runs.peers.on_count(opened.registry.share)
        looks = await enter(opened_looks(settings, store, redactor, storage.replication.replicas))
        memories = await enter(
            opened_memory(
                settings,
                store=store,
                models=opened.models,
                ledger=runs.ledger,
                journal=storage.journal,
                switch=switch,
                peers=runs.peers,
            )
        )
        yield ModelPhase(
            models=opened.models, registry=opened.registry, about=opened.about, looks=looks, memories=memories
        )


@asynccontextmanager
async def opened_looks(
    settings: Settings, store: Store, redactor: Redactor, replicas: Replicas | None
) -> AsyncGenerator[WorkspaceScans, None]:
    """The looks at workspaces; if checkpoints are on these, those of a killed server recovered."""
    most = settings.checkpoint_mb << 20
    limits = ScanLimits(
        settings.checkpoint_files, most // 2, settings.checkpoint_file_mb << 20, settings.checkpoint_time_limit_s
    )
    if not settings.checkpoints:
        yield WorkspaceScans(limits, settings.workspace, [PEOPLE], redactor.is_secret_in)
        return
    kept = CheckpointStore(settings.data_dir / CHECKPOINTS)
    checkpoints = Checkpoints(
        kept,
        limits,
        settings.workspace,
        passed_by=[PEOPLE],
        store_bytes=most,
        is_secret=redactor.is_secret_in,
        scratch=settings.data_dir / SCRATCH,
        locks=ProcessLocks(settings.data_dir / LOCKS) if settings.workers > 1 else None,
    )
    await recover_checkpoints(checkpoints, partial(_is_dead, replicas) if replicas and settings.workers > 1 else None)
    try:
        async with in_background(tidy_forever(checkpoints, store.owner_of), "checkpoints"):
            yield checkpoints
    finally:
        kept.close()


async def _is_dead(replicas: Replicas, run: str) -> bool:
    """Return True for a run that no worker has. Raises StoreFailed."""
    owner, has_ended = await replicas.owner_of(run)
    return owner is None or has_ended
