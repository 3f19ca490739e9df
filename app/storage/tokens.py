"""Access tokens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

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
    disabled_at: float | None = None  # since when it is switched off
    version: int = 0  # rises with each change of its rights
    members: bool = False  # it may say which member of a chat speaks


class TokenRevoked(Change, frozen=True):
    sha256: str
    revoked: float


class TokenChanged(Struct, frozen=True):
    """Other rights of a token."""

    sha256: str
    role: str
    disabled_at: float | None
    version: int


class TokenCounts(Struct, frozen=True):
    """Numbers of tokens: ever made, revoked, in use, changed. While none of them changes, no access right changes."""

    all: int
    revoked: int
    in_use: int
    changes: int = 0


class TokenStore(ChangeWriter, Protocol):
    async def tokens(self) -> list[TokenRow]:
        """All tokens, oldest first, revoked and expired ones included."""

    async def token(self, sha256: str) -> TokenRow | None: ...

    async def token_counts(self, now: float) -> TokenCounts: ...

    async def change_token(self, change: TokenChanged, now: float, also: Sequence[Change] = ()) -> bool:
        """Return False, and write nothing, if it was changed meanwhile or no admin would be left."""

    async def add_token(self, row: TokenRow, also: Sequence[Change] = ()) -> bool:
        """Return False, and write nothing, if its name is in use, or was used with other upper and lower case."""


class Counted(Struct, frozen=True):
    """The number of requests in a minute, this one included, and the seconds until it ends."""

    requests: int
    left_s: float


@runtime_checkable
class SharedRateStore(Protocol):
    """The requests a minute of servers that share a database. Every method raises StoreFailed."""

    async def count_request(self, name: str) -> Counted: ...

    async def counted_token(self, sha256: str, prefix: str, *, always: bool) -> tuple[TokenRow | None, Counted | None]:
        """Find a token, and count a request under `prefix` and its name if it is in use, in one round trip.

        Unless `always`, only the requests of tokens with a limit of their own are counted.
        """
