"""Access tokens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from msgspec import Struct

from app.storage.changes import Change, ChangeWriter


class TokenRow(Change, frozen=True):
    """An access token: only its SHA-256 is stored. `tools`, `disabled`, `budget`: JSON of the principal's fields."""

    sha256: str
    name: str
    role: str
    created: float
    tools: str = "[]"
    disabled: str = "[]"
    budget: str = "{}"
    expires: float | None = None
    revoked: float | None = None
    profile: str = ""  # that no run of the principal can leave


class TokenRevoked(Change, frozen=True):
    sha256: str
    revoked: float


class TokenCounts(Struct, frozen=True):
    """Numbers of tokens: ever made, revoked, in use. While none of them changes, no access right changes."""

    all: int
    revoked: int
    in_use: int


class TokenStore(ChangeWriter, Protocol):
    async def tokens(self) -> list[TokenRow]:
        """All tokens, oldest first, revoked and expired ones included."""
        ...

    async def token(self, sha256: str) -> TokenRow | None: ...

    async def token_counts(self, now: float) -> TokenCounts: ...

    async def add_token(self, row: TokenRow, also: Sequence[Change] = ()) -> bool:
        """Return False, and write nothing, if its name is in use, or was used with other upper and lower case."""
        ...
