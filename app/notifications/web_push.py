"""The letter to a browser: encrypted for it, and sent to the push service of its vendor."""

from __future__ import annotations

import asyncio
import json
import time
from urllib.parse import urlsplit

from app.notifications.channel import ChannelParts, Letter
from app.notifications.key_files import VAPID, KeyFiles
from app.notifications.kinds import URGENT
from app.storage.notices.notifications import DeliveryRow, TargetRow

LIFE_S = 24 * 3600  # that a push service keeps a message for a browser that is away
SHOWN = ("title", "body", "session", "run", "call", "tag")


async def push_letter(row: DeliveryRow, target: TargetRow, _: float, parts: ChannelParts) -> Letter:
    """Raises StoreFailed, OSError."""
    from app.notifications import push_encryption  # 50 ms, for those who use it

    keys = json.loads(target.keys)
    message = await parts.messages.short(row, target)
    server = urlsplit(target.url)
    scalar = parts.keys.read(VAPID, push_encryption.new_scalar)
    headers = {
        "Authorization": push_encryption.identity(
            scalar, f"{server.scheme}://{server.netloc}", parts.contact, time.time()
        ),
        "Content-Encoding": "aes128gcm",
        "Content-Type": "application/octet-stream",
        "TTL": str(LIFE_S),
        "Urgency": "high" if row.kind in URGENT else "normal",
    }
    text = json.dumps({name: message[name] for name in SHOWN}).encode()
    return Letter(headers, await asyncio.to_thread(push_encryption.encrypted, text, keys["p256dh"], keys["auth"]))


def push_key(keys: KeyFiles) -> str:
    """Return the public key that browsers subscribe with. Raises OSError."""
    from app.notifications import push_encryption

    return push_encryption.public_key(keys.read(VAPID, push_encryption.new_scalar))


def check_keys(p256dh: str, auth: str) -> None:
    """Raises UnfitKeys."""
    from app.notifications import push_encryption

    push_encryption.check_keys(p256dh, auth)
