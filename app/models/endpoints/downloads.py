"""Downloads of a server's models: each ends as a served model. What fetches them is imported with the first one."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

from app.config.settings import Settings
from app.models.endpoints.registry import EndpointRegistry, ReadOnlyEndpoint
from app.models.serving.refusals import TooLittleMemory, UnfitFile, UnknownServedModel
from app.storage.changes import StoreFailed
from app.storage.data_dir import MODELS
from app.storage.store import Store

if TYPE_CHECKING:
    from app.models.serving.catalogue import ServingOptions
    from app.models.serving.download import Download, DownloadLimits
    from app.models.serving.hub import HubClient, Plan

AT_ONCE = 2

logger = logging.getLogger(__name__)


class Downloads:
    """The downloads by the name of their model: under way, ended, and left behind by a server that was killed."""

    def __init__(self, settings: Settings, store: Store, registry: EndpointRegistry) -> None:
        self._settings, self._store, self._registry = settings, store, registry
        self._folder = settings.data_dir / MODELS
        self._all: dict[str, Download] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._starting = asyncio.Lock()
        if self._folder.is_dir():
            from app.models.serving.download import interrupted

            self._all = {one.name: one for one in interrupted(self._folder)}

    def rows(self) -> list[dict[str, Any]]:
        return [one.fields() for one in self._all.values()]

    def find(self, name: str) -> dict[str, Any] | None:
        """Return a download that has not brought its model."""
        found = self._all.get(name)
        return found.fields() if found and found.state != "done" else None

    async def start(self, source: str, wanted: ServingOptions, by: str, *, serve: bool) -> dict[str, Any]:
        """Find the files of a source and download them in the background. Raises UnfitFile, TooLittleMemory."""
        from app.models.endpoints.served_models import ServedModels, audit
        from app.models.serving.download import Download

        async with self._starting:
            plan = await fetching(self._settings)[0].plan(source)
            name = wanted.name or plan.name
            await ServedModels(self._store, self._settings).check_name(name)
            if same := [one for one in self._all.values() if one.name in self._tasks and one.source == plan.source]:
                same[0].serve |= serve
                return same[0].fields()
            if name in self._tasks or len(self._tasks) >= AT_ONCE:
                running = ", ".join(self._tasks)
                raise UnfitFile(f"{running} are being downloaded: {AT_ONCE} at a time, each under another name. Wait.")
            if serve and not wanted.forced:
                check_room(plan)
            await self._store.write([audit(name, "download started", by, plan.source)])
            others = [one for one in self._all.values() if one.state != "done" and one.source != plan.source]
            self._all = {one.name: one for one in others}
            download = Download(name=name, source=plan.source, folder=plan.folder, serve=serve, total=plan.size)
            self._all[name] = download
            work = self._run(plan, download, wanted, by)
            self._tasks[name] = asyncio.create_task(work, name=f"download {name}")
        return download.fields()

    async def _run(self, plan: Plan, download: Download, wanted: ServingOptions, by: str) -> None:
        from app.models.endpoints.served_models import ServedModels
        from app.models.serving.catalogue import header_of
        from app.models.serving.download import fetch

        models = ServedModels(self._store, self._settings, self._registry)
        try:
            client, limits = fetching(self._settings)
            row = await models.add(await fetch(client, plan, self._folder, limits, download), wanted, by)
            download.model = f"{row.name}/{header_of(row).name}"
            if download.serve:
                await models.serve(row.name, by)
            download.state = "done"
        except (UnfitFile, TooLittleMemory, UnknownServedModel, ReadOnlyEndpoint, StoreFailed) as failure:
            download.state, download.problem = "failed", str(failure)
            logger.warning("model %s not downloaded: %s", download.name, failure)
        finally:
            if download.state in ("downloading", "checking"):
                download.state = "interrupted"
            self._tasks.pop(download.name, None)

    async def cancel(self, name: str, by: str) -> None:
        """End a download, and delete what has come."""
        from app.models.endpoints.served_models import audit
        from app.models.serving.download import discard

        await _end([self._tasks[name]] if name in self._tasks else [])
        if download := self._all.pop(name, None):
            await asyncio.to_thread(discard, self._folder, download)
            await self._store.write([audit(name, "download cancelled", by, download.source)])

    async def aclose(self) -> None:
        """End all; what has come stays for the next start."""
        await _end([*self._tasks.values()])


async def _end(tasks: list[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks)


def fetching(settings: Settings) -> tuple[HubClient, DownloadLimits]:
    """Return what a download needs. Raises UnfitFile where none is allowed."""
    from app.models.serving.download import DownloadLimits
    from app.models.serving.hub import HubClient

    if not settings.model_download_mb:
        raise UnfitFile("No model is downloaded here: model_download_mb is 0. Add the path of a file.")
    token = settings.model_hub_token.get_secret_value() if settings.model_hub_token else ""
    return HubClient(settings.model_hub, token), DownloadLimits(settings.model_download_mb << 20)


def check_room(plan: Plan) -> None:
    """Raise TooLittleMemory, before anything is fetched, if the weights alone are more than the machine has."""
    from app.models.serving.memory import available_memory, mib

    available = available_memory()
    if available is not None and plan.size and plan.size > available:
        sizes = f"{plan.name} has {mib(plan.size)}, and {mib(available)} of memory are available"
        raise TooLittleMemory(f"{sizes}. Choose a smaller model or quantisation, or force it.")
