"""The text of an access token, and its fingerprint: all that is stored of it."""

from __future__ import annotations

import hashlib
import hmac
import secrets

TOKEN_PREFIX = "dgm_"


def new_token() -> str:
    """256 random bits behind a prefix that secret scanners can recognise."""
    return TOKEN_PREFIX + secrets.token_urlsafe(32)


def fingerprint(token: str) -> str:
    """SHA-256 in hexadecimal digits."""
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).hexdigest()


def is_known(token: str | None, sha256: str) -> bool:
    """Return whether the token has this fingerprint. An empty one lets none in."""
    return token is not None and sha256 != "" and hmac.compare_digest(fingerprint(token), sha256)
