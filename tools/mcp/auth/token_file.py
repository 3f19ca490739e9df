"""Files with the tokens of MCP servers."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from msgspec import Struct, field

_NEWEST = "newest"


class TokenFile(Struct, frozen=True):
    """The tokens of one user for one server, by issuer, so that they are sent only to the issuer that gave them.

    Only its owner can read it. `on_secret` is called with every secret that is read or written.
    """

    path: Path
    on_secret: Callable[[str], object] = field(default=lambda secret: None)

    async def read(self) -> dict[str, Any]:
        """Return the latest tokens; empty if there is no file, or it is invalid."""
        return await asyncio.to_thread(self._read)

    async def write(self, issuer: str, kept: dict[str, Any]) -> None:
        await asyncio.to_thread(self._write, issuer, kept)

    async def remove(self) -> None:
        await asyncio.to_thread(self.path.unlink, missing_ok=True)

    def _all(self) -> dict[str, Any]:
        with suppress(OSError, ValueError):
            written = json.loads(self.path.read_bytes())
            if isinstance(written, dict) and isinstance(written.get("issuers"), dict):
                return written
        return {"issuers": {}}

    def _read(self) -> dict[str, Any]:
        written = self._all()
        kept = written["issuers"].get(written.get(_NEWEST))
        if not isinstance(kept, dict):
            return {}
        self._report_secrets(kept)
        return kept

    def _write(self, issuer: str, kept: dict[str, Any]) -> None:
        self._report_secrets(kept)
        written = self._all()
        written["issuers"][issuer] = kept
        written[_NEWEST] = issuer
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        new = self.path.with_suffix(f".{secrets.token_hex(4)}")
        try:
            with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
                json.dump(written, file)
                file.flush()
                os.fsync(file.fileno())  # a refresh token that was exchanged is worth nothing any more
            new.replace(self.path)
        except OSError:
            new.unlink(missing_ok=True)
            raise

    def _report_secrets(self, kept: dict[str, Any]) -> None:
        for part in (kept.get("tokens"), kept.get("client")):
            for name in ("access_token", "refresh_token", "client_secret"):
                if isinstance(part, dict) and isinstance(part.get(name), str):
                    self.on_secret(part[name])
