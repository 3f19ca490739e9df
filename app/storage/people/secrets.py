"""Secrets for commands and MCP servers."""

from __future__ import annotations

from typing import Protocol

from app.storage.changes import Change, ChangeWriter


class SecretRow(Change, frozen=True):
    """A secret; a later row of its name replaces it.

    `spec` is the JSON of `app.config.secret_spec.SecretSpec`. `sealed` is the encrypted value, None where the source
    holds it. `used` is the time of the last call that it went with.
    """

    name: str
    spec: str
    sealed: bytes | None
    by: str
    at: float
    used: float | None = None


class SecretRemoved(Change, frozen=True):
    name: str


class SecretUsed(Change, frozen=True):
    name: str
    used: float


class SecretTable(ChangeWriter, Protocol):
    async def secrets(self) -> list[SecretRow]:
        """All of them, oldest first."""
