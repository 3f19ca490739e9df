"""Members: persons for whom the token of a bot speaks, each a principal of its own, or an account that has linked it.

The name of a member's principal is TOKEN/MEMBER. No name of a token has a `/`, and no two members have one name.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Protocol

from app.storage.changes import Change, ChangeWriter
from tools.base.patterns import lazy_pattern

MOST_OUTSIDE = 200
PLAIN = lazy_pattern(r"[A-Za-z0-9_:@.+-]{1,64}")  # without ~, with which the others begin
OUTSIDE_RULE = f"send 1 to {MOST_OUTSIDE} printable characters"


def checked_outside(text: str) -> str:
    """Check the name that another service has for a conversation or a person. Raises ValueError."""
    if not 1 <= len(text) <= MOST_OUTSIDE or not text.isprintable() or not text.strip():
        raise ValueError(OUTSIDE_RULE)
    return text


def member_name(token: str, member: str) -> str:
    """The name of a member's principal: of ASCII letters, also where the service's name for the person is not."""
    plain = member if PLAIN.fullmatch(member) else f"~{hashlib.sha256(member.encode()).hexdigest()[:32]}"
    return f"{token}/{plain}"


def bot_of(principal: str) -> str:
    """The name of the token that speaks for a member; empty for the name of a token itself."""
    token, separator, _ = principal.partition("/")
    return token if separator else ""


class MemberRow(Change, frozen=True):
    """`principal` is its own, `token` the name of the bot's, `account` the one that it is linked to, or empty."""

    principal: str
    token: str
    member: str
    created: float
    account: str = ""


class MemberLinked(Change, frozen=True):
    principal: str
    account: str


class MemberRemoved(Change, frozen=True):
    principal: str


class MembersUnlinked(Change, frozen=True):
    """The links of a token end: those to its account, and those of its members."""

    name: str


class MemberCode(Change, frozen=True):
    """By which `account` may be linked to a member of `token`, once; a later one of the account replaces it."""

    account: str
    token: str
    sha256: str
    expires: float


class MemberCodesForgotten(Change, frozen=True):
    """The codes of a token end: those for its account, and those for its members."""

    name: str


class MemberStore(ChangeWriter, Protocol):
    async def member(self, principal: str) -> MemberRow | None: ...

    async def members(self, token: str) -> list[MemberRow]:
        """Those of a token, oldest first."""

    async def linked_members(self, account: str) -> list[MemberRow]:
        """Those that are linked to an account, oldest first."""

    async def member_code(self, sha256: str) -> MemberCode | None: ...

    async def add_member(self, row: MemberRow, most: int, also: Sequence[Change] = ()) -> bool:
        """Return False, and write nothing, if there is one of this name, or there are `most` of its token."""

    async def use_code(self, code: MemberCode, also: Sequence[Change]) -> bool:
        """Remove a code and write the changes; return False, and write nothing, if it is used or replaced."""
