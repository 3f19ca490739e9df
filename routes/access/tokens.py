"""Access tokens: validated, created and revoked; the same rules for the command line and for HTTP."""

from __future__ import annotations

import json
import time
from typing import Annotated, Any, Literal

from msgspec.structs import asdict
from pydantic import AfterValidator, Field

from app.core.rules import checked_pattern
from app.core.strict_model import StrictModel
from app.storage.audit import AuditRow
from app.storage.people.members import MemberCodesForgotten, MembersUnlinked
from app.storage.people.sign_ins import SignInsEnded
from app.storage.principals import Budget, checked_expiry, checked_name, expiry, in_use, is_lasting
from app.storage.tokens import TokenRevoked, TokenRow, TokenStore
from routes.access.accounts import kind_of
from routes.access.token_text import fingerprint, new_token
from routes.protocol.errors import Refused

MOST_MONEY = 10**6  # of any currency, in the price table's units
MOST = 2**53  # of anything that is counted: JSON has no larger whole numbers
Patterns = Annotated[list[Annotated[str, AfterValidator(checked_pattern)]], Field(max_length=64)]


class BudgetRequest(StrictModel):
    """Limits on what the principal may use; a field that is left out has no limit."""

    runs: int | None = Field(default=None, ge=1, le=MOST)
    requests_per_minute: int | None = Field(default=None, ge=1, le=MOST)
    tokens_per_month: int | None = Field(default=None, ge=1, le=MOST)
    tool_seconds_per_day: int | None = Field(default=None, ge=1, le=MOST)
    cost_per_month: float | None = Field(default=None, gt=0, le=MOST_MONEY, allow_inf_nan=False)


class TokenRequest(StrictModel):
    """The body of POST /tokens."""

    name: Annotated[str, AfterValidator(checked_name)]
    role: Literal["guest", "user", "admin"] = "user"
    tools: Patterns = Field(default_factory=list)
    disabled: Patterns = Field(default_factory=list)
    expires: Annotated[str, AfterValidator(checked_expiry)] | None = None
    budget: BudgetRequest = Field(default_factory=BudgetRequest)
    profile: str | None = Field(default=None, min_length=1, max_length=64)
    members: bool = False


async def make_token(store: TokenStore, request: TokenRequest, by: str) -> tuple[str, TokenRow]:
    """A new token, and what is kept of it. Raises Refused if the name is in use, StoreFailed."""
    token, now = new_token(), time.time()
    row = TokenRow(
        sha256=fingerprint(token),
        name=request.name,
        role=request.role,
        created=now,
        tools=json.dumps(request.tools),
        disabled=json.dumps(request.disabled),
        budget=request.budget.model_dump_json(exclude_none=True),
        expires=None if request.expires is None else expiry(request.expires, now),
        profile=request.profile or "",
        members=request.members,
    )
    why = f"role {request.role}"
    why += time.strftime(", until %Y-%m-%d %H:%M UTC", time.gmtime(row.expires)) if row.expires else ""
    why += f", bound to the profile {row.profile}" if row.profile else ""
    why += ", may say which member speaks" if row.members else ""
    if await store.add_token(row, [AuditRow(now, request.name, "token", "made", why=why, by=by)]):
        return token, row
    known = next((one for one in await store.tokens() if one.name.lower() == request.name.lower()), row)
    if known.name != request.name:
        raise Refused(
            409, "name_in_use", f"There already was a token named {known.name}. Use that spelling, or another name."
        )
    advice = f"Revoke it first: dragoman token revoke {request.name}, or DELETE /tokens/{request.name}."
    raise Refused(409, "name_in_use", f"{request.name} already has an active token. {advice}")


async def revoke_token(store: TokenStore, name: str, by: str) -> None:
    """Revoke the tokens in use of this name. Raises Refused if there is none, StoreFailed."""
    now = time.time()
    theirs = [row for row in await store.tokens() if row.name == name and is_lasting(row, now)]
    if not theirs:
        advice = "`dragoman token list` or GET /tokens lists them."
        raise Refused(404, "not_found", f"No active token is named {name[:80]!a}. {advice}")
    audit = AuditRow(now, name, "token", "revoked", why="", by=by)
    ends = SignInsEnded(name), MembersUnlinked(name), MemberCodesForgotten(name)
    await store.write([*(TokenRevoked(row.sha256, now) for row in theirs), *ends, audit])


def token_fields(row: TokenRow) -> dict[str, Any]:
    """A token as JSON, without what would admit a client."""
    return {
        "name": row.name,
        "role": row.role,
        "by": kind_of(row),
        "state": state_of(row),
        "created": row.created,
        "expires": row.expires,
        "revoked": row.revoked,
        "tools": json.loads(row.tools),
        "disabled": json.loads(row.disabled),
        "profile": row.profile or None,
        "members": row.members,
        "budget": asdict(Budget(**json.loads(row.budget))),
    }


def state_of(row: TokenRow) -> str:
    if row.revoked is not None:
        return "revoked"
    if row.disabled_at is not None and is_lasting(row, time.time()):
        return "disabled"
    return "active" if in_use(row, time.time()) else "expired"
