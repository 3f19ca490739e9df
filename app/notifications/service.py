"""Notifications as a whole: targets, outbox and courier, and what principals may do with their targets."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import cached_property
from secrets import token_hex
from typing import TYPE_CHECKING

from msgspec.structs import replace

from app.config.settings import Settings
from app.log.event_writer import EventWriter
from app.notifications.delivery_queue import DeliveryQueue, Timing
from app.notifications.key_files import VAPID, KeyFiles, secret_text
from app.notifications.kinds import KINDS, TEST
from app.notifications.messages import Messages
from app.notifications.outbox import Outbox, delivery_id
from app.notifications.sender import Attempt, Sender
from app.notifications.signing import signed_headers
from app.notifications.targets import Targets
from app.policy.current_rights import principal_named
from app.policy.entitlements import Kind, check_entitled
from app.replicas.duty import attended
from app.replicas.peers import Alone, Peers
from app.replicas.secret_store import SecretStore
from app.storage.audit import AuditRow
from app.storage.notices.notifications import (
    ACTIVE,
    PENDING,
    PUSH,
    WEBHOOK,
    DeliveryRow,
    DeliveryTried,
    TargetRow,
)
from app.storage.principals import Principal
from app.storage.store import Store
from app.transcript.run_request import NotFound
from tools.base.rights import Role

if TYPE_CHECKING:
    from types import ModuleType

PUSH_LIFE_S = 24 * 3600  # that a push service keeps a message for a browser that is away
LISTED = 50  # deliveries
AGENT = {"User-Agent": "dragoman (notifications)"}


class TooManyTargets(Exception):
    """The principal has as many targets of this kind as it may have."""


class TargetForbidden(Exception):
    """The principal's role does not allow it."""


class TargetDisabled(Exception):
    """The target is switched off."""


class Notifications:
    """Every method that stores something raises StoreFailed; a target of another principal is not there: NotFound."""

    def __init__(
        self,
        settings: Settings,
        store: Store,
        journal: EventWriter,
        sender: Sender | None = None,
        timing: Timing | None = None,
        *,
        peers: Peers | None = None,
    ) -> None:
        self._settings = settings
        self._store = store
        self._journal = journal
        self._timing = timing or Timing()
        self.keys = KeyFiles(settings.data_dir)
        self.sender = sender or Sender(settings.private_hosts, (settings.port,))
        self.targets = Targets(store, peers or Alone())
        self._messages = Messages(store, journal.redactor, settings.public_url or "")
        self.courier = DeliveryQueue(
            store, self.targets, self._send, written=journal.flush, on_disabled=self._disabled, timing=self._timing
        )
        self.outbox = Outbox(
            self.targets, settings.budget_notice_percent, journal.put, self.courier.wake, self._timing.now
        )

    @cached_property
    def _encryption(self) -> ModuleType:
        from app.notifications import push_encryption  # 50 ms, for those who use it

        return push_encryption

    def push_key(self) -> str:
        """Return the public key that browsers subscribe with. Raises OSError."""
        key: str = self._encryption.public_key(self.keys.read(VAPID, self._encryption.new_scalar))
        return key

    def secret(self, row: TargetRow) -> str:
        """Return the secret of a webhook, to be shown once. Raises OSError."""
        return secret_text(self.keys.webhook_secret(row.id, row.version))

    def own(self, target: str, kind: str, principal: Principal) -> TargetRow:
        """Raises NotFound."""
        row = self.targets.get(target)
        if row is None or row.principal != principal.name or row.kind != kind:
            listing = "GET /webhooks" if kind == WEBHOOK else "GET /push"
            raise NotFound(f"There is no {kind} {target[:40]!a}. {listing} lists yours.")
        return row

    async def add_webhook(
        self, principal: Principal, url: str, name: str, events: Sequence[str], *, everyone: bool
    ) -> TargetRow:
        """Raises NotEntitled, UnfitUrl, TooManyTargets, TargetForbidden."""
        check_entitled(principal, Kind.WEBHOOKS)
        if everyone and principal.role is not Role.ADMIN:
            raise TargetForbidden("A webhook for the events of all principals is for admins: leave out everyone.")
        self._check_room(principal, WEBHOOK)
        checked, _ = await self.sender.check(url)
        row = self._new(
            "whk", WEBHOOK, principal, name=name or checked.host, url=url.strip(), events=events, everyone=everyone
        )
        async with self.targets.changing:
            self._check_room(principal, WEBHOOK)  # others may have been added meanwhile
            await self.targets.put(row, self._audit(row, "added", principal, checked.host))
        return row

    async def subscribe(
        self, principal: Principal, endpoint: str, *, p256dh: str, auth: str, name: str, events: Sequence[str]
    ) -> TargetRow:
        """Add a browser, or change what is known of it; a browser belongs to the principal that came with it last.

        Raises UnfitUrl, UnfitKeys, TooManyTargets.
        """
        self._encryption.check_keys(p256dh, auth)
        checked, _ = await self.sender.check(endpoint)
        keys = json.dumps({"p256dh": p256dh, "auth": auth})
        async with self.targets.changing:
            return await self._subscribed(principal, endpoint, keys=keys, name=name, events=events, host=checked.host)

    async def _subscribed(
        self, principal: Principal, endpoint: str, *, keys: str, name: str, events: Sequence[str], host: str
    ) -> TargetRow:
        known = next((row for row in self.targets if row.kind == PUSH and row.url == endpoint), None)
        if known and known.principal == principal.name:
            chosen = json.dumps(list(dict.fromkeys(events))) if events else known.events
            row = replace(known, keys=keys, events=chosen, name=name or known.name)
            row = replace(row, state=ACTIVE, reason="", failing=None)
            await self.targets.put(row)
            return row
        self._check_room(principal, PUSH)
        if known:
            await self.targets.remove(known.id, self._audit(known, "removed", principal, "another principal's now"))
        row = self._new("psh", PUSH, principal, name=name or host, url=endpoint, events=events, keys=keys)
        await self.targets.put(row, self._audit(row, "added", principal, host))
        return row

    async def change(self, row: TargetRow, principal: Principal, fields: Mapping[str, str]) -> TargetRow:
        """Store changed fields of a target. Raises UnfitUrl, NotFound."""
        if fields.get("url", row.url) != row.url:
            await self.sender.check(fields["url"])
        async with self.targets.changing:
            row = self.own(row.id, row.kind, principal)  # as it is now: the check may have taken seconds
            changed = replace(row, **fields)
            if changed.state == ACTIVE:
                changed = replace(changed, reason="", failing=row.failing if row.state == ACTIVE else None)
                await self.targets.put(changed, self._audit(changed, "changed", principal, changed.name))
            else:
                await self.targets.disable(changed, self._timing.now(), self._audit(changed, "disabled", principal, ""))
        return changed

    async def new_secret(self, row: TargetRow, principal: Principal) -> TargetRow:
        """Replace the secret of a webhook; the old one signs nothing more. Raises NotFound."""
        async with self.targets.changing:
            row = self.own(row.id, row.kind, principal)
            row = replace(row, version=row.version + 1)
            await self.targets.put(row, self._audit(row, "new secret", principal, row.name))
        return row

    async def remove(self, row: TargetRow, principal: Principal) -> None:
        async with self.targets.changing:
            await self.targets.remove(row.id, self._audit(row, "removed", principal, row.name))

    async def test(self, row: TargetRow) -> Attempt:
        """Send a test at once, and return what came of it. Raises NotFound."""
        now = self._timing.now()
        number = delivery_id(row.id, f"{TEST}:{token_hex(8)}")
        return await self._send(
            DeliveryRow(
                number,
                target=row.id,
                principal=row.principal,
                kind=TEST,
                session="",
                subject=row.id,
                detail="",
                created=now,
            ),
            row,
        )

    async def deliveries(self, row: TargetRow) -> list[DeliveryRow]:
        await self._journal.flush()
        return await self._store.deliveries(row.id, LISTED)

    async def retry(self, row: TargetRow, delivery: str) -> DeliveryRow:
        """Try a delivery again, now, with all its attempts. Raises NotFound, TargetDisabled."""
        if row.state != ACTIVE:
            raise TargetDisabled("It is switched off, so nothing is sent to it: switch it on first.")
        known = await self._store.delivery(delivery)
        if known is None or known.target != row.id:
            raise NotFound(f"There is no delivery {delivery[:40]!a} to this target; its deliveries are listed.")
        now = self._timing.now()
        await self._store.write(
            [DeliveryTried(known.id, state=PENDING, attempts=0, due=now, status=None, error="", finished=None)]
        )
        self.courier.wake(row.id)
        return replace(known, state=PENDING, attempts=0, due=now, status=None, error="", finished=None)

    def _new(
        self,
        prefix: str,
        kind: str,
        principal: Principal,
        *,
        name: str,
        url: str,
        events: Sequence[str],
        everyone: bool = False,
        keys: str = "{}",
    ) -> TargetRow:
        now, chosen = self._timing.now(), json.dumps(list(dict.fromkeys(events)) or list(KINDS))
        number = f"{prefix}_{token_hex(10)}"
        return TargetRow(
            number,
            principal=principal.name,
            kind=kind,
            name=name,
            url=url,
            events=chosen,
            everyone=everyone,
            version=1,
            keys=keys,
            created=now,
        )

    def _check_room(self, principal: Principal, kind: str) -> None:
        most = self._settings.max_notification_targets
        if len(self.targets.of(principal.name, kind)) >= most:
            what = "webhooks" if kind == WEBHOOK else "browsers with notifications"
            advice = "Remove one first" if most else "The setting max_notification_targets switches them off"
            raise TooManyTargets(f"You may have {most} {what}. {advice}.")

    def _audit(self, row: TargetRow, decision: str, by: Principal, why: str) -> AuditRow:
        return AuditRow(
            self._timing.now(), principal=row.principal, action=row.kind, decision=decision, why=why, by=by.name
        )

    def _disabled(self, row: TargetRow) -> None:
        self.outbox.target_disabled(row.id, row.principal, row.name)

    async def _send(self, row: DeliveryRow, target: TargetRow) -> Attempt:
        """Make one attempt. Raises StoreFailed, OSError, NotFound."""
        owner = await principal_named(self._store, target.principal)
        if target.everyone and owner.role is not Role.ADMIN:
            raise NotFound(f"{owner.name} is not an admin any more.")
        now = self._timing.now()
        if target.kind == PUSH:
            return await self._push(row, target, now)
        check_entitled(owner, Kind.WEBHOOKS)
        body = await self._messages.webhook(row, target)
        headers = signed_headers(row.id, now, body, self.keys.webhook_secret(target.id, target.version))
        return await self.sender.post(target.url, AGENT | {"Content-Type": "application/json"} | dict(headers), body)

    async def _push(self, row: DeliveryRow, target: TargetRow, now: float) -> Attempt:
        keys = json.loads(target.keys)
        text = await self._messages.push(row, target)
        scheme, _, rest = target.url.partition("://")
        origin, contact = f"{scheme}://{rest.partition('/')[0]}", self._settings.push_contact
        scalar = self.keys.read(VAPID, self._encryption.new_scalar)
        headers = {
            "Authorization": self._encryption.identity(scalar, origin, contact, time.time()),
            "Content-Encoding": "aes128gcm",
            "Content-Type": "application/octet-stream",
            "TTL": str(PUSH_LIFE_S),
            "Urgency": "high" if row.kind in ("approval.required", "canary.fired") else "normal",
        }
        body = await asyncio.to_thread(self._encryption.encrypted, text, keys["p256dh"], keys["auth"])
        return await self.sender.post(target.url, AGENT | headers, body)


@asynccontextmanager
async def delivering(
    notifications: Notifications, peers: Peers, vault: SecretStore | None
) -> AsyncGenerator[None, None]:
    """Deliver what the outbox has; one server does it for all. Nothing runs as long as nothing is pending."""
    if vault:
        await notifications.keys.share(vault)
    await notifications.targets.load()
    async with attended(peers, "notifications", notifications.courier):
        yield
