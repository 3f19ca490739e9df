"""The table of what an agent may do to the server: an action is a route, an area a tool with its actions.

The areas are for admins, but for `schedules`, which all may have: its routes show and change what is the person's own.

Left out on purpose: approvals, grants and the trust in MCP servers (a model must not decide on its own calls), creating
tokens (the secret would pass through the model), keys of endpoints, memories that would count as written by the person,
schedules that do not deny what needs approval, new webhooks (data goes to their address, and the secret would pass
through the model), and whatever streams, such as the begin of a conversation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from msgspec import Struct

from routes.management.reminders import in_session

TEXT, FLAG, FROM_0 = {"type": "string"}, {"type": "boolean"}, {"type": "integer", "minimum": 0}
TEXTS, FIELDS = {"type": "array", "items": TEXT}, {"type": "object"}
TIMES = {"cron": TEXT, "every": TEXT, "once": TEXT, "time_zone": TEXT}
NONE: Mapping[str, Any] = MappingProxyType({})
ACT = "/mcp/servers/{name:path}/{action}"


class Action(Struct, frozen=True):
    """One route as an action.

    `query` and `body` are JSON Schemas of their fields by name. The parameters of the path are texts, but for those
    that `fixed` has. `send` makes the route's body of that of a call, and its conversation. `shows`: its answer has
    what conversations have, without their labels.
    """

    name: str
    method: str
    path: str
    body: Mapping[str, Any] = NONE
    query: Mapping[str, Any] = NONE
    fixed: Mapping[str, str] = NONE
    send: Callable[[Mapping[str, Any], str], Mapping[str, Any]] = lambda body, _: body
    shows: bool = False


class Area(Struct, frozen=True):
    """The actions of one tool, which is called `manage_` and the area's name.

    `labelled`: its answers name the labels of the conversations that they show.
    """

    name: str
    actions: Sequence[Action]
    labelled: bool = False


SCHEDULES = Area(
    "schedules",
    (
        Action("list", "GET", "/schedules"),
        Action("show", "GET", "/schedules/{schedule}"),
        Action(
            "add",
            "POST",
            "/schedules",
            {"name": TEXT, "message": TEXT, **TIMES, "here": FLAG, "model": TEXT, "tools": TEXTS},
            send=in_session,
        ),
        Action("switch", "PATCH", "/schedules/{schedule}", {"enabled": FLAG}),
        Action("run", "POST", "/schedules/{schedule}/run"),
        Action("delete", "DELETE", "/schedules/{schedule}"),
        Action("triggers", "GET", "/triggers"),
    ),
    labelled=True,
)
AREAS = (
    Area(
        "sessions",
        (
            Action("list", "GET", "/sessions", query={"q": TEXT, "before": TEXT}),
            Action("show", "GET", "/sessions/{session}"),
            Action("change", "PATCH", "/sessions/{session}", {"title": TEXT, "disabled_tools": TEXTS}),
            Action("delete", "DELETE", "/sessions/{session}"),
            Action("usage", "GET", "/usage"),
        ),
        labelled=True,
    ),
    Area(
        "jobs",
        (
            Action("list", "GET", "/jobs", shows=True),
            Action("show", "GET", "/jobs/{job}", shows=True),
            Action("cancel", "POST", "/jobs/{job}/cancel", shows=True),
        ),
    ),
    Area(
        "memory",
        (
            Action("list", "GET", "/memory", query={"q": TEXT, "session": TEXT, "before": TEXT}),
            Action("show", "GET", "/memory/{memory}"),
            Action("delete", "DELETE", "/memory/{memory}"),
        ),
        labelled=True,
    ),
    Area(
        "mcp",
        (
            Action("list", "GET", "/mcp/servers"),
            Action("show", "GET", "/mcp/servers/{name:path}"),
            Action("add", "POST", "/mcp/servers", {"name": TEXT, "url": TEXT, "headers": FIELDS}),
            Action("remove", "DELETE", "/mcp/servers/{name:path}"),
            *(Action(name, "POST", ACT, fixed={"action": name}) for name in ("enable", "disable", "reconnect")),
        ),
    ),
    Area(
        "endpoints",
        (
            Action("list", "GET", "/endpoints"),
            Action("add", "POST", "/endpoints", {"name": TEXT, "url": TEXT, "format": TEXT, "test": FLAG}),
            Action("remove", "DELETE", "/endpoints/{endpoint}"),
        ),
    ),
    Area(
        "models",
        (
            Action("list", "GET", "/served-models"),
            Action("get", "POST", "/served-models", {"source": TEXT, "name": TEXT, "context": FROM_0, "serve": FLAG}),
            Action("cancel", "DELETE", "/served-models/{name}"),
            Action("serve", "POST", "/served-models/{name}/serve"),
            Action("stop", "POST", "/served-models/{name}/stop"),
        ),
    ),
    Area(
        "webhooks",
        (
            Action("list", "GET", "/webhooks"),
            Action("switch", "PATCH", "/webhooks/{webhook}", {"enabled": FLAG}),
            Action("test", "POST", "/webhooks/{webhook}/test"),
            Action("delete", "DELETE", "/webhooks/{webhook}"),
        ),
    ),
    Area("tokens", (Action("list", "GET", "/tokens"), Action("revoke", "DELETE", "/tokens/{name}"))),
    Area(
        "server",
        (
            Action("state", "GET", "/readyz"),
            Action("settings", "GET", "/settings"),
            Action("change_settings", "PATCH", "/settings", {"changes": FIELDS}),
            Action("audit", "GET", "/audit", query={"before": FROM_0}, shows=True),
            Action("pause", "POST", "/pause", {"cancel": FLAG}),
            Action("resume", "POST", "/resume"),
        ),
    ),
)
