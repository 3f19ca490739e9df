"""Usage of principals: budgets and when they reset, and models by month."""

from __future__ import annotations

import time

from starlette.requests import Request
from starlette.responses import Response

from app.budget.kinds import TOKENS
from app.budget.usage_report import by, models, sums
from app.policy.current_rights import RightsStore, principal_named
from app.storage.people.members import bot_of
from app.storage.principals import LOCAL_USER, Principal, principal_of
from app.transcript.run_request import NotFound
from routes.protocol.errors import ASCIIResponse, Refused
from routes.protocol.requests import admins_only
from routes.protocol.route import Query, Route, tagged
from routes.services import current_principal, services_of
from tools.base.patterns import lazy_pattern

EVERYBODY = "*"  # no name
MONTH = lazy_pattern(r"[0-9]{4}-(0[1-9]|1[0-2])")


async def show_usage(request: Request) -> Response:
    """Budgets and usage. Your budgets, how much is used and when they reset; tokens and cost by `months` and models."""
    services, principal = services_of(request), current_principal(request)
    name, month = request.query_params.get("principal", principal.name), _month(request)
    if name != principal.name:
        admins_only(principal)
    if name == EVERYBODY:
        month = month or TOKENS.now(time.time())[0]
        spent = await services.store.spent(month=month)
        return ASCIIResponse({"month": month, **sums(spent), "principals": by("principal", spent, models)})
    if name != principal.name:
        principal = await _once_known(services.store, name)
    usage = await services.runs.ledger.usage(principal)
    months = by("month", await services.store.spent(principal=name, month=month), models)
    return ASCIIResponse({"principal": name, "usage": usage, "months": months})


def _month(request: Request) -> str | None:
    """Raises Refused."""
    month = request.query_params.get("month")
    if month is None or MONTH.fullmatch(month):
        return month
    raise Refused(400, "invalid_query", f"month is {month[:20]!a}; send one such as 2026-11")


async def _once_known(store: RightsStore, name: str) -> Principal:
    """Somebody with a token, in use or not. Raises NotFound."""
    if bot_of(name):
        return await principal_named(store, name)
    for row in reversed(await store.tokens()):
        if row.name == name:
            return principal_of(row)
    if name == LOCAL_USER.name:
        return LOCAL_USER
    raise NotFound(f"There is no {name[:80]!a}. GET /tokens lists whom there is.")


ROUTES = tagged(
    "Server",
    Route(
        "GET /usage",
        show_usage,
        rights="user",
        answer="@Budgets",
        query=(
            Query("month", "such as 2026-11"),
            Query("principal", "for admins: another one, `*` for all"),
        ),
    ),
)
