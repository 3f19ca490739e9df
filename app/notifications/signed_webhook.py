"""The letter to a program: JSON, signed."""

from __future__ import annotations

import json

from app.notifications.channel import ChannelParts, Letter
from app.notifications.signing import signed_headers
from app.storage.notices.notifications import DeliveryRow, TargetRow


async def signed_letter(row: DeliveryRow, target: TargetRow, now: float, parts: ChannelParts) -> Letter:
    """Raises StoreFailed, OSError."""
    message = await parts.messages.full(row, target)
    if link := await parts.links.link(row, target):
        message["data"]["decide"] = link  # now: what was redacted has no secrets
    body = json.dumps(message).encode()
    secret = parts.keys.webhook_secret(target.id, target.version)
    return Letter({"Content-Type": "application/json", **signed_headers(row.id, now, body, secret)}, body)
