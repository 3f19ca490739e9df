"""Web Push messages: encryption for one browser (RFC 8291, RFC 8188) and the server's identity (VAPID, RFC 8292).

Imported when a browser has subscribed: the library takes 50 ms of a start.
"""

from __future__ import annotations

import json
import os
from base64 import urlsafe_b64decode, urlsafe_b64encode

from cryptography.exceptions import InvalidKey
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from app.notifications.sender import UnfitKeys

CURVE = ec.SECP256R1()
RECORD = 4096  # bytes; push services take no longer messages
MOST_TEXT = RECORD - 86 - 17  # a header with the key in front, a tag and a delimiter behind
POINT_BYTES, AUTH_BYTES, SALT_BYTES, SCALAR_BYTES = 65, 16, 16, 32
TOKEN_LIFE_S = 12 * 3600  # at most a day


def to_text(data: bytes) -> str:
    return urlsafe_b64encode(data).rstrip(b"=").decode()


def to_bytes(text: str) -> bytes:
    """Decode base64url, padded or not. Raises ValueError."""
    return urlsafe_b64decode(text.encode("ascii") + b"=" * (-len(text) % 4))


def check_keys(p256dh: str, auth: str) -> None:
    """Raises UnfitKeys."""
    try:
        point, secret = to_bytes(p256dh), to_bytes(auth)
        ec.EllipticCurvePublicKey.from_encoded_point(CURVE, point)
    except (ValueError, InvalidKey) as error:
        raise UnfitKeys("keys.p256dh is not a point of the curve P-256, or keys.auth is not base64url") from error
    if len(point) != POINT_BYTES or len(secret) != AUTH_BYTES:
        raise UnfitKeys(f"keys.p256dh has {POINT_BYTES} bytes and keys.auth {AUTH_BYTES}, both in base64url")


def encrypted(text: bytes, p256dh: str, auth: str, *, salt: bytes = b"", scalar: int | None = None) -> bytes:
    """Return the body of a push message, in the coding aes128gcm. `salt` and `scalar` are for known answers."""
    own = ec.generate_private_key(CURVE) if scalar is None else ec.derive_private_key(scalar, CURVE)
    salt = salt or os.urandom(SALT_BYTES)
    theirs, mine = to_bytes(p256dh), point_of(own)
    shared = own.exchange(ec.ECDH(), ec.EllipticCurvePublicKey.from_encoded_point(CURVE, theirs))
    secret = _derived(shared, to_bytes(auth), b"WebPush: info\0" + theirs + mine, 32)
    key = _derived(secret, salt, b"Content-Encoding: aes128gcm\0", 16)
    nonce = _derived(secret, salt, b"Content-Encoding: nonce\0", 12)
    record = AESGCM(key).encrypt(nonce, text[:MOST_TEXT] + b"\x02", None)
    return salt + RECORD.to_bytes(4, "big") + bytes([len(mine)]) + mine + record


def _derived(secret: bytes, salt: bytes, info: bytes, length: int) -> bytes:
    return HKDF(SHA256(), length, salt, info).derive(secret)


def point_of(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.public_key().public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)


def new_scalar() -> bytes:
    """Return a new private key, as it is kept."""
    return ec.generate_private_key(CURVE).private_numbers().private_value.to_bytes(SCALAR_BYTES, "big")


def public_key(scalar: bytes) -> str:
    """Return the public key of the server, as a browser wants it for a subscription."""
    return to_text(point_of(_key(scalar)))


def identity(scalar: bytes, origin: str, contact: str, now: float) -> str:
    """Return the Authorization header for a push service."""
    claims = {"aud": origin, "exp": int(now) + TOKEN_LIFE_S, "sub": contact}
    parts = [to_text(json.dumps(one).encode()) for one in ({"typ": "JWT", "alg": "ES256"}, claims)]
    signed = ".".join(parts)
    numbers = decode_dss_signature(_key(scalar).sign(signed.encode(), ec.ECDSA(SHA256())))
    signature = b"".join(number.to_bytes(SCALAR_BYTES, "big") for number in numbers)
    return f"vapid t={signed}.{to_text(signature)}, k={public_key(scalar)}"


def _key(scalar: bytes) -> ec.EllipticCurvePrivateKey:
    return ec.derive_private_key(int.from_bytes(scalar, "big"), CURVE)
