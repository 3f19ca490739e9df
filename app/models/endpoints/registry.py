"""The endpoints of the settings, those that were added at run time and what was found, as one: opened and changed."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence

from pydantic import ValidationError

from app.core.endpoint_spec import EndpointSpec, checked_endpoint_name
from app.models.endpoints.endpoint import Endpoint
from app.models.endpoints.endpoint_factory import Opener
from app.models.endpoints.key_sources import UnfitKey, checked_key
from app.models.http.failures import shown_url
from app.models.providers import kind_of
from app.storage.audit import AuditRow
from app.storage.changes import StoreFailed
from app.storage.endpoints import EndpointRemoved, EndpointRow, EndpointStore

LOOK_EVERY_S = 2.0  # how often it is looked what became of the rows: another process may have changed them

logger = logging.getLogger(__name__)


class NoSuchEndpoint(Exception):
    """No endpoint has this name."""

    def __init__(self, name: str) -> None:
        super().__init__(f"There is no endpoint {name[:80]!a}. GET /endpoints lists them.")


class EndpointOfSettings(Exception):
    """It stands in the settings, or was found at start: it is not changed here."""


class UnfitEndpoint(Exception):
    """It cannot be used. The message says what is wrong with it."""


class Registry(Mapping[str, Endpoint]):
    """By name, in the order in which they are asked for a model that has no other. Use `close()` at the end.

    `unpaused` waits while the server is paused: nothing is learned of endpoints meanwhile.
    """

    def __init__(self, opener: Opener, store: EndpointStore, unpaused: Callable[[], Awaitable[None]]) -> None:
        self.opener = opener
        self._unpaused = unpaused
        self._store = store
        self._set: dict[str, Endpoint] = {}  # by the settings
        self._added: dict[str, Endpoint] = {}
        self._last: dict[str, Endpoint] = {}  # what was found because there was nothing else
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

    def put(self, endpoint: Endpoint) -> None:
        """One that is not in the store."""
        (self._set if endpoint.origin == "settings" else self._last)[endpoint.name] = endpoint
        self._order()

    async def rows(self) -> list[EndpointRow]:
        """What was added at run time, whether it counts or not. Raises StoreFailed."""
        return await self._store.endpoints()

    async def reload(self) -> None:
        """Make it so as the store says. Raises StoreFailed."""
        async with self._changing:
            await self._reload()

    async def _reload(self) -> None:
        rows = {row.name: row for row in await self.rows()}
        if rows == self._rows:
            return
        specs = {name: spec for name, row in rows.items() if (spec := spec_of(row))}
        for name in [name for name in self._added if rows.get(name) != self._rows[name]]:
            self._leave(self._added.pop(name))
        self._rows, self._added = (
            rows,
            {
                name: self._added.get(name) or self.opener.opened(name, spec, "added")
                for name, spec in specs.items()
                if name not in self._set
            },
        )
        self._order()
        if len(specs) == len(rows):
            self.opener.keys.sweep(list(specs.values()))

    def _order(self) -> None:
        """What a person has named comes before what was found."""
        before = self._all
        self._all = self._set | self._added | {name: one for name, one in self._last.items() if name not in self._added}
        for endpoint in self._all.values():
            if endpoint.problem and before.get(endpoint.name) is not endpoint:
                logger.warning("%s", endpoint.problem)
        if self._learning:
            self.learn()

    def learn(self) -> None:
        """From now on the servers are asked which models they have."""
        self._learning = True
        for endpoint in self._all.values():
            if endpoint not in self._tasks:
                learning = endpoint.learn_for_ever(self._unpaused)
                self._tasks[endpoint] = asyncio.create_task(learning, name=f"models of {endpoint.name}")

    def _leave(self, endpoint: Endpoint) -> None:
        """Runs that are under way keep it until they end."""
        if task := self._tasks.pop(endpoint, None):
            task.cancel()
        self._tasks[endpoint] = leaving = asyncio.create_task(endpoint.retire(), name=f"end of {endpoint.name}")
        leaving.add_done_callback(lambda _: self._tasks.pop(endpoint, None))

    async def watch_for_ever(self) -> None:
        """Take in what becomes of the store."""
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            try:
                await self.reload()
            except StoreFailed as failure:
                logger.error("what became of the endpoints could not be taken in: %s", failure)

    async def add(self, name: str, spec: EndpointSpec, keys: Sequence[str], by: str) -> Endpoint:
        """Take in an endpoint, or change one that was added. Raises UnfitEndpoint, EndpointOfSettings, StoreFailed."""
        checked(name, spec, keys)
        self.opener.redactor.add(*keys)
        async with self._changing:
            if name in self._set:
                raise EndpointOfSettings(f"{name} is in the settings: change it there, or use another name.")
            try:
                files = (self.opener.keys.keep(name, keys),) if keys else ()
            except OSError as error:
                raise StoreFailed(f"The keys cannot be kept in {self.opener.keys.folder}: {error.strerror}.") from error
            kept = spec.model_copy(update={"key_file": (*spec.key_file, *files)})
            try:
                await self._store.write([row_of(name, kept, by), audit(name, "added", by, kept)])
            except StoreFailed:
                self.opener.keys.drop(files)
                raise
            await self._reload()
        return self._all[name]

    async def remove(self, name: str, by: str) -> None:
        """Raises NoSuchEndpoint, EndpointOfSettings, StoreFailed."""
        async with self._changing:
            if name not in self._all:
                raise NoSuchEndpoint(name)
            if name not in self._added:
                raise EndpointOfSettings(f"{name} was not added at run time: what names it are the settings.")
            await self._store.write([EndpointRemoved(name), audit(name, "removed", by)])
            await self._reload()

    async def close(self) -> None:
        """All of them, those that were left but are still in use included."""
        ending = dict(self._tasks)
        for task in ending.values():
            task.cancel()
        if ending:
            await asyncio.wait(ending.values())
        for endpoint in dict.fromkeys((*ending, *self._set.values(), *self._added.values(), *self._last.values())):
            await endpoint.close()


def checked(name: str, spec: EndpointSpec, keys: Sequence[str]) -> None:
    """Raises UnfitEndpoint."""
    try:
        checked_endpoint_name(name)
        kind_of(spec.url, spec.format)
        for key in keys:
            checked_key(key)
    except UnfitKey as error:
        raise UnfitEndpoint(f"One of the keys {error}.") from None
    except ValueError as error:
        raise UnfitEndpoint(f"{error}.") from None


def row_of(name: str, spec: EndpointSpec, by: str) -> EndpointRow:
    return EndpointRow(name, spec.model_dump_json(exclude_defaults=True), by, time.time())


def spec_of(row: EndpointRow) -> EndpointSpec | None:
    """None for one that this version cannot read; the log says so."""
    try:
        return EndpointSpec.model_validate_json(row.spec)
    except ValidationError:
        logger.error("the endpoint %s cannot be read; remove it, and add it again", row.name)
        return None


def audit(name: str, decision: str, by: str, spec: EndpointSpec | None = None) -> AuditRow:
    return AuditRow(time.time(), by, f"endpoint {name}", decision, shown_url(spec.url) if spec else "", by)
