"""OAuth sign-ins to MCP servers, and their tokens.

A connection that needs a sign-in ends with `NeedsAuth` and the page to open. The page redirects to the callback, which
calls `SignIns.finish` with the code; the next connection exchanges it for tokens. Nothing waits for the person.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tools.mcp.auth.token_file import TokenFile, TokenFolder, TokenPlace
from tools.mcp.model import ServerConfig, SignInFailed

if TYPE_CHECKING:
    import httpx2

    from tools.mcp.auth.oauth_flow import Flow


class SignIns:
    """The sign-ins to all servers. `auth` is for `Hooks.auth`.

    `callback_url` is where the pages lead back to; `client_metadata_url`, an https page with the client's metadata,
    saves the registration at servers that support it.
    """

    def __init__(
        self,
        place: Path | TokenPlace,
        callback_url: str,
        *,
        client_metadata_url: str | None = None,
        on_secret: Callable[[str], object] = lambda secret: None,
        private_hosts: Sequence[str] = (),
    ) -> None:
        self.callback_url = callback_url
        self._place = TokenFolder(place) if isinstance(place, Path) else place
        self._client_metadata_url = client_metadata_url
        self._on_secret = on_secret
        self._private_hosts = private_hosts
        self._flows: dict[tuple[str, ...], Flow] = {}  # by server, and what tokens depend on

    def auth(self, config: ServerConfig) -> httpx2.Auth | None:
        """Return the authentication of a server; None if it has no URL, or its entry has a header for it."""
        if not config.url or any(name.lower() == "authorization" for name in config.headers):
            return None
        from tools.mcp.auth.oauth_flow import Flow  # the SDK takes 0.8 s

        key = (config.name, config.url, config.client_id, config.client_secret, self.callback_url)
        if key not in self._flows:
            self._flows[key] = Flow(
                config, self._file(config), self.callback_url, self._client_metadata_url, self._private_hosts
            )
        return self._flows[key]

    def finish(self, state: str, code: str, issuer: str | None = None) -> str:
        """Complete a sign-in with the code of the redirect; return the name of the server to reconnect."""
        return self._waiting(state).finish(state, code, issuer)

    def refuse(self, state: str, reason: str) -> str:
        """Record a refused sign-in; return the name of its server."""
        return self._waiting(state).refuse(reason)

    async def forget(self, name: str) -> None:
        """Sign out of a server."""
        for key in [key for key in self._flows if key[0] == name]:
            await self._flows.pop(key).close()
        await self._place.remove(f"{_slug(name)}-")

    async def follow(self) -> list[str]:
        """Take over the tokens that other processes have got; return the names of their servers."""
        return [key[0] for key, flow in list(self._flows.items()) if await flow.follow()]

    async def close(self) -> None:
        flows, self._flows = list(self._flows.values()), {}
        await asyncio.gather(*(flow.close() for flow in flows))

    def _waiting(self, state: str) -> Flow:
        for flow in self._flows.values():
            if flow.waits_for(state):
                return flow
        raise SignInFailed(
            "This sign-in has expired or was replaced. Reconnect the server, and open the new sign-in page."
        )

    def _file(self, config: ServerConfig) -> TokenFile:
        key = json.dumps([config.name, config.url, ""])  # the last has named a user once
        name = f"{_slug(config.name)}-{hashlib.sha256(key.encode()).hexdigest()[:32]}"
        return TokenFile(self._place, name, self._on_secret)


def _slug(name: str) -> str:
    """The name as part of a file's name, different for different names."""
    return f"{re.sub('[^A-Za-z0-9]', '_', name)[:40]}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"
