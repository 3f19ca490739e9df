"""Secrets of triggers, and the check that a delivery was sent by a program that knows one.

- `hmac`: `X-Hub-Signature-256` (as GitHub sends it) or `X-Signature-256` with `sha256=` and the HMAC-SHA256 of the body
  in hexadecimal digits. It signs neither a time nor an id, so the body itself is what identifies a delivery.
- `standard`: `webhook-id`, `webhook-timestamp` and `webhook-signature`, https://www.standardwebhooks.com; a delivery
  counts for 5 minutes.
- `bearer`: `Authorization: Bearer SECRET`, with an `Idempotency-Key` where deliveries are repeated.

Of a bearer secret the database has the SHA-256. To check a signature the secret itself is needed, so it is not stored
but derived, from a key in a file of the data directory and a random salt in the database: neither alone has it.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
from collections.abc import Mapping

from msgspec import Struct

from app.notifications.signing import signed_headers

HMAC, STANDARD, BEARER = "hmac", "standard", "bearer"
SCHEMES = (HMAC, STANDARD, BEARER)
SIGNATURE_HEADERS = ("x-hub-signature-256", "x-signature-256")
TOLERANCE_S = 300.0  # between the time of a signature and now
LONGEST_ID = 256
LONGEST_TIME = 12  # digits
STANDARD_HEADERS = (
    "webhook-id, webhook-timestamp and webhook-signature: v1,BASE64 of the HMAC-SHA256 of id.timestamp.body"
)
MOST_SIGNATURES = 8  # of one delivery, while a sender changes its secret


class WrongSignature(Exception):
    """The delivery does not prove that its sender knows the secret. The message says what it lacks."""


class Secret(Struct, frozen=True):
    """A secret as its sender gets it, and what is stored of it."""

    text: str
    stored: str


def new_secret(scheme: str, key: bytes) -> Secret:
    if scheme == BEARER:
        text = f"dgt_{secrets.token_urlsafe(32)}"
        return Secret(text, digest_of(text))
    salt = secrets.token_urlsafe(16)
    return Secret(derived(scheme, key, salt), salt)


def derived(scheme: str, key: bytes, salt: str) -> str:
    """The secret of a signature, as its sender gets it."""
    raw = hmac.digest(key, f"trigger {scheme} {salt}".encode(), "sha256")
    return f"whsec_{base64.b64encode(raw).decode()}" if scheme == STANDARD else f"dgt_{raw.hex()}"


def digest_of(text: str) -> str:
    return hashlib.sha256(text.encode(errors="surrogateescape")).hexdigest()


def delivery_id(
    scheme: str, stored: str, key: bytes, headers: Mapping[str, str], body: bytes, *, now: float
) -> str | None:
    """Check a delivery; return what identifies it, None if nothing does. Raises WrongSignature.

    Names of `headers` are in lower case. Everything that depends on the secret is compared in constant time.
    """
    if scheme == BEARER:
        return _of_bearer(stored, headers)
    secret = derived(scheme, key, stored)
    if scheme == STANDARD:
        return _of_standard(base64.b64decode(secret.removeprefix("whsec_")), headers, body, now)
    return _of_hmac(secret.encode(), headers, body)


def _of_bearer(stored: str, headers: Mapping[str, str]) -> str | None:
    kind, _, given = headers.get("authorization", "").partition(" ")
    if kind.lower() != "bearer" or not hmac.compare_digest(digest_of(given.strip()), stored):
        raise WrongSignature("Send the trigger's secret as Authorization: Bearer SECRET.")
    return _bounded(headers.get("idempotency-key"))


def _of_hmac(secret: bytes, headers: Mapping[str, str], body: bytes) -> str:
    given = next((headers[name] for name in SIGNATURE_HEADERS if name in headers), "")
    expected = f"sha256={hmac.digest(secret, body, 'sha256').hex()}"
    if not hmac.compare_digest(expected.encode(), given.encode(errors="surrogateescape")):
        advice = (
            "Send X-Hub-Signature-256 or X-Signature-256: sha256= and the HMAC-SHA256 of the body, as hexadecimals."
        )
        raise WrongSignature(advice)
    return hashlib.sha256(body).hexdigest()


def _of_standard(secret: bytes, headers: Mapping[str, str], body: bytes, now: float) -> str:
    name, at = headers.get("webhook-id", ""), headers.get("webhook-timestamp", "")
    if not _bounded(name) or not at.isdecimal() or len(at) > LONGEST_TIME:
        raise WrongSignature(f"Send {STANDARD_HEADERS}.")
    expected = signed_headers(name, int(at), body, secret)["webhook-signature"].encode()
    given = headers.get("webhook-signature", "").split()[:MOST_SIGNATURES]
    if not any(hmac.compare_digest(expected, one.encode()) for one in given):
        raise WrongSignature(f"Send {STANDARD_HEADERS}.")
    if abs(now - int(at)) > TOLERANCE_S:
        raise WrongSignature(f"The signature is of another time than now, by more than {TOLERANCE_S:.0f} s. Sign anew.")
    return name


def _bounded(name: str | None) -> str | None:
    """Return an id that can be kept. Raises WrongSignature."""
    if name is not None and not (0 < len(name) <= LONGEST_ID and name.isprintable()):
        raise WrongSignature(f"The id of a delivery must have 1 to {LONGEST_ID} printable characters.")
    return name
