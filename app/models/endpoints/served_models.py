"""Model files of this machine: added, served as an endpoint, stopped and removed.

A model is served while the store has an endpoint of its name with the URL `served:NAME`: a running server takes it in
as it takes in every endpoint, whichever process has written it.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec.structs import asdict, replace

from app.config.model_settings import DEFAULT
from app.config.settings import Settings
from app.core.endpoint_spec import SERVED
from app.models.endpoints.registry import EndpointRegistry, ReadOnlyEndpoint, endpoint_row, endpoint_spec
from app.models.serving.catalogue import (
    MOST_MODELS,
    ServingOptions,
    check_memory,
    check_unchanged,
    checked_name,
    checked_row,
    estimate_of,
    files_in,
    header_of,
    served_spec,
)
from app.models.serving.gguf import SPLIT_NAME
from app.models.serving.memory import MIB, available_memory
from app.models.serving.pool import Member, ModelPool
from app.models.serving.refusals import UnfitFile, UnknownServedModel
from app.storage.audit import AuditRow
from app.storage.changes import Change
from app.storage.data_dir import MODELS
from app.storage.endpoints import EndpointRemoved, EndpointRow
from app.storage.served_models import ServedModelRemoved, ServedModelRow
from app.storage.store import Store

LOG_CHARACTERS = 20_000


class ServedModels:
    """The models of a store. With the `registry` of a running server, changes take effect at once.

    Methods raise UnfitFile, TooLittleMemory, UnknownServedModel, ReadOnlyEndpoint and StoreFailed.
    """

    def __init__(self, store: Store, settings: Settings, registry: EndpointRegistry | None = None) -> None:
        self._store = store
        self._settings = settings
        self._registry = registry

    async def rows(self) -> list[ServedModelRow]:
        return await self._store.served_models()

    async def row(self, name: str) -> ServedModelRow:
        row = next((row for row in await self.rows() if row.name == name), None)
        if row is None:
            raise UnknownServedModel(name)
        return row

    async def add(self, file: Path, wanted: ServingOptions, by: str, *, serve: bool = False) -> ServedModelRow:
        """Check a file and add it, or add it again as it is now wanted; one that is served is then served so."""
        row = await asyncio.to_thread(checked_row, file, wanted, by, self._settings.workspace)
        rows = {one.name for one in await self.rows()}
        if len(rows | {row.name}) > MOST_MODELS:
            raise UnfitFile(f"{MOST_MODELS} models are added, which is the most. Remove one first.")
        endpoint = await self._endpoint(row.name)
        changes: list[Change] = [row, audit(row.name, "added", by, row.path)]
        if serve or endpoint:
            self.check_memory(row)
            changes.append(endpoint_row(row.name, served_spec(row), by))
        await self._write(changes)
        return row

    async def check_name(self, name: str) -> None:
        """Raise UnfitFile or ReadOnlyEndpoint if a model cannot have this name."""
        await self._endpoint(checked_name(name))

    async def serve(self, name: str, by: str, *, at_start: bool | None = None, forced: bool = False) -> ServedModelRow:
        """Make an endpoint of a model; a running server starts it in the background."""
        row = await self.row(name)
        await self._endpoint(name)
        row = replace(row, at_start=row.at_start if at_start is None else at_start, forced=row.forced or forced)
        check_unchanged(row)
        self.check_memory(row)
        await self._write([row, endpoint_row(name, served_spec(row), by), audit(name, "served", by, row.path)])
        if member := self._member(name):
            member.begin(only_at_start=False)
        return row

    async def stop(self, name: str, by: str) -> ServedModelRow:
        """Remove the endpoint of a model; its process ends once no run uses it."""
        row = await self.row(name)
        if await self._endpoint(name):
            await self._write([EndpointRemoved(name), audit(name, "stopped", by, row.path)])
        return row

    async def remove(self, name: str, by: str) -> bool:
        """Forget a model; return whether its file was deleted: a downloaded one is, if no other model uses it."""
        row = await self.row(name)
        served: list[Change] = [EndpointRemoved(name)] if await self._served_endpoint(name) else []
        await self._write([*served, ServedModelRemoved(name), audit(name, "removed", by, row.path)])
        used = {one.path for one in await self.rows()}
        files = [] if row.path in used else self._downloaded(row)
        for file in files:
            await asyncio.to_thread(file.unlink, missing_ok=True)
        return bool(files)

    def _downloaded(self, row: ServedModelRow) -> list[Path]:
        """Return the files of a model that was downloaded; others belong to the person who added them."""
        path = Path(row.path)
        if not path.is_relative_to(os.path.realpath(self._settings.data_dir / MODELS)):
            return []
        part = SPLIT_NAME.fullmatch(path.name)
        return [*path.parent.glob(f"{part[1]}-*-of-{part[3]}.gguf")] if part else [path]

    def check_memory(self, row: ServedModelRow) -> None:
        if self._pool:
            return self._pool.check_memory(row)
        budget, free = self._settings.model_memory_mb * MIB, available_memory()
        return check_memory(row, min(budget, free or budget) if budget else free)

    async def _served_endpoint(self, name: str) -> EndpointRow | None:
        """Return the endpoint of a model that is served."""
        row = next((row for row in await self._store.endpoints() if row.name == name), None)
        spec = endpoint_spec(row) if row else None
        return row if spec and spec.url == f"{SERVED}{name}" else None

    async def _endpoint(self, name: str) -> EndpointRow | None:
        """As `_served_endpoint`; raises ReadOnlyEndpoint if the name is that of another endpoint."""
        served = await self._served_endpoint(name)
        taken = {*self._settings.endpoints, *([DEFAULT] if self._settings.model_url else ())}
        if not served:
            taken |= {row.name for row in await self._store.endpoints()}
        if name in taken:
            raise ReadOnlyEndpoint(f"Another endpoint is called {name}: add the file with another --name.")
        return served

    async def _write(self, changes: list[Change]) -> None:
        await self._store.write(changes)
        if self._registry:
            await self._registry.reload()

    async def overview(self) -> dict[str, Any]:
        """Return all models, the memory, and the files that could be added over HTTP."""
        specs = {row.name: endpoint_spec(row) for row in await self._store.endpoints()}
        served = {name for name, spec in specs.items() if spec and spec.url == f"{SERVED}{name}"}
        rows = await self.rows()
        folders = self._settings.model_folders
        return {
            "models": [self.status(row, served=row.name in served) for row in rows],
            "memory": {"available": available_memory(), "budget": self._settings.model_memory_mb * MIB or None},
            "folders": list(folders),
            "files": await asyncio.to_thread(files_in, folders),
        }

    async def details(self, name: str) -> dict[str, Any]:
        """Return a model with the end of its process's log."""
        row = await self.row(name)
        member = self._member(name)
        log = member.process.log.decode("utf-8", "replace") if member and member.process else ""
        served = bool(await self._served_endpoint(name))
        return {**self.status(row, served=served), "log": log[-LOG_CHARACTERS:]}

    def status(self, row: ServedModelRow, *, served: bool) -> dict[str, Any]:
        header, need = header_of(row), estimate_of(row)
        model: dict[str, Any] = {
            "name": row.name,
            "file": row.path,
            "downloaded": bool(self._downloaded(row)),
            "model": header.name,
            "architecture": header.architecture,
            "quantisation": header.quantisation or None,
            "trained_context": header.context or None,
            "template": header.template,
            "context": row.context,
            "slots": row.slots,
            "cache_type": row.cache_type,
            "threads": row.threads or None,
            "at_start": row.at_start,
            "forced": row.forced,
            "memory": {**asdict(need), "total": need.bytes},
            "by": row.by,
            "at": row.at,
        }
        return model | self._state(row.name, served=served)

    def _state(self, name: str, *, served: bool) -> dict[str, Any]:
        """Return the state (off, asleep, starting, ready or failed), and what there is to say of the process."""
        member = self._member(name) if served else None
        process = member.process if member else None
        return {
            "state": member.state if member else "asleep" if served else "off",
            "problem": member.problem or None if member else None,
            "pid": process.pid if process else None,
            "restarts": process.deaths if process else 0,
            "in_use": member.users if member else 0,
        }

    def _member(self, name: str) -> Member | None:
        return self._pool.find(name) if self._pool else None

    @property
    def _pool(self) -> ModelPool | None:
        return self._registry.serving.pool if self._registry and self._registry.serving else None


def audit(name: str, decision: str, by: str, path: str) -> AuditRow:
    return AuditRow(time.time(), by, f"served model {name}", decision, why=path, by=by)


def wanted_of(fields: Mapping[str, Any]) -> ServingOptions:
    """Return the wish of a command or request; fields that are None keep their defaults."""
    return ServingOptions(**{name: value for name, value in fields.items() if value is not None})
