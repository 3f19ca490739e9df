"""Secrets that servers of one database share, encrypted in its table `sealed` with DRAGOMAN_SECRET_KEY.

The setting may be several keys, each long enough, separated by commas: the first one encrypts, each decrypts, and a
start encrypts anew what another one has. A content belongs to its kind and name: put elsewhere in the table, it is not
readable.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import time
from collections.abc import AsyncGenerator, Callable, Collection, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Protocol

from app.storage.changes import StoreFailed

CHECK = "check"  # kind and name of what shows that the key is the right one
SHORTEST = 32  # characters of a key
MARK_BYTES, NONCE_BYTES = 4, 12
AT_ONCE = 2  # locks that a server holds, each with a connection of the store
KEPT_S = 3600.0  # that a secret is kept which nothing refers to yet
WRONG = (
    "DRAGOMAN_SECRET_KEY is not the key that the secrets of this database are encrypted with ({kind} {name}). Set the "
    "same key as at the other servers; to replace it, set NEW,OLD at each of them."
)
MISSING = "The secrets of this database are encrypted: set DRAGOMAN_SECRET_KEY to the same key as at the other servers."
NONE_SET = (
    "DRAGOMAN_SECRET_KEY is not set: keys and tokens stay in this server's data directory, unknown to other servers"
)

logger = logging.getLogger(__name__)


class SealedStore(Protocol):
    """The part of a database that holds encrypted secrets. Every method raises StoreFailed."""

    async def sealed(self, kind: str) -> dict[str, bytes]: ...

    async def sealed_kinds(self) -> list[str]: ...

    async def put_sealed(self, kind: str, name: str, content: bytes, *, only_new: bool = False) -> None: ...

    async def remove_sealed(self, kind: str, names: Collection[str], before: float) -> None: ...

    def sealed_lock(self, kind: str, name: str) -> AbstractAsyncContextManager[None]: ...


class Seal:
    """AES-GCM with keys derived from the given ones."""

    def __init__(self, keys: Sequence[str]) -> None:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # 20 ms of a start, for servers that share

        derived = [hashlib.sha256(b"dragoman sealed\n" + key.encode()).digest() for key in keys]
        self._keys = {_mark(key): AESGCM(key) for key in derived}
        self._first = _mark(derived[0])

    def close(self, kind: str, name: str, content: bytes) -> bytes:
        nonce = os.urandom(NONCE_BYTES)
        return self._first + nonce + self._keys[self._first].encrypt(nonce, content, _place(kind, name))

    def open(self, kind: str, name: str, sealed: bytes) -> bytes:
        """Raises StoreFailed if no key fits."""
        from cryptography.exceptions import InvalidTag

        nonce, content = sealed[MARK_BYTES : MARK_BYTES + NONCE_BYTES], sealed[MARK_BYTES + NONCE_BYTES :]
        try:
            return self._keys[sealed[:MARK_BYTES]].decrypt(nonce, content, _place(kind, name))
        except (KeyError, InvalidTag, ValueError):
            raise StoreFailed(WRONG.format(kind=kind, name=name)) from None

    def is_old(self, sealed: bytes) -> bool:
        return sealed[:MARK_BYTES] != self._first


class SecretStore:
    """Every method raises StoreFailed. `on_put` is called with the kind of what this server has changed."""

    def __init__(self, store: SealedStore, seal: Seal, on_put: Callable[[str], None]) -> None:
        self._store = store
        self._seal = seal
        self._on_put = on_put
        self._locks = asyncio.Semaphore(AT_ONCE)

    async def all(self, kind: str) -> dict[str, bytes]:
        """The secrets of a kind, by name."""
        return {name: self._seal.open(kind, name, one) for name, one in (await self._store.sealed(kind)).items()}

    async def get(self, kind: str, name: str) -> bytes | None:
        return (await self.all(kind)).get(name)

    async def put(self, kind: str, name: str, content: bytes) -> None:
        await self._store.put_sealed(kind, name, self._seal.close(kind, name, content))
        self._on_put(kind)

    async def first(self, kind: str, name: str, content: bytes) -> bytes:
        """Put it if there is none; return what there is: every server gets the same."""
        await self._store.put_sealed(kind, name, self._seal.close(kind, name, content), only_new=True)
        return (await self.all(kind))[name]

    async def remove(self, kind: str, names: Collection[str], older_than_s: float = 0.0) -> None:
        await self._store.remove_sealed(kind, names, time.time() + 1 - older_than_s)

    @asynccontextmanager
    async def lock(self, kind: str, name: str) -> AsyncGenerator[None, None]:
        """Be the only server that replaces this secret."""
        async with self._locks, self._store.sealed_lock(kind, name):
            yield

    async def check(self) -> None:
        """Prove that the key is the right one, and encrypt anew what an old one has. Raises StoreFailed."""
        await self.first(CHECK, CHECK, CHECK.encode())
        for kind in await self._store.sealed_kinds():
            for name, one in (await self._store.sealed(kind)).items():
                if self._seal.is_old(one):
                    await self._store.put_sealed(
                        kind, name, self._seal.close(kind, name, self._seal.open(kind, name, one))
                    )


async def opened_vault(
    store: SealedStore, secret_key: str | None, on_put: Callable[[str], None] = lambda _: None
) -> SecretStore | None:
    """The vault of a shared database; None without a key, as long as nothing is encrypted. Raises StoreFailed."""
    if secret_key is None:
        if await store.sealed_kinds():
            raise StoreFailed(MISSING)
        logger.warning(NONE_SET)
        return None
    keys = [key.strip() for key in secret_key.split(",")]
    if any(len(key) < SHORTEST for key in keys):
        keys = [secret_key]  # a comma in a key
    vault = SecretStore(store, Seal(keys), on_put)
    await vault.check()
    return vault


def _mark(key: bytes) -> bytes:
    return hashlib.sha256(b"mark\n" + key).digest()[:MARK_BYTES]


def _place(kind: str, name: str) -> bytes:
    return f"{kind}\n{name}".encode()
