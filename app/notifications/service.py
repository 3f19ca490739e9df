"""Notifications as a whole: targets, outbox and courier, and what principals may do with their targets."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from secrets import token_hex

from msgspec.structs import replace

from app.config.settings import Settings
from app.log.event_writer import EventWriter
from app.notifications.channel import BROWSERS, WEBHOOKS, ChannelParts, Family
from app.notifications.channels import CHANNELS, family_of
from app.notifications.decision_links import DecisionLinks
from app.notifications.delivery_queue import DeliveryQueue, Timing
from app.notifications.key_files import KeyFiles, secret_text
from app.notifications.kinds import TEST, USUAL
from app.notifications.messages import Messages
from app.notifications.outbox import Outbox, delivery_id
from app.notifications.sender import Attempt, Sender
from app.notifications.targets import Targets
from app.notifications.web_push import check_keys
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

LISTED = 50  # deliveries
WITH_LINKS = ", with links that decide"
NO_LINKS = (
    "Links that decide are off on this server. An admin can set DRAGOMAN_DECISION_LINK_TIME_LIMIT_S, and "
    "DRAGOMAN_PUBLIC_URL, which links need."
)
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
        self.links = DecisionLinks(
            store,
            (settings.public_url or "").rstrip("/"),
            settings.decision_link_time_limit_s,
            self._timing.now,
        )
        self._parts = ChannelParts(
            links=self.links,
            messages=Messages(store, journal.redactor, settings.public_url or ""),
            keys=self.keys,
            contact=settings.push_contact,
        )
        self.courier = DeliveryQueue(
            store, self.targets, self._send, written=journal.flush, on_disabled=self._disabled, timing=self._timing
        )
        self.outbox = Outbox(
            self.targets, settings.budget_notice_percent, journal.put, self.courier.wake, self._timing.now
        )

    def secret(self, row: TargetRow) -> str:
        """Return the secret of a webhook, to be shown once. Raises OSError."""
        return secret_text(self.keys.webhook_secret(row.id, row.version))

    def own(self, target: str, family: Family, principal: Principal) -> TargetRow:
        """Raises NotFound."""
        row = self.targets.get(target)
        if row is None or row.principal != principal.name or family_of(row) is not family:
            raise NotFound(f"There is no {family.name} {target[:40]!a}. GET {family.path} lists yours.")
        return row

    async def add_webhook(
        self,
        principal: Principal,
        url: str,
        name: str,
        events: Sequence[str],
        *,
        everyone: bool,
        channel: str = WEBHOOK,
        decides: bool = False,
    ) -> TargetRow:
        """Raises NotEntitled, UnfitUrl, TooManyTargets, TargetForbidden."""
        check_entitled(principal, Kind.WEBHOOKS)
        if decides:
            self._check_decides(channel)
        if everyone and principal.role is not Role.ADMIN:
            raise TargetForbidden("A webhook for the events of all principals is for admins: leave out everyone.")
        self._check_room(principal, WEBHOOKS)
        checked, _ = await self.sender.check(url)
        row = self._new(
            channel, principal, name=name or checked.host, url=url.strip(), events=events, everyone=everyone
        )
        row = replace(row, decides=decides)
        async with self.targets.changing:
            self._check_room(principal, WEBHOOKS)  # others may have been added meanwhile
            await self.targets.put(row, self._audit(row, "added", principal, checked.host + WITH_LINKS * decides))
        return row

    async def subscribe(
        self, principal: Principal, endpoint: str, *, p256dh: str, auth: str, name: str, events: Sequence[str]
    ) -> TargetRow:
        """Add a browser, or change what is known of it; a browser belongs to the principal that came with it last.

        Raises UnfitUrl, UnfitKeys, TooManyTargets.
        """
        check_keys(p256dh, auth)
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
        self._check_room(principal, BROWSERS)
        if known:
            await self.targets.remove(known.id, self._audit(known, "removed", principal, "another principal's now"))
        row = self._new(PUSH, principal, name=name or host, url=endpoint, events=events, keys=keys)
        await self.targets.put(row, self._audit(row, "added", principal, host))
        return row

    async def change(self, row: TargetRow, principal: Principal, fields: Mapping[str, str | bool]) -> TargetRow:
        """Store changed fields of a target. Raises UnfitUrl, NotFound, TargetForbidden."""
        if fields.get("decides"):
            self._check_decides(row.kind)
        if fields.get("url", row.url) != row.url:
            await self.sender.check(str(fields["url"]))
        async with self.targets.changing:
            row = self._now(row, principal)  # as it is now: the check may have taken seconds
            changed = replace(row, **fields)
            if changed.state == ACTIVE:
                changed = replace(changed, reason="", failing=row.failing if row.state == ACTIVE else None)
                why = changed.name + WITH_LINKS * changed.decides
                await self.targets.put(changed, self._audit(changed, "changed", principal, why))
            else:
                await self.targets.disable(changed, self._timing.now(), self._audit(changed, "disabled", principal, ""))
        return changed

    def _check_decides(self, channel: str) -> None:
        """Raises TargetForbidden."""
        if not self.links.are_on:
            raise TargetForbidden(NO_LINKS)
        if not CHANNELS[channel].signs:
            raise TargetForbidden(f"Links that decide are sent to signed webhooks only, not to {channel}.")

    async def new_secret(self, row: TargetRow, principal: Principal) -> TargetRow:
        """Replace the secret of a webhook; the old one signs nothing more. Raises NotFound, TargetForbidden."""
        if not CHANNELS[row.kind].signs:
            raise TargetForbidden(f"What is sent to {row.kind} is not signed, so there is no secret to replace.")
        async with self.targets.changing:
            row = self._now(row, principal)
            row = replace(row, version=row.version + 1)
            await self.targets.put(row, self._audit(row, "new secret", principal, row.name))
        return row

    def _now(self, row: TargetRow, principal: Principal) -> TargetRow:
        """Return a target as it is now. Raises NotFound."""
        return self.own(row.id, family_of(row), principal)

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
        kind: str,
        principal: Principal,
        *,
        name: str,
        url: str,
        events: Sequence[str],
        everyone: bool = False,
        keys: str = "{}",
    ) -> TargetRow:
        now, chosen = self._timing.now(), json.dumps(list(dict.fromkeys(events)) or list(USUAL))
        number = f"{CHANNELS[kind].family.prefix}_{token_hex(10)}"
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

    def _check_room(self, principal: Principal, family: Family) -> None:
        most = self._settings.max_notification_targets
        if len(self.targets.of(principal.name, family)) >= most:
            advice = "Remove one first" if most else "The setting max_notification_targets switches them off"
            raise TooManyTargets(f"You may have {most} {family.plural}. {advice}.")

    def _audit(self, row: TargetRow, decision: str, by: Principal, why: str) -> AuditRow:
        action = family_of(row).name
        return AuditRow(
            self._timing.now(), principal=row.principal, action=action, decision=decision, why=why, by=by.name
        )

    def _disabled(self, row: TargetRow) -> None:
        self.outbox.target_disabled(row.id, row.principal, row.name)

    async def _send(self, row: DeliveryRow, target: TargetRow) -> Attempt:
        """Make one attempt. Raises StoreFailed, OSError, NotFound."""
        owner = await principal_named(self._store, target.principal)
        if target.everyone and owner.role is not Role.ADMIN:
            raise NotFound(f"{owner.name} is not an admin any more.")
        channel = CHANNELS[target.kind]
        if channel.family.right:
            check_entitled(owner, channel.family.right)
        letter = await channel.letter(row, target, self._timing.now(), self._parts)
        return await self.sender.post(target.url, AGENT | dict(letter.headers), letter.body)


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
