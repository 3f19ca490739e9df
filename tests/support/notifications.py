"""A server that notifies real receivers, and the browser that decrypts a push message."""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from itertools import count
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from app.core.events import AgentEvent, ApprovalRequired, RunFinished
from app.log.event_writer import EventWriter, Listeners
from app.notifications.delivery_queue import Timing
from app.notifications.push_encryption import RECORD, point_of, to_text
from app.notifications.sender import Sender
from app.notifications.service import Notifications
from app.storage.database import DATABASE, open_store
from app.storage.notices.notifications import WEBHOOK, DeliveryRow, TargetRow
from app.storage.principals import LOCAL_USER, Principal
from app.storage.runs import RunRow
from app.storage.sessions import SessionRow
from app.storage.store import Store
from app.storage.tokens import TokenRow
from tests.support.server.receivers import ManualClock
from tests.support.server.serving import settings_in

ENDED = RunFinished("answered", "An answer that no receiver gets.", 1, 0, {})
WAITS = ApprovalRequired("call_1", "bash", {"command": "cat secret"}, "It asks.", None)


@dataclass(slots=True)
class NotifyingServer:
    """The notifications of a server, its store and its clock."""

    notifications: Notifications
    store: Store
    journal: EventWriter
    clock: ManualClock

    async def happens(
        self, *events: AgentEvent, run: str = "run_1", principal: str = LOCAL_USER.name, policy: str = "{}"
    ) -> None:
        """Log events of a run, durably."""
        session = f"ses_{principal}"
        if await self.store.session(session) is None:
            await self.store.write([SessionRow(session, principal, 1.0, "A title")])
        row = RunRow(run, session, principal, "m", "running", 1.0, policy=policy)
        outbox = partial(self.notifications.outbox.of_run, row)
        log = self.journal.open_log(run, lambda: None, Listeners(outbox=outbox))
        for event in events:
            log.add(event)
        await self.journal.flush()

    async def hook(
        self, url: str, *events: str, by: Principal = LOCAL_USER, everyone: bool = False, channel: str = WEBHOOK
    ) -> TargetRow:
        return await self.notifications.add_webhook(by, url, "hook", events, everyone=everyone, channel=channel)

    async def row(self, target: TargetRow, state: str) -> DeliveryRow:
        """The newest delivery, once it is in this state."""
        async with asyncio.timeout(30):
            for _ in count():
                if (rows := await self.notifications.deliveries(target)) and rows[0].state == state:
                    return rows[0]
                await asyncio.sleep(0)
        raise AssertionError

    async def tokens(self, **roles: str) -> None:
        await self.store.write([TokenRow(name * 8, name, role, 1.0) for name, role in roles.items()])


@asynccontextmanager
async def notifying_server(
    folder: Path, limit_s: float = 10.0, clock: ManualClock | None = None, **flags: object
) -> AsyncGenerator[NotifyingServer, None]:
    settings = settings_in(folder, **{"private_hosts": "127.0.0.1", **flags})
    clock = clock or ManualClock()
    store = await open_store(settings.data_dir / DATABASE)
    async with AsyncExitStack() as stack:
        stack.push_async_callback(store.close)
        journal = await stack.enter_async_context(EventWriter(store))
        sender = Sender(settings.private_hosts, (settings.port,), time_limit_s=limit_s)
        made = Notifications(settings, store, journal, sender, Timing(clock.now, clock.sleep, lambda: 1.0))
        await made.targets.load()
        await made.courier.begin()
        try:
            yield NotifyingServer(made, store, journal, clock)
        finally:
            await made.courier.rest()


class Browser:
    """The keys of a browser, and what it does with a message."""

    def __init__(self, scalar: int | None = None, auth: bytes = b"A" * 16) -> None:
        self.key = ec.derive_private_key(scalar, ec.SECP256R1()) if scalar else ec.generate_private_key(ec.SECP256R1())
        self.auth = auth

    @property
    def keys(self) -> tuple[str, str]:
        """The two of a subscription: `p256dh` and `auth`."""
        return to_text(point_of(self.key)), to_text(self.auth)

    def decrypted(self, body: bytes) -> bytes:
        """Return the text of a message, by the steps of RFC 8188 and 8291 with HMAC alone."""
        salt, size, length = body[:16], int.from_bytes(body[16:20], "big"), body[20]
        sender, record = body[21 : 21 + length], body[21 + length :]
        assert len(record) <= size == RECORD
        shared = self.key.exchange(ec.ECDH(), ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), sender))
        info = b"WebPush: info\0" + point_of(self.key) + sender + b"\1"
        secret = hmac.digest(salt, hmac.digest(hmac.digest(self.auth, shared, sha256), info, sha256), sha256)
        key = hmac.digest(secret, b"Content-Encoding: aes128gcm\0\1", sha256)[:16]
        nonce = hmac.digest(secret, b"Content-Encoding: nonce\0\1", sha256)[:12]
        text = AESGCM(key).decrypt(nonce, record, None)
        assert text[-1] == 2, "the last record"
        return text[:-1]
