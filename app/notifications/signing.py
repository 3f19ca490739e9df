"""Signatures of webhooks: https://www.standardwebhooks.com, version 1, HMAC-SHA256."""

from __future__ import annotations

import hmac
from base64 import b64encode
from collections.abc import Mapping
from hashlib import sha256


def signed_headers(message: str, at: float, body: bytes, secret: bytes) -> Mapping[str, str]:
    """Return the headers of one attempt: each attempt has its own time, all of a message its id."""
    timestamp = str(int(at))
    signature = hmac.digest(secret, f"{message}.{timestamp}.".encode() + body, sha256)
    return {
        "webhook-id": message,
        "webhook-timestamp": timestamp,
        "webhook-signature": f"v1,{b64encode(signature).decode()}",
    }
