"""The tokens of MCP servers: in files, or where else the host puts them."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, nullcontext, suppress
from pathlib import Path
from typing import Any, Protocol

from msgspec import Struct, field

_NEWEST = "newest"


class TokenPlace(Protocol):
    """Keeps tokens under names. `is_shared`: other servers read and replace them, too."""

    is_shared: bool

    async def read(self, name: str) -> bytes:
        """Return what is kept, empty if there is nothing."""
        ...

    async def write(self, name: str, content: bytes) -> None: ...

    async def remove(self, prefix: str) -> None:
        """Remove all whose names begin so."""

    def lock(self, name: str) -> AbstractAsyncContextManager[None]:
        """Be the only one that replaces it."""
        ...


class TokenFolder:
    """Files that only their owner can read."""

    is_shared = False

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    async def read(self, name: str) -> bytes:
        with suppress(OSError):
            return await asyncio.to_thread(self._path(name).read_bytes)
        return b""

    async def write(self, name: str, content: bytes) -> None:
        await asyncio.to_thread(self._write, self._path(name), content)

    async def remove(self, prefix: str) -> None:
        for path in self._folder.glob(f"{prefix}*.json"):
            await asyncio.to_thread(path.unlink, missing_ok=True)

    def lock(self, name: str) -> AbstractAsyncContextManager[None]:
        return nullcontext()

    def _path(self, name: str) -> Path:
        return self._folder / f"{name}.json"

    def _write(self, path: Path, content: bytes) -> None:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        new = path.with_suffix(f".{secrets.token_hex(4)}")
        try:
            with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())  # a refresh token that was exchanged is worth nothing any more
            new.replace(path)
        except OSError:
            new.unlink(missing_ok=True)
            raise


class TokenFile(Struct, frozen=True):
    """The tokens for one server, by issuer, so that they are sent only to the issuer that gave them.

    `on_secret` is called with every secret that is read or written.
    """

    place: TokenPlace
    name: str
    on_secret: Callable[[str], object] = field(default=lambda secret: None)

    async def _all(self) -> dict[str, Any]:
        with suppress(ValueError):
            written = json.loads(await self.place.read(self.name) or b"{}")
            if isinstance(written, dict) and isinstance(written.get("issuers"), dict):
                return written
        return {"issuers": {}}

    async def read(self) -> dict[str, Any]:
        """Return the latest tokens; empty if there are none, or they are invalid."""
        written = await self._all()
        kept = written["issuers"].get(written.get(_NEWEST))
        if not isinstance(kept, dict):
            return {}
        self._report_secrets(kept)
        return kept

    async def write(self, issuer: str, kept: dict[str, Any]) -> None:
        self._report_secrets(kept)
        written = await self._all()
        written["issuers"][issuer] = kept
        written[_NEWEST] = issuer
        await self.place.write(self.name, json.dumps(written).encode())

    def _report_secrets(self, kept: dict[str, Any]) -> None:
        for part in (kept.get("tokens"), kept.get("client")):
            for name in ("access_token", "refresh_token", "client_secret"):
                if isinstance(part, dict) and isinstance(part.get(name), str):
                    self.on_secret(part[name])
