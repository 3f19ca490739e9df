"""/rules: the operator's rules on the arguments of calls, for admins. The settings file alone changes them."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from routes.protocol.errors import ASCIIResponse
from routes.protocol.route import Route, tagged
from routes.services import services_of


async def list_rules(request: Request) -> Response:
    """The operator's rules. Each [rule](rules.md) on the arguments of calls as the settings file has it."""
    rules = services_of(request).factory.rules.rules
    shown = [{**rule.row.model_dump(mode="json"), "name": rule.label} for rule in rules]
    return ASCIIResponse({"rules": shown})


ROUTES = tagged(
    "Server",
    Route("GET /rules", list_rules, rights="admin", answer={"rules": ["object"]}),
)
