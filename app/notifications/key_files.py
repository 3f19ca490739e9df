"""Keys of this server in private files of the data directory: they sign webhooks and requests to push services.

A webhook's secret is stored nowhere: it is derived from `signing.key`, the webhook's id and the number of its secret.
A copy of the database alone reveals no secret. Servers that share a database share these keys, too, encrypted in it.
"""

from __future__ import annotations

import asyncio
import hmac
import os
import secrets
from base64 import b64encode
from collections.abc import Callable
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

from app.replicas.secret_store import SecretStore
from app.storage.data_dir import make_private

FOLDER = "notifications"
SIGNING, VAPID, TRIGGERS = "signing.key", "vapid.key", "triggers.key"
KIND = "key"  # in the vault
SECRET_BYTES = 32
PREFIX = "whsec_"


class KeyFiles:
    """The files are made at their first use. Every method raises OSError."""

    def __init__(self, data_dir: Path) -> None:
        self._folder = data_dir / FOLDER
        self._known: dict[str, bytes] = {}

    async def share(self, vault: SecretStore) -> None:
        """Take the keys that all servers use; the first server gives its own. Raises StoreFailed, OSError."""
        from app.notifications.push_encryption import new_scalar  # 50 ms

        for name, make in ((SIGNING, _new_secret), (TRIGGERS, _new_secret), (VAPID, new_scalar)):
            path = self._folder / name
            own = await asyncio.to_thread(path.read_bytes) if path.exists() else make()
            self._known[name] = await vault.first(KIND, name, own)

    def webhook_secret(self, webhook: str, version: int) -> bytes:
        """Return the key that signs the messages of a webhook."""
        master = self.read(SIGNING, _new_secret)
        return hmac.digest(master, f"dragoman webhook {webhook} {version}".encode(), sha256)

    def marks_key(self) -> bytes:
        """Return the key of the digests of untrusted text."""
        return hmac.digest(self.read(SIGNING, _new_secret), b"dragoman marks", sha256)

    def read(self, name: str, make: Callable[[], bytes]) -> bytes:
        """Return the content of a file, which is made if it does not exist."""
        if name not in self._known:
            path = self._folder / name
            with suppress(FileExistsError):
                if not path.exists():
                    make_private(self._folder)
                    _write_new(path, make())
            self._known[name] = path.read_bytes()
        return self._known[name]


def _new_secret() -> bytes:
    return secrets.token_bytes(SECRET_BYTES)


def secret_text(secret: bytes) -> str:
    """Return a secret in the form of https://www.standardwebhooks.com, as receivers are configured with it."""
    return PREFIX + b64encode(secret).decode()


def _write_new(path: Path, content: bytes) -> None:
    """Write a file that is whole if it exists. Raises FileExistsError."""
    draft = path.with_suffix(f".{secrets.token_hex(4)}")
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    try:
        os.link(draft, path)
    finally:
        draft.unlink()
