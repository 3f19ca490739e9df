"""Principals: names, roles, budgets, and the rules for names, patterns and expiries of tokens."""

from __future__ import annotations

import hashlib
import json
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime

from msgspec import Struct

from app.storage.tokens import TokenRow
from tools.base.patterns import lazy_pattern
from tools.base.rights import Role

SAFE_NAME = lazy_pattern(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,63}")


class Budget(Struct, frozen=True):
    """Limits of one principal; None is no limit. Times in seconds."""

    runs: int | None = None  # active at a time
    requests_per_minute: int | None = None
    tokens_per_month: int | None = None
    tool_seconds_per_day: int | None = None
    cost_per_month: float | None = None  # in the currency of the prices


@dataclass(frozen=True, slots=True)
class Principal:
    """The owner of sessions, runs, jobs, approvals and files; `name` is unique.

    `tools` are patterns (`mcp__files__*`): if there are any, only tools that match one are allowed. Tools that match
    `disabled` are not. `profile` is the name of the one that no run of it can leave, `token` the SHA-256 of the access
    token of the request; both are empty without one. `sign_in` is the id of the lasting sign-in of the request, if any.
    `member` is the name of the member of a bot whose request it is; the principal is then that, or its account.
    `members`: its token may say which member of a chat speaks.
    """

    name: str
    role: Role
    tools: tuple[str, ...] = ()
    disabled: tuple[str, ...] = ()
    budget: Budget = field(default=Budget())
    token: str = field(default="", repr=False, compare=False)
    profile: str = ""
    sign_in: str = field(default="", compare=False)
    member: str = ""
    members: bool = False

    @property
    def is_linked(self) -> bool:
        """True for the member of a bot who speaks for an account."""
        return self.member not in ("", self.name)

    @property
    def keeper(self) -> str:
        """The name under which the keys of its conversations are kept: a member has its own beside its account's."""
        return self.member or self.name


def folder_name(principal: Principal) -> str:
    """A safe name for a folder of the principal, different for each."""
    if SAFE_NAME.fullmatch(principal.name):
        return principal.name
    return f"~{hashlib.sha256(principal.name.encode('utf-8', 'surrogatepass')).hexdigest()[:32]}"


LOCAL_USER = Principal("local", Role.ADMIN)

# A name is also a folder and a word of a command line.
NAME = lazy_pattern(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,63}")
NAME_RULE = "a name has 1 to 64 letters, digits, . _ - and begins with none of . -"
SPAN = lazy_pattern(r"([0-9]{1,7})([mhd])")
SECONDS = {"m": 60, "h": 3600, "d": 86_400}
LONGEST_S = 36_500 * 86_400
EXPIRY_RULE = "an expiry is a span such as 30d, 12h or 90m, or a future date or time such as 2027-01-01 (UTC)"


def in_use(row: TokenRow, now: float) -> bool:
    """True for a token that is neither revoked nor expired nor disabled."""
    return row.disabled_at is None and is_lasting(row, now)


def is_lasting(row: TokenRow, now: float) -> bool:
    """True for a token that is neither revoked nor expired: it can be enabled again if it is disabled."""
    return row.revoked is None and (row.expires is None or now < row.expires)


def principal_of(row: TokenRow, sign_in: str = "") -> Principal:
    tools, disabled, budget = (json.loads(text) for text in (row.tools, row.disabled, row.budget))
    role, limits = Role(row.role), Budget(**budget)
    return Principal(
        row.name,
        role,
        tools=tuple(tools),
        disabled=tuple(disabled),
        budget=limits,
        token=row.sha256,
        profile=row.profile,
        sign_in=sign_in,
        members=row.members,
    )


def checked_name(name: str) -> str:
    """Raises ValueError with the rule."""
    if not NAME.fullmatch(name):
        raise ValueError(NAME_RULE)
    if name.lower() == LOCAL_USER.name:
        raise ValueError(f"{LOCAL_USER.name} is the principal of requests without a token; choose another name")
    return name


def expiry(text: str, now: float) -> float:
    """The Unix time of a span from now, or of a date or time (UTC if it names no time zone). Raises ValueError."""
    if span := SPAN.fullmatch(text):
        at = now + int(span[1]) * SECONDS[span[2]]
    else:
        try:
            parsed = datetime.fromisoformat(text)
            at = (parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)).timestamp()
        except (ValueError, OverflowError):
            raise ValueError(EXPIRY_RULE) from None
    if not now < at <= now + LONGEST_S:
        raise ValueError(EXPIRY_RULE)
    return at


def checked_expiry(text: str) -> str:
    """Return the text if it is an expiry from now on. Raises ValueError."""
    expiry(text, time.time())
    return text
