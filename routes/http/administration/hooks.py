"""GET /hooks: the hooks that the settings name, and how they fare, for admins."""

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
    hooks = services_of(request).hooks
    rows = [hook_fields(row) for row in hooks.rows] if hooks else []
    counts = {"failed": hooks.failed, "dropped": hooks.dropped} if hooks else {"failed": 0, "dropped": 0}
    return ASCIIResponse({"hooks": rows} | counts)


def hook_fields(row: HookRow) -> dict[str, Any]:
    """A hook as JSON. Of a command only the program: its arguments may hold what is not for the page."""
    fields: dict[str, Any] = {"name": row.name, "on": row.on, "kind": row.kind, "tools": list(row.tools)}
    return fields | {"calls": row.url or row.command[0], "time_limit_s": row.time_limit_s}


ROUTES = tagged(
    "Server",
    Route(
        "GET /hooks",
        list_hooks,
        rights="admin",
        answer={"hooks": ["object"], "failed": "integer", "dropped": "integer"},
    ),
)
