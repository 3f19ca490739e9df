"""Triggers: webhooks that begin runs. A delivery proves that its sender knows the secret; its body is untrusted."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping, Sequence
from secrets import token_bytes, token_hex
from typing import Any

from msgspec import Struct

from app.budget.kinds import BudgetSpent
from app.config.folders import FolderUnusable
from app.core.data_delimiters import RULE, as_data
from app.notifications.key_files import TRIGGERS, KeyFiles
from app.schedules.signatures import HMAC, Secret, WrongSignature, delivery_id, new_secret
from app.schedules.starts import KEPT, Starts
from app.schedules.templates import rendered
from app.storage.audit import AuditRow
from app.storage.changes import Change, StoreFailed
from app.storage.runs import RunRow
from app.storage.schedules import (
    REFUSED,
    STARTED,
    OccurrenceRow,
    OccurrencesTrimmed,
    TriggerMoved,
    TriggerRemoved,
    TriggerRow,
)
from app.transcript.run_request import IdempotencyKey, NotFound, RunRequest

BY = "trigger"
KEY_BYTES = 32
TITLE = "Untrusted data of the delivery"


class TriggerOff(Exception):
    """The trigger takes no deliveries now."""


class DeliveryRefused(Exception):
    """No run can begin, for a reason that is its owner's business. `spent`: a budget, until `reset`."""

    def __init__(self, reset: float | None = None) -> None:
        super().__init__("The run could not be started. The owner of the trigger sees why in its last deliveries.")
        self.reset = reset


class Delivery(Struct, frozen=True):
    """A delivery that has proven itself; `id` is None if nothing identifies it."""

    row: TriggerRow
    id: str | None
    digest: str


class Triggers:
    """The triggers of one server; secrets are derived from one of `keys`."""

    def __init__(self, starts: Starts, keys: KeyFiles) -> None:
        self._starts = starts
        self._store = starts.unattended.factory.store
        self._keys = keys
        self._key = b""
        # To be held from when a trigger is read until its change is written.
        self.changing = starts.unattended.factory.runs.peers.changing("triggers")

    async def get(self, trigger: str, principal: str) -> TriggerRow:
        """Raises NotFound."""
        row = await self._store.trigger(trigger)
        if row is None or row.principal != principal:
            raise NotFound(f"There is no trigger {trigger[:80]!r}. GET /triggers lists yours.")
        return row

    def secret(self, scheme: str) -> Secret:
        """A new secret. Raises StoreFailed."""
        return new_secret(scheme, self._read_key())

    async def put(self, row: TriggerRow, decision: str, by: str) -> None:
        """Store a trigger that was made or changed."""
        await self._store.write([row, AuditRow(time.time(), row.principal, BY, decision, why=row.name, by=by)])
        self._news(row)

    async def remove(self, row: TriggerRow, by: str) -> None:
        audit = AuditRow(time.time(), row.principal, BY, "removed", why=row.name, by=by)
        await self._store.write([TriggerRemoved(row.id), OccurrencesTrimmed(row.id, 0), audit])
        self._news(row)

    async def check_known(self, trigger: str) -> None:
        """Raises WrongSignature."""
        if await self._store.trigger(trigger) is None:
            raise WrongSignature

    async def verified(self, trigger: str, headers: Mapping[str, str], body: bytes) -> Delivery:
        """Check a delivery's secret. Raises WrongSignature, which also stands for an unknown trigger, TriggerOff."""
        row = await self._store.trigger(trigger)
        scheme, stored, key = (row.scheme, row.secret, self._read_key()) if row else (HMAC, "", b"unknown")
        found = delivery_id(scheme, stored, key, headers, body, now=time.time())
        if row is None:
            raise WrongSignature
        if not row.enabled or not self._starts.unattended.factory.settings.max_schedules:
            raise TriggerOff("This trigger is switched off.")
        return Delivery(row, found, hashlib.sha256(body).hexdigest())

    async def begin(self, delivery: Delivery, body: Mapping[str, Any]) -> str:
        """Begin the run of a delivery, or find the one that it has begun before, which may be deleted by now.

        Raises UnfitDelivery, DeliveryRefused, KeyReused, SessionBusy, Paused, Stopping, StoreFailed.
        """
        row = delivery.row
        text = f"{row.text}\n\n{as_data(TITLE, rendered(row.template, body))}\n\n{RULE}"
        occurrence = delivery.id or token_hex(16)

        def beside(run: RunRow) -> Sequence[Change]:
            reached = OccurrenceRow(row.id, occurrence, time.time(), STARTED, run=run.id)
            session = run.session if row.place == "one" else row.session
            return [TriggerMoved(row.id, session), reached, OccurrencesTrimmed(row.id, KEPT)]

        key = IdempotencyKey(f"trigger\n{row.id}\n{occurrence}", delivery.digest)
        try:
            turn = RunRequest(text, key=key, untrusted=True, outside=True, beside=beside)
            return (await self._starts.begin(row, turn)).id
        except (NotFound, BudgetSpent, FolderUnusable) as reason:
            known = await self._store.key(row.principal, key.value)
            if isinstance(reason, NotFound) and known and await self._store.run(known.run) is None:
                return known.run
            await self._refuse(row, occurrence, str(reason))
            raise DeliveryRefused(reason.reset if isinstance(reason, BudgetSpent) else None) from reason

    async def _refuse(self, row: TriggerRow, occurrence: str, reason: str) -> None:
        now = time.time()
        known = await self._store.occurrences(row.id)
        reached = OccurrenceRow(row.id, f"{occurrence} refused {now}", now, REFUSED, reason)
        changes: list[Change] = [reached, OccurrencesTrimmed(row.id, KEPT)]
        if not known or known[0].reason != reason:  # not the same for each delivery
            changes.append(AuditRow(now, row.principal, BY, REFUSED, why=reason, by=BY))
        await self._store.write(changes)
        self._news(row)

    def _news(self, row: TriggerRow) -> None:
        self._starts.unattended.factory.runs.notifier.notify(row.principal)

    def _read_key(self) -> bytes:
        if not self._key:
            try:
                self._key = self._keys.read(TRIGGERS, lambda: token_bytes(KEY_BYTES))
            except OSError as error:
                raise StoreFailed(f"The key of triggers cannot be used: {error}.") from error
        return self._key
