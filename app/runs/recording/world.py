"""The world that a recorded run begins in: what decides, besides the conversation and the model."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.metadata import version
from typing import Any

from app.config.settings import Settings
from app.core.provider import Provider
from app.provenance.read_texts import Source
from app.runs.recording import parts
from app.runs.recording.values import grant_fields, model_part, permission_fields
from app.runs.run_scope import RunScope
from app.storage.principals import Principal
from tools.catalogue import CATALOGUE
from tools.mcp.tool_search import SearchedToolbox
from tools.tool import Tool
from tools.toolbox import Toolbox

OWN = frozenset(tool.name for tool in CATALOGUE)
# The settings that decide how a run goes, besides what is recorded of it. Others are the operator's: hooks have tokens.
DECIDING = frozenset(
    {"allowed_commands", "approval_admin", "approval_guest", "approval_user", "approval_time_limit_s", "taint"}
    | {"canary", "documents", "judge_output", "judge_time_limit_s", "screen_results", "rules", "tools", "verify"}
    | {"max_calls", "max_rounds", "max_run_tokens", "run_time_limit_s", "relay_repair", "result_characters"}
    | {"parallel_reads", "summarise_at", "summary_time_limit_s", "utility"}
)


async def world_of(
    settings: Settings,
    scope: RunScope,
    provider: Provider,
    sources: Sequence[Source],
    relay: Mapping[str, Any] | None,
) -> parts.Begin:
    """Return the world of a run that begins. `relay`: the parameters of the client's request, if it is a relay."""
    policy, sandbox, toolbox = scope.gate.policy, scope.tool_context.sandbox, scope.toolbox
    others = [tool for tool in toolbox.known if tool.name not in OWN and not tool.handed]
    return parts.Begin(
        made_by=our_version(),
        principal=principal_part(scope.gate.principal),
        settings=settings_in_force(settings),
        workspace=str(policy.workspace),
        sandbox=sandbox.level,
        boxed=policy.boxed,
        networked=policy.networked,
        way_out=policy.way_out,
        model=model_part(provider),
        tools=list(map(tool_part, others)),
        built_in=[tool.name for tool in toolbox.known if tool.name in OWN],
        hidden=sorted(hidden_tools(toolbox)),
        listed=[tool.name for tool in toolbox.offered],
        sources=[(one.place, one.text) for one in sources if one.text.strip()],
        grants=[grant_fields(one) for one in policy.grants if one.in_force],
        permissions=permission_fields(policy.permissions),
        at=policy.clock(),
        wrote=None if math.isinf(policy.writes.last) else max(policy.writes.started, policy.writes.last),
        disabled=list(policy.disabled),
        tainted=policy.tainted,
        secrets=policy.secrets.of(scope.gate.principal),
        relay=None if relay is None else dict(relay),
        lacking=dict(toolbox.lacking),
        given=[text for text in scope.given if text.strip()],
    )


@cache  # it is read from a file
def our_version() -> str:
    return version("dragoman")


def settings_in_force(settings: Settings) -> dict[str, Any]:
    """Return the settings that decide and are not at their defaults."""
    return settings.model_dump(mode="json", exclude_defaults=True, include=set(DECIDING))


def principal_part(one: Principal) -> parts.PrincipalPart:
    return parts.PrincipalPart(one.name, one.role, list(one.tools), list(one.disabled), one.profile)


def hidden_tools(toolbox: Toolbox) -> frozenset[str]:
    """Return the tools of servers that are found by a search only, those included that the session is shown."""
    return toolbox.hidden if isinstance(toolbox, SearchedToolbox) else frozenset()


def tool_part(tool: Tool) -> parts.ToolPart:
    return parts.ToolPart(
        tool.name,
        tool.description,
        tool.parameters,
        role=tool.role,
        risk=tool.risk,
        approval=tool.approval,
        confined=tool.confined,
        untrusted=tool.untrusted,
        through=tool.through,
        origin=(tool.origin.server, tool.origin.tool) if tool.origin else None,
        columns=dict(tool.columns),
        destructive=bool(tool.origin and tool.origin.hints.destructive),
        visibility=tool.visibility,
    )
