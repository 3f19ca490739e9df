"""Look up a principal's current rights: runs that start by themselves get those of their owner now.

A member for whom a bot's token speaks is a guest, with no more than the token has. Once an account has linked it, it is
the account, with no more than both have, and never an admin.
"""

from __future__ import annotations

import time
from dataclasses import replace  # noqa: TID251
from fnmatch import fnmatchcase
from typing import Protocol

from app.storage.people.members import MemberRow, MemberStore, bot_of
from app.storage.principals import LOCAL_USER, Principal, in_use, principal_of
from app.storage.tokens import TokenStore
from app.transcript.run_request import NotFound
from tools.base.rights import Role

NO_TOOL = ("",)  # no name matches
MANAGEMENT = ("manage_[!s]*", "manage_s[!c]*")  # all but manage_schedules: they act with all that an account may do


class RightsStore(TokenStore, MemberStore, Protocol):
    """The stores that rights are read from."""


async def principal_named(store: RightsStore, name: str, speaker: str = "") -> Principal:
    """Return the principal with its current rights; `speaker`: as this member of a bot has them. Raises NotFound."""
    member = speaker or name
    if bot := bot_of(member):
        row = await store.member(member)
        if row is None or (row.account or row.principal) != name:
            raise NotFound(f"{member} is no member any more that speaks for {name}.")
        return await member_principal(store, await principal_named(store, bot), row)
    tokens = await store.tokens()
    if not tokens and name == LOCAL_USER.name:
        return LOCAL_USER
    for row_of_token in tokens:
        if row_of_token.name == name and in_use(row_of_token, time.time()):
            return principal_of(row_of_token)
    raise NotFound(f"{name} no longer has a valid token.")


async def member_principal(store: RightsStore, bot: Principal, row: MemberRow) -> Principal:
    """Return the principal of a member of this bot. Raises NotFound where its account, or the right, is gone."""
    if not bot.members:
        raise NotFound(f"The token of {bot.name} may not say which member speaks.")
    own = replace(bot, name=row.principal, role=Role.GUEST, members=False, sign_in="", member=row.principal)
    if not row.account:
        return own
    account = await principal_named(store, row.account)
    if account.profile and bot.profile not in ("", account.profile):
        raise NotFound(f"The tokens of {bot.name} and {account.name} are bound to different profiles.")
    return replace(
        own,
        name=account.name,
        role=min(bot.role, account.role, Role.USER, key=lambda role: role.rank),
        tools=both(bot.tools, account.tools),
        disabled=(*bot.disabled, *account.disabled, *MANAGEMENT),
        budget=account.budget,
        profile=account.profile or bot.profile,
    )


def both(ours: tuple[str, ...], theirs: tuple[str, ...]) -> tuple[str, ...]:
    """Return patterns of the tools that both lists allow, where no pattern is all. Some that only overlap are lost."""
    if not ours or not theirs:
        return ours or theirs
    kept = [one for one in ours if any(_within(one, other) for other in theirs)]
    kept += [one for one in theirs if any(_within(one, other) for other in ours)]
    return tuple(dict.fromkeys(kept)) or NO_TOOL


def _within(one: str, other: str) -> bool:
    """Return True if all that one pattern matches the other surely matches, too."""
    return one == other or (not set("?[") & set(other) and fnmatchcase(one, other))
