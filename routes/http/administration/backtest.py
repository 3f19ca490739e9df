"""POST /rules/backtest: the rules in force, or others, tried on the stored calls, for admins."""

from __future__ import annotations

from time import monotonic
from typing import Any

import msgspec
from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response

from app.config.sources import SettingsError
from app.core.rules import OperatorRule, ToolRule
from app.core.strict_model import StrictModel
from app.replay.backtest import DAYS, LONGEST_DAYS, Backtest, Tried
from routes.lanes.streams import until_left
from routes.protocol.errors import ASCIIResponse, Refused
from routes.protocol.requests import read_fields
from routes.protocol.route import Body, Route, tagged
from routes.services import services_of

MOST_S = 60.0
MOST_ROWS = 1_000


class BacktestRequest(StrictModel):
    """The body of POST /rules/backtest, which may be left out. Rows that are left out are those in force."""

    rules: list[OperatorRule] | None = Field(default=None, max_length=MOST_ROWS)
    tools: list[ToolRule] | None = Field(default=None, max_length=MOST_ROWS)
    days: float = Field(default=DAYS, gt=0, le=LONGEST_DAYS)
    principal: str = Field(default="", max_length=64)


async def try_rules(request: Request) -> Response:
    """Decide the stored calls again by these rules.

    See [trying a rule on the past](rules.md#trying-a-rule-on-the-past). No call is run. It is not `complete` after a
    minute, and ends when the client leaves.
    """
    services = services_of(request)
    body = await read_fields(request, BacktestRequest, services.settings.max_message_bytes, empty=True)
    try:
        tried = Tried.of(services.settings, body.rules, body.tools)
    except SettingsError as error:
        raise Refused(422, "invalid_request", str(error)) from error
    backtest = Backtest(
        store=services.store,
        tried=tried,
        days=body.days,
        principal=body.principal,
        redact=services.redactor.redact,
        until=monotonic() + MOST_S,
    )
    return await until_left(request, _report(backtest))


async def _report(backtest: Backtest) -> Response:
    fields: dict[str, Any] = msgspec.to_builtins(await backtest.report())
    del fields["changes"]
    return ASCIIResponse(fields)


ROUTES = tagged(
    "Server",
    Route(
        "POST /rules/backtest",
        try_rules,
        rights="admin",
        answer={
            "days": "number",
            "sessions": "integer",
            "calls": "integer",
            "changed": "integer",
            "then": "object",
            "now": "object",
            "asked_a_day": ["number"],
            "rules": "object",
            "untried": "object",
            "complete": "boolean",
            "groups": ["object"],
        },
        body=Body(BacktestRequest, {"days": 30}, required=False),
    ),
)
