"""Delivers what the outbox has, a task for each target as long as something is pending for it.

So a slow or failing target delays no other. An attempt is repeated with the same id until the target has accepted it or
MOST_ATTEMPTS were made; a target without a success for days is disabled. If the server dies during an attempt, it is
made again: receivers know a message by its id.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from http import HTTPStatus

from msgspec import Struct
from msgspec.structs import replace

from app.core.settings_fields import DAY_S
from app.notifications.backoff import DISABLED_AFTER_S, MOST_ATTEMPTS, delay_s
from app.notifications.channels import CHANNELS, family_of
from app.notifications.sender import Attempt
from app.notifications.targets import Targets
from app.storage.audit import AuditRow
from app.storage.changes import StoreFailed
from app.storage.notices.notifications import (
    ACTIVE,
    DEAD,
    DELIVERED,
    DISABLED,
    PENDING,
    DeliveryRow,
    DeliveryTried,
    NotificationStore,
    TargetRow,
)
from app.transcript.run_request import NotFound

AT_ONCE = 8  # requests of all targets
STORE_RETRY_S = 30.0
TIDY_EVERY = 64  # ended deliveries of a target
KEPT_RUNS, KEPT_S, KEPT_LONG_S = 500, 7.0 * DAY_S, 35.0 * DAY_S
BY = "dragoman"

logger = logging.getLogger(__name__)

Send = Callable[[DeliveryRow, TargetRow], Awaitable[Attempt]]
"""Makes one attempt. Raises StoreFailed, OSError for a key file, NotFound if the owner may not have the event."""


class Timing(Struct, frozen=True):
    """The clock of deliveries, and the chance in their delays."""

    now: Callable[[], float] = time.time
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    chance: Callable[[], float] = random.random


class DeliveryQueue:
    """`written` waits until what was put before is durable; `on_disabled` is called with the row of a target."""

    def __init__(
        self,
        store: NotificationStore,
        targets: Targets,
        send: Send,
        *,
        written: Callable[[], Awaitable[None]],
        on_disabled: Callable[[TargetRow], None],
        timing: Timing,
    ) -> None:
        self._store = store
        self._targets = targets
        self._send = send
        self._written = written
        self._on_disabled = on_disabled
        self._timing = timing
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._wakes: dict[str, asyncio.Event] = {}
        self._slots = asyncio.Semaphore(AT_ONCE)
        self._ended: dict[str, int] = {}  # deliveries since a target's were tidied
        self._rests = True

    async def begin(self) -> None:
        """Go on with what the server before has left."""
        self._rests = False
        self.wake_all()

    def wake_all(self) -> None:
        for target in list(self._targets.pending):
            self.wake(target)

    def wake(self, target: str) -> None:
        """Look for deliveries of a target, which may just be being written."""
        if self._rests:
            return
        if target in self._tasks:
            self._wakes[target].set()
            return
        self._wakes[target] = asyncio.Event()
        task = self._tasks[target] = asyncio.create_task(self._drain(target), name=f"notifications to {target}")
        task.add_done_callback(_report)

    async def rest(self) -> None:
        """Stop; what is pending stays so."""
        self._rests = True
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _drain(self, target: str) -> None:
        wake = self._wakes[target]
        try:
            while True:
                wake.clear()
                try:
                    wait_s = await self._step(target)
                except StoreFailed as failure:
                    logger.warning("notifications to %s wait, the database failed: %s", target, failure)
                    wait_s = STORE_RETRY_S
                if wait_s is None and not wake.is_set():
                    return
                if wait_s:
                    await self._wait(wait_s, wake)
        finally:  # no other step of the loop comes between the last look and this
            self._tasks.pop(target, None)

    async def _step(self, target: str) -> float | None:
        """Make one attempt, if one is due. Return how long to wait, or None if nothing is pending.

        Raises StoreFailed.
        """
        await self._written()
        row, there = await self._store.next_delivery(target), self._targets.get(target)
        if row is None or there is None or there.state != ACTIVE:
            self._targets.pending.pop(target, None)
            return None
        if (wait_s := row.due - self._timing.now()) > 0:
            return wait_s
        async with self._slots:
            if self._targets.get(target) is not there:
                return 0.0  # changed while it waited for its turn
            try:
                attempt = await self._send(row, there)
            except NotFound as gone:
                await self._disable(there, str(gone))
                return None
            except OSError as error:
                attempt = Attempt(None, f"the keys of this server cannot be read: {error.strerror}")
        await self._conclude(row, there, attempt)
        return 0.0

    async def _wait(self, wait_s: float, wake: asyncio.Event) -> None:
        tasks = [asyncio.ensure_future(self._timing.sleep(wait_s)), asyncio.ensure_future(wake.wait())]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _conclude(self, row: DeliveryRow, target: TargetRow, attempt: Attempt) -> None:
        """Store the result of an attempt. Raises StoreFailed."""
        now, attempts, channel = self._timing.now(), row.attempts + 1, CHANNELS[target.kind]
        if attempt.status in channel.forgotten_at:
            await self._forget(target, now)
            return
        is_last = attempts >= MOST_ATTEMPTS or attempt.status in channel.unfit_at
        state = DELIVERED if attempt.ok else DEAD if is_last else PENDING
        due = row.due if attempt.ok else now + delay_s(attempts, self._timing.chance(), attempt.retry_after_s)
        tried = DeliveryTried(
            row.id,
            state=state,
            attempts=attempts,
            due=due,
            status=attempt.status,
            error=attempt.error,
            finished=None if state == PENDING else now,
        )
        await self._store.write([tried])
        if attempt.ok:
            await self._mark(target.id, None)
        else:
            await self._failed(target.id, attempt, now, is_last=is_last)
        if state != PENDING:
            await self._tidy(target.id)

    async def _forget(self, target: TargetRow, now: float) -> None:
        action, why = family_of(target).name, CHANNELS[target.kind].forgotten
        audit = AuditRow(now, principal=target.principal, action=action, decision="removed", why=why, by=BY)
        async with self._targets.changing:
            await self._targets.remove(target.id, audit)

    async def _mark(self, target: str, failing: float | None) -> None:
        """Store the first failure since a success, or that there is none."""
        async with self._targets.changing:
            row = self._targets.get(target)
            if row and (row.failing is None) != (failing is None):
                await self._targets.put(replace(row, failing=failing))

    async def _failed(self, target: str, attempt: Attempt, now: float, *, is_last: bool) -> None:
        """Disable a target that is gone, or that has failed for days.

        The last attempt of a delivery decides: days in which the server was off, or had nothing to send, do not count.
        """
        row = self._targets.get(target)
        if row is None:
            return
        if attempt.status == HTTPStatus.GONE:
            await self._disable(row, "It answered 410: it is gone.")
        elif row.failing is None:
            await self._mark(target, now)
        elif is_last and now - row.failing >= DISABLED_AFTER_S:
            days = f"{(now - row.failing) / DAY_S:.0f}"
            await self._disable(row, f"Each attempt of {days} days has failed, the last one so: {attempt.error}")

    async def _disable(self, target: TargetRow, why: str) -> None:
        now = self._timing.now()
        async with self._targets.changing:
            row = self._targets.get(target.id)
            if row is None or row.state != ACTIVE or row.url != target.url:
                return  # changed meanwhile
            logger.warning("%s %s of %s disabled: %s", row.kind, row.id, row.principal, why)
            action = family_of(row).name
            audit = AuditRow(now, principal=row.principal, action=action, decision="disabled", why=why, by=BY)
            row = replace(row, state=DISABLED, reason=why)
            await self._targets.disable(row, now, audit)
        self._on_disabled(row)

    async def _tidy(self, target: str) -> None:
        self._ended[target] = self._ended.get(target, 0) + 1
        pending = self._targets.pending
        pending[target] = max(0, pending.get(target, 1) - 1)
        if self._ended[target] >= TIDY_EVERY:
            self._ended[target] = 0
            now = self._timing.now()
            await self._store.forget_deliveries(target, KEPT_RUNS, now - KEPT_S, now - KEPT_LONG_S)


def _report(task: asyncio.Task[None]) -> None:
    with suppress(asyncio.CancelledError):
        if error := task.exception():
            logger.error("a task of the notifications failed", exc_info=error)
