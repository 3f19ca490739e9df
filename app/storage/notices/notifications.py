"""Targets of notifications (webhooks and push subscriptions), and the deliveries to them."""

from __future__ import annotations

from typing import Protocol

from app.storage.changes import Change, ChangeWriter

WEBHOOK, PUSH = "webhook", "push"  # kinds of targets
ACTIVE, DISABLED = "active", "disabled"  # states of targets
PENDING, DELIVERED, DEAD = "pending", "delivered", "dead"  # states of deliveries


class TargetRow(Change, frozen=True):
    """A receiver of notifications. A later row of its id replaces it.

    `events` is a JSON list of kinds. `everyone`: it gets the events of all principals. `version` counts the secrets of
    a webhook. `keys` is JSON with the public keys of a push subscription. `failing` is the time of the first failed
    attempt since the last success. `decides`: what waits for approval comes with a link that decides it.
    """

    id: str
    principal: str
    kind: str
    name: str
    url: str
    events: str
    everyone: bool
    version: int
    keys: str
    created: float
    state: str = ACTIVE
    reason: str = ""
    failing: float | None = None
    decides: bool = False


class TargetRemoved(Change, frozen=True):
    """The target is deleted."""

    id: str


class DeliveriesRemoved(Change, frozen=True):
    """All deliveries to a target are deleted."""

    target: str


class DeliveryRow(Change, frozen=True):
    """One event for one target. The id is made of both, so that writing it again changes nothing.

    `principal` is the owner of what happened. `subject` is the id of a run or job, or the name of a budget; `detail` a
    code, such as the reason of a run's end, or the call that waits.
    """

    id: str
    target: str
    principal: str
    kind: str
    session: str
    subject: str
    detail: str
    created: float
    state: str = PENDING
    attempts: int = 0
    due: float = 0.0
    status: int | None = None
    error: str = ""
    finished: float | None = None


class DeliveryTried(Change, frozen=True):
    """The state of a delivery after an attempt, or after a person's retry."""

    id: str
    state: str
    attempts: int
    due: float
    status: int | None
    error: str
    finished: float | None


class DeliveriesGivenUp(Change, frozen=True):
    """The pending deliveries to a target are dead."""

    target: str
    error: str
    finished: float


class NotificationStore(ChangeWriter, Protocol):
    async def notification_targets(self) -> list[TargetRow]:
        """All targets, oldest first."""

    async def deliveries(self, target: str, limit: int) -> list[DeliveryRow]:
        """The last deliveries to a target, newest first."""

    async def delivery(self, delivery: str) -> DeliveryRow | None: ...

    async def next_delivery(self, target: str) -> DeliveryRow | None:
        """The pending delivery to a target that is due first."""

    async def pending_deliveries(self) -> dict[str, int]:
        """The number of pending deliveries by target, for those that have some."""

    async def forget_deliveries(self, target: str, keep: int, before: float, long_before: float) -> None:
        """Delete ended deliveries of runs beyond the newest `keep`, those before `before`, and all `long_before`.

        Deliveries that an event could be turned into again (of jobs and budgets) are kept longer.
        """
