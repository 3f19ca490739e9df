"""Sign-ins that last: one row for each browser that stays signed in."""

from __future__ import annotations

from typing import Protocol

from app.storage.changes import Change, ChangeWriter


class SignInRow(Change, frozen=True):
    """`sha256` is of the cookie's secret and the page's key together, `token` that of the token it is made from."""

    id: str
    sha256: str
    token: str
    principal: str
    device: str  # the User-Agent of the browser
    created: float
    seen: float
    expires: float
    session: str = ""  # of the identity provider, whose end ends the sign-in; empty without one


class SignInSeen(Change, frozen=True):
    id: str
    seen: float


class SignInEnded(Change, frozen=True):
    id: str


class SignInsEnded(Change, frozen=True):
    """All sign-ins of one person."""

    principal: str


class SignInsExpired(Change, frozen=True):
    now: float


class SignInStore(ChangeWriter, Protocol):
    async def sign_in(self, id: str) -> SignInRow | None: ...

    async def sign_ins(self, principal: str | None = None) -> list[SignInRow]:
        """Those of one person or of all, newest first."""
