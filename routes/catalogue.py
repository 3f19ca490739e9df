"""The tables of all routes: those of each server, and those whose modules are imported with the first request for one.

The late ones are 140 modules, 5 MB and a tenth of a start, which a server that only runs agents never needs.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module

from routes import page
from routes.http import approvals, chat, health, outputs, runs
from routes.http.administration import metrics
from routes.lanes.lane import Lane
from routes.mcp_server import handlers as mcp_server
from routes.protocol.route import Route

# In the order in which they are tried.
EARLY = (
    *chat.ROUTES,
    *page.ROUTES,
    *runs.ROUTES,
    *approvals.ROUTES,
    *outputs.ROUTES,
    *mcp_server.ROUTES,
    *health.ROUTES,
    *metrics.ROUTES,
)
# Modules, in the order in which their rows are tried.
LATE = (
    "http.feed",
    "http.replays",
    "http.checkpoints",
    "http.branching.run_forks",
    "http.mcp.apps",
    "http.administration.audit",
    "http.usage",
    "http.administration.pause",
    "http.sessions",
    "http.branching.branches",
    "http.library.compaction",
    "http.library.folders",
    "http.library.shares",
    "http.library.transcripts",
    "http.library.shared",
    "http.session_log",
    "http.grants",
    "http.attachments",
    "http.workspace_files",
    "http.workspace.browsing",
    "http.workspace.writing",
    "http.documents",
    "http.memory",
    "http.automation.schedules",
    "http.automation.triggers",
    "http.jobs",
    "http.administration.secrets",
    "http.administration.tokens",
    "http.people.people",
    "http.people.members",
    "http.people.permissions",
    "http.people.oidc",
    "http.people.sign_ins",
    "http.people.prompts",
    "http.mcp.offers",  # before those of servers, of which one takes any path
    "http.mcp.servers",
    "http.administration.endpoints",
    "http.administration.examinations",
    "http.administration.hooks",
    "http.administration.knowledge",
    "http.administration.backtest",
    "http.administration.settings",
    "http.notifications.webhooks",
    "http.notifications.push",
    "http.notifications.decision_page",
    "http.serving.handlers",
    "http.profiles",
    "http.project",
    "http.proofs",
    "openapi.handler",
    "lanes.model_list",
    "lanes.ui_message_stream.handlers",
    "lanes.responses.handlers",
    "lanes.anthropic_messages.counting",
)


def late_routes(more_lanes: Sequence[Lane] = ()) -> tuple[Route, ...]:
    """Import the late modules; return their rows and those of the lanes."""
    from routes.lanes.catalogue import COMPACT, LANES
    from routes.lanes.serving import lane_routes

    modules = [import_module(f".{name}", __package__) for name in LATE]
    return *lane_routes([*LANES, COMPACT, *more_lanes]), *(row for module in modules for row in module.ROUTES)
