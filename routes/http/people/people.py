"""/people: who may use this server, for admins: roles, last use, and a switch for each."""

from __future__ import annotations

import time
from collections import Counter
from typing import Any, Literal

from pydantic import Field, model_validator
from starlette.requests import Request
from starlette.responses import Response

from app.budget.kinds import TOKENS
from app.budget.usage_report import sums
from app.core.strict_model import StrictModel
from app.storage.audit import AuditRow
from app.storage.principals import in_use, is_lasting
from app.storage.tokens import TokenChanged, TokenRow
from app.transcript.run_request import NotFound
from routes.access.tokens import token_fields
from routes.protocol.errors import ASCIIResponse, Refused
from routes.protocol.requests import read_fields
from routes.protocol.route import Body, Route, tagged
from routes.services import Services, current_principal, services_of

LAST_ADMIN = "{name} is the last admin whose token is in use. Make another admin first."


class PersonRequest(StrictModel):
    """The body of PATCH /people/{name}: another role, or `disabled`, or both."""

    role: Literal["guest", "user", "admin"] | None = Field(default=None)
    disabled: bool | None = None

    @model_validator(mode="after")
    def _sensible(self) -> PersonRequest:
        if self.role is None and self.disabled is None:
            raise ValueError("send role or disabled")
        return self


async def list_people(request: Request) -> Response:
    """The people who may use the server, with what they use.

    Each name that has had a token, by name: role, state, `last_seen`, conversations, sign-ins, active runs and usage of
    the month.
    """
    services = services_of(request)
    rows = {row.name: row for row in await services.store.tokens()}  # oldest first: the last one stays
    return ASCIIResponse({"people": await _people(services, [rows[name] for name in sorted(rows, key=str.lower)])})


async def _people(services: Services, rows: list[TokenRow]) -> list[dict[str, Any]]:
    now = time.time()
    lasting = [one for one in await services.store.sign_ins() if one.expires > now]
    devices, seen = Counter(one.principal for one in lasting), dict[str, float]()
    for one in lasting:
        seen[one.principal] = max(seen.get(one.principal, 0.0), one.seen)
    activity = await services.store.activity()
    spent = await services.store.spent(month=TOKENS.now(now)[0])
    people = []
    for row in rows:
        sessions, last = activity.get(row.name, (0, 0.0))
        used = sums([one for one in spent if one.principal == row.name])
        last_seen = max(last, seen.get(row.name, 0.0)) or None
        numbers = {"sessions": sessions, "sign_ins": devices[row.name], "last_seen": last_seen, "usage": used}
        people.append(token_fields(row) | numbers | {"active_runs": len(await services.runs.of(row.name))})
    return people


async def change_person(request: Request) -> Response:
    """Give another role, or disable or enable.

    `{"role": "user"}` or `{"disabled": true}`. What runs for that person ends at once, on every server. 409
    `last_admin` for the only admin.
    """
    principal = current_principal(request)
    services, name = services_of(request), request.path_params["name"]
    body = await read_fields(request, PersonRequest)
    now = time.time()
    row = next((one for one in await services.store.tokens() if one.name == name and is_lasting(one, now)), None)
    if row is None:
        raise NotFound("No token of this name is in use or disabled. GET /people lists the names.")
    changed = _changed(row, body, now)
    if (changed.role, changed.disabled_at) != (row.role, row.disabled_at):
        if not await services.store.change_token(changed, now, [_audit(row, changed, principal.name, now)]):
            await _refuse_change(services, row)
        await services.presence.revoked(name)
    [person] = await _people(services, [one for one in await services.store.tokens() if one.sha256 == row.sha256])
    return ASCIIResponse(person)


def _changed(row: TokenRow, body: PersonRequest, now: float) -> TokenChanged:
    disabled_at = row.disabled_at
    if body.disabled is not None:
        disabled_at = (row.disabled_at or now) if body.disabled else None
    return TokenChanged(row.sha256, body.role or row.role, disabled_at, row.version + 1)


def _audit(row: TokenRow, changed: TokenChanged, by: str, now: float) -> AuditRow:
    decision = "changed"
    if changed.disabled_at != row.disabled_at:
        decision = "enabled" if changed.disabled_at is None else "disabled"
    why = f"role {changed.role} instead of {row.role}" if changed.role != row.role else ""
    return AuditRow(now, row.name, "person", decision, why=why, by=by)


async def _refuse_change(services: Services, row: TokenRow) -> None:
    """Raises Refused."""
    current = await services.store.token(row.sha256)
    if current is None or current.version != row.version or current.revoked is not None:
        raise Refused(409, "changed", f"{row.name} has been changed in the meantime. Reload it, then try again.")
    raise Refused(409, "last_admin", LAST_ADMIN.format(name=row.name))


async def disable_admin(services: Services, name: str) -> None:
    """Disable the admin token in use of this name, if there is one, before it is revoked. Raises Refused for the last.

    Without an admin no token could be made over HTTP. The store looks and writes in one step: two admins who remove
    each other at the same time would both find that another one is left.
    """
    now = time.time()
    rows = [one for one in await services.store.tokens() if one.name == name and one.role == "admin"]
    for row in (one for one in rows if in_use(one, now)):
        if not await services.store.change_token(TokenChanged(row.sha256, row.role, now, row.version + 1), now):
            await _refuse_change(services, row)


ROUTES = tagged(
    "Server",
    Route("GET /people", list_people, rights="admin", answer={"people": ["@Person"]}),
    Route(
        "PATCH /people/{name}",
        change_person,
        rights="admin",
        answer="@Person",
        errors=(409,),
        body=Body(PersonRequest, {"role": "user"}, partial=True),
    ),
)
