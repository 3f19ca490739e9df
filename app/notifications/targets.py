"""The registry of targets: all of them in memory, since each event of a log looks for those that want it."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Sequence

from app.notifications.channel import Family
from app.notifications.channels import CHANNELS, family_of
from app.notifications.kinds import KINDS
from app.replicas.peers import Peers
from app.storage.changes import Change
from app.storage.notices.notifications import (
    ACTIVE,
    DeliveriesGivenUp,
    DeliveriesRemoved,
    NotificationStore,
    TargetRemoved,
    TargetRow,
)

MOST_PENDING = 1000  # deliveries of one target; further events are dropped

logger = logging.getLogger(__name__)


class Targets:
    """Rows by id, and how many deliveries of each are pending. Every method that writes raises StoreFailed."""

    def __init__(self, store: NotificationStore, peers: Peers) -> None:
        self._store = store
        self._rows: dict[str, TargetRow] = {}
        self._wanted: dict[str, list[TargetRow]] = {}  # by kind of event, active ones
        # To be held from reading a row until the changed one is stored.
        self.changing = peers.changing("targets", self.load)
        self.pending: dict[str, int] = {}
        self.dropped: dict[str, int] = {}  # since the start

    async def load(self) -> None:
        rows = await self._store.notification_targets()
        self._rows = {row.id: row for row in rows if row.kind in CHANNELS}  # a newer server's channel is left alone
        if self._rows:
            self.pending = await self._store.pending_deliveries()
        self._index()

    def __iter__(self) -> Iterator[TargetRow]:
        return iter(self._rows.values())

    def get(self, target: str) -> TargetRow | None:
        return self._rows.get(target)

    def of(self, principal: str, family: Family) -> list[TargetRow]:
        """Return the targets of a principal, oldest first."""
        return [row for row in self._rows.values() if row.principal == principal and family_of(row) is family]

    def wanting(self, kind: str, principal: str) -> list[TargetRow]:
        """Return the active targets that get this kind of event of a principal."""
        return [row for row in self._wanted.get(kind, ()) if row.everyone or row.principal == principal]

    @property
    def are_none_active(self) -> bool:
        return not self._wanted

    async def put(self, row: TargetRow, *others: Change) -> None:
        """Store a target, new or changed."""
        await self._store.write([row, *others])
        self._rows[row.id] = row
        self._index()

    async def remove(self, target: str, *others: Change) -> None:
        """Delete a target and its deliveries."""
        await self._store.write([TargetRemoved(target), DeliveriesRemoved(target), *others])
        for known in (self._rows, self.pending, self.dropped):
            known.pop(target, None)
        self._index()

    async def disable(self, row: TargetRow, now: float, *others: Change) -> None:
        """Store a disabled target; what is pending for it is dead."""
        await self.put(row, DeliveriesGivenUp(row.id, "The target was disabled.", now), *others)
        self.pending.pop(row.id, None)

    def take_place(self, target: str) -> bool:
        """Count one more pending delivery. Return False if there are too many."""
        if self.pending.get(target, 0) >= MOST_PENDING:
            self.dropped[target] = self.dropped.get(target, 0) + 1
            if self.dropped[target] == 1:
                logger.warning("notifications to %s dropped: %d are pending", target, MOST_PENDING)
            return False
        self.pending[target] = self.pending.get(target, 0) + 1
        return True

    def _index(self) -> None:
        active = [row for row in self._rows.values() if row.state == ACTIVE]
        chosen: Sequence[tuple[TargetRow, set[str]]] = [(row, set(json.loads(row.events))) for row in active]
        wanted = {kind: [row for row, events in chosen if kind in events] for kind in KINDS}
        self._wanted = {kind: rows for kind, rows in wanted.items() if rows}
