"""GET /hooks and /rules: the hooks and the rules of the settings file, which alone changes them, for admins."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from app.core.hook_rows import HookRow
from routes.protocol.errors import ASCIIResponse
from routes.protocol.route import Route, tagged
from routes.services import services_of


async def list_hooks(request: Request) -> Response:
    """The hooks.

    In the order of the [settings](hooks.md), and how many of their calls have failed or were dropped since the start.
    """
    hooks = services_of(request).factory.hooks
    rows = [hook_fields(row) for row in hooks.rows] if hooks else []
    counts = {"failed": hooks.failed, "dropped": hooks.dropped} if hooks else {"failed": 0, "dropped": 0}
    return ASCIIResponse({"hooks": rows} | counts)


def hook_fields(row: HookRow) -> dict[str, Any]:
    """A hook as JSON. Of a command only the program: its arguments may hold what is not for the page."""
    fields: dict[str, Any] = {"name": row.name, "on": row.on, "kind": row.kind, "tools": list(row.tools)}
    return fields | {"calls": row.url or row.command[0], "time_limit_s": row.time_limit_s}


async def list_rules(request: Request) -> Response:
    """The operator's rules. Each [rule](rules.md) on the arguments of calls as the settings file has it."""
    rules = services_of(request).factory.rules.rules
    shown = [{**rule.row.model_dump(mode="json"), "name": rule.label} for rule in rules]
    return ASCIIResponse({"rules": shown})


ROUTES = tagged(
    "Server",
    Route(
        "GET /hooks",
        list_hooks,
        rights="admin",
        answer={"hooks": ["object"], "failed": "integer", "dropped": "integer"},
    ),
    Route("GET /rules", list_rules, rights="admin", answer={"rules": ["object"]}),
)
