"""Registry of endpoints: from the settings, added at run time (in the store), and discovered."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence

from pydantic import ValidationError

from app.core.endpoint_spec import SERVED, EndpointSpec, checked_endpoint_name
from app.models.endpoints.endpoint import Endpoint
from app.models.endpoints.endpoint_factory import EndpointFactory
from app.models.endpoints.key_sources import InvalidKey, check_key
from app.models.http.failures import redact_url
from app.models.providers import provider_kind
from app.models.serving.lazy_pool import Serving
from app.storage.audit import AuditRow
from app.storage.changes import StoreFailed
from app.storage.endpoints import EndpointRemoved, EndpointRow, EndpointStore

logger = logging.getLogger(__name__)


class UnknownEndpoint(Exception):
    """No endpoint has this name."""

    def __init__(self, name: str) -> None:
        super().__init__(f"There is no endpoint {name[:80]!a}. GET /endpoints lists them.")


class ReadOnlyEndpoint(Exception):
    """The endpoint is from the settings or was discovered, and cannot be changed at run time."""


class InvalidEndpoint(Exception):
    """The spec cannot be used. The message says why."""


class EndpointRegistry(Mapping[str, Endpoint]):
    """Endpoints by name, in the order in which a model name is looked up. Call `close()` at the end.

    `unpaused` waits while the server is paused; no server is contacted meanwhile. `serving` runs the models of
    endpoints whose URL is `served:`.
    """

    def __init__(
        self,
        factory: EndpointFactory,
        store: EndpointStore,
        unpaused: Callable[[], Awaitable[None]],
        serving: Serving | None = None,
    ) -> None:
        self.factory = factory
        self.serving = serving
        self._unpaused = unpaused
        self._store = store
        self._set: dict[str, Endpoint] = {}  # from the settings
        self._added: dict[str, Endpoint] = {}
        self._last: dict[str, Endpoint] = {}  # discovered, or built in
        self._rows: dict[str, EndpointRow] = {}
        self._all: dict[str, Endpoint] = {}
        self._tasks: dict[Endpoint, asyncio.Task[None]] = {}
        self._learning = False
        self._changing = asyncio.Lock()

    def __getitem__(self, name: str) -> Endpoint:
        return self._all[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._all)

    def __len__(self) -> int:
        return len(self._all)

    def share(self, servers: int) -> None:
        """Leave other servers of dragoman their part of each endpoint's limit, but for models that this one runs."""
        self.factory.servers = servers
        for endpoint in self._all.values():
            if endpoint.origin != "built in" and not endpoint.spec.url.startswith(SERVED):
                endpoint.server.queue.share(servers)

    def put(self, endpoint: Endpoint) -> None:
        """Add an endpoint that is not in the store."""
        (self._set if endpoint.origin == "settings" else self._last)[endpoint.name] = endpoint
        self._order()

    async def rows(self) -> list[EndpointRow]:
        """Return the rows of the store, those hidden by the settings included. Raises StoreFailed."""
        return await self._store.endpoints()

    async def reload(self) -> None:
        """Reconcile the endpoints with the store. Raises StoreFailed."""
        async with self._changing:
            await self._reload()

    async def _reload(self) -> None:
        rows = {row.name: row for row in await self.rows()}
        if rows == self._rows:
            return
        await self.factory.keys.refresh()
        specs = {name: spec for name, row in rows.items() if (spec := endpoint_spec(row))}
        for name in [name for name in self._added if rows.get(name) != self._rows[name]]:
            self._retire(self._added.pop(name))
        self._rows = rows
        self._added = {
            name: self._added.get(name) or self.factory.create(name, spec, "added")
            for name, spec in specs.items()
            if name not in self._set
        }
        self._order()
        if len(specs) == len(rows):
            await self.factory.keys.sweep(list(specs.values()))

    def _order(self) -> None:
        """Rebuild the mapping: configured and added endpoints come before discovered ones."""
        before = self._all
        self._all = self._set | self._added | {name: one for name, one in self._last.items() if name not in self._added}
        for endpoint in self._all.values():
            if endpoint.problem and before.get(endpoint.name) is not endpoint:
                logger.warning("%s", endpoint.problem)
        if self._learning:
            self.learn()

    def learn(self) -> None:
        """Start to ask the servers for their models."""
        self._learning = True
        for endpoint in self._all.values():
            if endpoint not in self._tasks:
                learning = endpoint.learn_forever(self._unpaused)
                self._tasks[endpoint] = asyncio.create_task(learning, name=f"models of {endpoint.name}")

    def _retire(self, endpoint: Endpoint) -> None:
        """Close the endpoint once the runs that use it have ended."""
        if task := self._tasks.pop(endpoint, None):
            task.cancel()
        self._tasks[endpoint] = retiring = asyncio.create_task(endpoint.retire(), name=f"end of {endpoint.name}")
        retiring.add_done_callback(lambda _: self._tasks.pop(endpoint, None))

    async def add(self, name: str, spec: EndpointSpec, keys: Sequence[str], by: str) -> Endpoint:
        """Add an endpoint, or change one that was added. Raises InvalidEndpoint, ReadOnlyEndpoint, StoreFailed."""
        check_endpoint(name, spec, keys)
        self.factory.redactor.add(*keys)
        async with self._changing:
            if name in self._set:
                raise ReadOnlyEndpoint(f"{name} is in the settings: change it there, or use another name.")
            try:
                files = (await self.factory.keys.keep(name, keys),) if keys else ()
            except OSError as error:
                folder = self.factory.keys.folder
                raise StoreFailed(f"The keys cannot be stored in {folder}: {error.strerror}.") from error
            kept = spec.model_copy(update={"key_file": (*spec.key_file, *files)})
            try:
                await self._store.write([endpoint_row(name, kept, by), audit_row(name, "added", by, kept)])
            except StoreFailed:
                await self.factory.keys.drop(files)
                raise
            await self._reload()
        return self._all[name]

    async def remove(self, name: str, by: str) -> None:
        """Remove an added endpoint. Raises UnknownEndpoint, ReadOnlyEndpoint, StoreFailed."""
        async with self._changing:
            if name not in self._all:
                raise UnknownEndpoint(name)
            if name not in self._added:
                raise ReadOnlyEndpoint(f"{name} was not added at run time: remove it from the settings.")
            await self._store.write([EndpointRemoved(name), audit_row(name, "removed", by)])
            await self._reload()

    async def close(self) -> None:
        """Close all endpoints, retired ones that are still in use included."""
        ending = dict(self._tasks)
        for task in ending.values():
            task.cancel()
        if ending:
            await asyncio.wait(ending.values())
        for endpoint in dict.fromkeys((*ending, *self._set.values(), *self._added.values(), *self._last.values())):
            await endpoint.close()


def check_endpoint(name: str, spec: EndpointSpec, keys: Sequence[str]) -> None:
    """Validate a name, a spec and its keys. Raises InvalidEndpoint."""
    try:
        checked_endpoint_name(name)
        provider_kind(spec.url, spec.format)
        for key in keys:
            check_key(key)
    except InvalidKey as error:
        raise InvalidEndpoint(f"One of the keys {error}.") from None
    except ValueError as error:
        raise InvalidEndpoint(f"{error}.") from None


def endpoint_row(name: str, spec: EndpointSpec, by: str) -> EndpointRow:
    return EndpointRow(name, spec.model_dump_json(exclude_defaults=True), by, time.time())


def endpoint_spec(row: EndpointRow) -> EndpointSpec | None:
    """Return the spec of a row; None, with a log line, if this version cannot read it."""
    try:
        return EndpointSpec.model_validate_json(row.spec)
    except ValidationError:
        logger.error("endpoint %s in the store is invalid; remove it and add it again", row.name)
        return None


def audit_row(name: str, decision: str, by: str, spec: EndpointSpec | None = None) -> AuditRow:
    return AuditRow(time.time(), by, f"endpoint {name}", decision, why=redact_url(spec.url) if spec else "", by=by)
