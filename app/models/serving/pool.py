"""The served models of one server: their processes share a memory budget.

A model starts with the first request that needs it. If memory is too short for it, idle models stop, the least recently
used one first; models that answer are waited for. A model without requests for `idle_s` stops by itself, unless its row
says that it starts with the server. The process of a model dies with this one.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress

from msgspec.structs import replace

from app.core.provider import ProviderFailed
from app.models.embedded.supervisor import ModelProcess, generating_threads, usable_cores
from app.models.serving.catalogue import check_memory, check_unchanged, estimate_of
from app.models.serving.memory import MIB, Estimate, available_memory
from app.models.serving.refusals import TooLittleMemory, UnfitFile
from app.storage.changes import StoreFailed
from app.storage.served_models import ServedModelRow, ServedModelStore

WAIT_S = 60.0  # for another model to end its answers

logger = logging.getLogger(__name__)
START_LIMIT_S = 600.0  # to read tens of gigabytes from a slow disk


class ModelPool:
    """`memory_mb` for all models together, 0 for what the machine has; `idle_s` until one stops, 0 for never.

    `available` returns the bytes that may still be taken, None if unknown. While `unpaused` waits, none starts.
    """

    def __init__(
        self,
        store: ServedModelStore,
        memory_mb: int = 0,
        idle_s: float = 900.0,
        *,
        unpaused: Callable[[], Awaitable[None]] | None = None,
        available: Callable[[], int | None] = available_memory,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.now = now
        self.unpaused = unpaused
        self._memory_mb = memory_mb
        self._idle_s = idle_s
        self._store = store
        self._available = available
        self._members: list[Member] = []
        self._starting = asyncio.Lock()
        self._released = asyncio.Condition()
        self._timer: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    def member(self, name: str, model: str) -> Member:
        """Return a new member: the model of an endpoint. Close it at the end."""
        member = Member(self, name, model)
        self._members.append(member)
        return member

    def find(self, name: str) -> Member | None:
        """Return the latest member of that name."""
        return next((member for member in reversed(self._members) if member.name == name), None)

    async def row(self, name: str) -> ServedModelRow:
        """Return the row of a model. Raises ProviderFailed."""
        try:
            rows = await self._store.served_models()
        except StoreFailed as failed:
            raise ProviderFailed("model_down", str(failed), retryable=True) from failed
        for row in rows:
            if row.name == name:
                return row
        message = f"No model {name!a} was added. Add its file with `dragoman model add`, or remove the endpoint."
        raise ProviderFailed("model_missing", message, retryable=False)

    async def launch(self, member: Member) -> str:
        """Start the process of a member in use, once there is room for it; return its URL. Raises ProviderFailed."""
        if url := member.url:
            return url
        async with self._starting:
            if member.process is None or member.process.failed:
                row = await self.row(member.name)
                await self._make_room(member, row)
                member.replace(row)
            assert member.process
            url = await member.process.start()
        self._plan_stop()
        return url

    async def _make_room(self, member: Member, row: ServedModelRow) -> None:
        """Stop idle members until the model fits, and wait for busy ones. Raises ProviderFailed."""
        deadline = asyncio.get_running_loop().time() + WAIT_S
        while True:
            running = [one for one in self._members if one is not member and one.running]
            busy, idle = [one for one in running if one.users], [one for one in running if not one.users]
            try:
                check_memory(row, self._room(busy, idle), [one.name for one in busy])
                break
            except TooLittleMemory as short:
                if not busy or not await self._any_released(deadline):
                    raise ProviderFailed("model_memory", str(short), retryable=False) from None
        for one in sorted(idle, key=lambda one: one.last_used):
            with suppress(TooLittleMemory):  # a forced one takes what idle ones give back, too
                staying = [other for other in self._members if other is not member and other.running]
                check_memory(replace(row, forced=False), self._room(staying, []))
                return
            if one.users:  # since the last look: another model was being stopped
                await self._make_room(member, row)
                return
            logger.warning("model %s stops: its memory is needed for %s", one.name, member.name)
            await one.stop()

    def _room(self, staying: list[Member], leaving: list[Member]) -> int | None:
        """Return the bytes for another model beside those that stay, once the others have left.

        The weights of running models are mapped files, which the system counts as available although they are in use.
        """
        free = self._available()
        if free is not None:
            free -= sum(one.need.weights for one in staying)
            free += sum(one.need.bytes - one.need.weights for one in leaving)
        if not self._memory_mb:
            return free
        left = self._memory_mb * MIB - sum(one.need.bytes for one in staying)
        return left if free is None else min(left, free)

    def check_memory(self, row: ServedModelRow) -> None:
        """Raise TooLittleMemory if the model would not fit even if no other ran."""
        check_memory(row, self._room([], [one for one in self._members if one.running and one.name != row.name]))

    async def _any_released(self, deadline: float) -> bool:
        try:
            async with asyncio.timeout_at(deadline), self._released:
                await self._released.wait()
        except TimeoutError:
            return False
        return True

    async def released(self) -> None:
        """A member has ended an answer."""
        async with self._released:
            self._released.notify_all()
        self._plan_stop()

    def _plan_stop(self) -> None:
        """Look again when the next idle model is due; nothing is planned while none runs."""
        due = [one.last_used + self._idle_s for one in self._members if one.may_idle]
        if self._idle_s and due and self._timer is None:
            delay = max(1.0, min(due) - self.now())
            self._timer = asyncio.get_running_loop().call_later(delay, self._due)

    def _due(self) -> None:
        self._timer = None
        task = asyncio.ensure_future(self.stop_idle())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def stop_idle(self) -> None:
        """Stop the models that have had no request for `idle_s`."""
        for one in list(self._members):
            if one.may_idle and self.now() >= one.last_used + self._idle_s:
                logger.info("model %s stops: it was idle for %g s", one.name, self._idle_s)
                await one.stop()
        self._plan_stop()

    def leave(self, member: Member) -> None:
        """Remove a member that has been stopped."""
        if member in self._members:
            self._members.remove(member)
        if not self._members and self._timer:
            self._timer.cancel()
            self._timer = None


class Member:
    """One model of the pool, used by one endpoint."""

    def __init__(self, pool: ModelPool, name: str, model: str) -> None:
        self.name = name
        self.model = model
        self.process: ServedProcess | None = None
        self.need = Estimate(0, 0, 0)
        self.users = 0
        self.last_used = pool.now()
        self.problem = ""
        self._stays = False
        self._pool = pool
        self._beginning: asyncio.Task[None] | None = None

    @property
    def running(self) -> bool:
        return self.process is not None and not self.process.failed

    @property
    def may_idle(self) -> bool:
        """True if it could be stopped when it is idle for long."""
        return self.running and not self.users and not self._stays

    @property
    def url(self) -> str | None:
        """The base URL of the running process."""
        return self.process.url if self.process else None

    @property
    def state(self) -> str:
        if self.problem or (self.process and self.process.failed):
            return "failed"
        if self.process is None:
            return "asleep"
        return "ready" if self.process.url else "starting"

    def replace(self, row: ServedModelRow) -> None:
        """Take a new process for this row."""
        self.process = ServedProcess(row, self.model)
        self.need = estimate_of(row)
        self._stays = row.at_start

    @asynccontextmanager
    async def use(self) -> AsyncGenerator[str, None]:
        """The URL of the running server, which is not stopped before the end. Raises ProviderFailed."""
        self.users += 1
        try:
            try:
                url = await self._pool.launch(self)
                self.problem = ""
            except ProviderFailed as failure:
                self.problem = failure.message
                raise
            yield url
        finally:
            self.users -= 1
            self.last_used = self._pool.now()
            await self._pool.released()

    async def successor(self, url: str) -> str | None:
        """Return the URL of the process that replaces the one at `url`; None if that one is still alive."""
        return await self.process.successor(url) if self.process else None

    def begin(self, *, only_at_start: bool) -> None:
        """Start in the background; with `only_at_start` if the row says that the model starts with the server."""
        if self._beginning:
            self._beginning.cancel()
        self._beginning = asyncio.create_task(self._begin(only_at_start), name=f"start of {self.name}")

    async def _begin(self, only_at_start: bool) -> None:
        if self._pool.unpaused:
            await self._pool.unpaused()
        try:
            if only_at_start and not (await self._pool.row(self.name)).at_start:
                return
            async with self.use():
                logger.info("model %s runs", self.name)
        except ProviderFailed as failure:
            logger.warning("model %s not started: %s", self.name, failure.message)

    async def stop(self) -> None:
        """End the process; the next request starts another one."""
        process, self.process = self.process, None
        if process:
            await process.close()

    async def close(self) -> None:
        if self._beginning:
            self._beginning.cancel()
            await asyncio.wait([self._beginning])
        await self.stop()
        self._pool.leave(self)


class ServedProcess(ModelProcess):
    """A ModelProcess of a served model, called `model`."""

    start_limit_s = START_LIMIT_S

    def __init__(self, row: ServedModelRow, model: str) -> None:
        super().__init__(f"model {row.name}", "`dragoman model list` has its file; GET /served-models the whole log.")
        self._row = row
        self._model = model

    def _options(self) -> Mapping[str, object]:
        try:
            check_unchanged(self._row)
        except UnfitFile as unfit:
            raise ProviderFailed("model_missing", str(unfit), retryable=False) from None
        return {
            "weights": self._row.path,
            "name": self._model,
            "context": self._row.context,
            "slots": self._row.slots,
            "threads": self._row.threads or generating_threads(),
            "prompt-threads": self._row.threads or usable_cores(),
            "cache-type": self._row.cache_type,
        }
