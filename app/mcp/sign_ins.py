"""The sign-ins to MCP servers: where their pages lead back to, and where their tokens are kept."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from app.config.settings import Settings
from app.redaction.redactor import Redactor
from app.replicas.secret_store import SecretStore
from app.storage.changes import StoreFailed
from tools.mcp.auth.oauth import SignIns
from tools.mcp.auth.token_file import TokenFolder

CALLBACK = "/mcp/callback"
KIND = "oauth"  # in the vault
ANY_OR_LOCAL = ("0.0.0.0", "::", "127.0.0.1", "::1")


class SealedTokens:
    """The tokens of all servers that share a database; those in files of a time before are read as long as they last.

    A `tools.mcp.auth.token_file.TokenPlace`: a database that fails is an OSError there.
    """

    is_shared = True

    def __init__(self, vault: SecretStore, before: TokenFolder) -> None:
        self._vault = vault
        self._before = before

    async def read(self, name: str) -> bytes:
        async with _as_os_error():
            return await self._vault.get(KIND, name) or await self._before.read(name)

    async def write(self, name: str, content: bytes) -> None:
        async with _as_os_error():
            await self._vault.put(KIND, name, content)

    async def remove(self, prefix: str) -> None:
        async with _as_os_error():
            names = [name for name in await self._vault.all(KIND) if name.startswith(prefix)]
            await self._vault.remove(KIND, names)
        await self._before.remove(prefix)

    @asynccontextmanager
    async def lock(self, name: str) -> AsyncGenerator[None, None]:
        async with _as_os_error(), self._vault.lock(KIND, name):
            yield


@asynccontextmanager
async def _as_os_error() -> AsyncGenerator[None, None]:
    try:
        yield
    except StoreFailed as failure:
        raise OSError(str(failure)) from failure


def sign_ins_of(settings: Settings, redactor: Redactor, vault: SecretStore | None) -> SignIns:
    """Their tokens lie in the data directory, or where all servers of the database have them."""
    folder = settings.data_dir / "mcp"
    place = SealedTokens(vault, TokenFolder(folder)) if vault else folder
    return SignIns(place, callback_url(settings), on_secret=redactor.add, private_hosts=settings.private_hosts)


def callback_url(settings: Settings) -> str:
    """The URL that sign-in pages lead back to: this server, as a browser on the same machine reaches it."""
    host = "localhost" if settings.host in ANY_OR_LOCAL else settings.host
    return f"http://{f'[{host}]' if ':' in host else host}:{settings.port}{CALLBACK}"
