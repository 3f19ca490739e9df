"""Links that decide: a webhook with this switch gets one with each call of its owner that waits for approval.

The token is random, is in the request to the webhook and nowhere else, and is stored as its SHA-256 only: each attempt
of a delivery has one of its own. A link is bound to the call that was asked about, and decides it at most once, because
an approval is decided once.
"""

from __future__ import annotations

import hashlib
import math
import secrets
from collections.abc import Callable
from typing import Protocol

from msgspec import Struct

from app.core.settings_fields import DAY_S
from app.notifications.kinds import APPROVAL
from app.policy.approvals import is_over
from app.storage.approvals import ApprovalRow, ApprovalStore, DecisionLink, DecisionLinksExpired
from app.storage.labels import LabelStore
from app.storage.notices.notifications import DeliveryRow, TargetRow
from tools.builtin.ask_user import OWN_QUESTION
from tools.mcp.names import is_question

PATH = "/decide/"
PREFIX = "dgm_"  # of access tokens: secrets of this form are hidden in logs and answers
KEPT_S = 7 * DAY_S  # so long a link that is over says so


class Store(ApprovalStore, LabelStore, Protocol):
    """Stores that links are made from."""


class DecisionLinks(Struct, frozen=True):
    """Makes links. `address` is where people reach this server, `life_s` their life; without one of both: none."""

    store: Store
    address: str
    life_s: float
    now: Callable[[], float]

    @property
    def are_on(self) -> bool:
        return bool(self.address and self.life_s)

    async def link(self, delivery: DeliveryRow, target: TargetRow) -> str | None:
        """Return a new link for what a delivery is about, None where there is none to make. Raises StoreFailed."""
        is_owners = target.decides and delivery.principal == target.principal
        if not (self.are_on and is_owners and delivery.kind == APPROVAL and delivery.detail):
            return None
        row = await self.store.approval(delivery.subject, delivery.detail)
        if row is None or not await self._can_be_decided(row):
            return None
        token, now = f"{PREFIX}{secrets.token_urlsafe(32)}", self.now()
        link = DecisionLink(
            sha256=hashlib.sha256(token.encode()).hexdigest(),
            run=row.run,
            call=row.call,
            session=row.session,
            target=target.id,
            fingerprint=row.fingerprint,
            expires=min(now + self.life_s, row.expires or math.inf),
        )
        await self.store.write([DecisionLinksExpired(now - KEPT_S), link])
        return f"{self.address}{PATH}{token}"

    async def _can_be_decided(self, row: ApprovalRow) -> bool:
        """Questions need an answer, and what is labelled is shown to those who have signed in."""
        if row.state != "pending" or is_over(row) or row.name == OWN_QUESTION or is_question(row.name):
            return False
        return not await self.store.session_labels([row.session])
