"""The rights of a principal in its workspace: those of the tools that do the same for a model."""

from __future__ import annotations

from pathlib import Path

from starlette.requests import Request

from app.config.folders import workspace_of
from app.storage.principals import Principal
from routes.protocol.errors import Refused
from routes.services import Services, current_principal, services_of
from tools.base.rights import Role

READS, WRITES = "read_file", "write_file"


async def may_use(services: Services, principal: Principal, tool: str) -> bool:
    """Return whether the principal may use the tool at all, if only after an approval."""
    return tool in (await services.factory.current_gate(principal)).offer(services.factory.tools).by_name


async def may_write(services: Services, principal: Principal) -> bool:
    return principal.role is not Role.GUEST and await may_use(services, principal, WRITES)


async def readable_workspace(request: Request) -> Path:
    """The caller's workspace, to be read. Raises Refused."""
    services, principal = services_of(request), current_principal(request)
    if not await may_use(services, principal, READS):
        raise Refused(403, "forbidden", f"You may not use {READS}, so you cannot read files of the workspace.")
    return workspace_of(services.settings.workspace, principal)


async def writable_workspace(request: Request) -> Path:
    """The caller's workspace, to be changed. Raises Refused, Paused."""
    services, principal = services_of(request), current_principal(request)
    if not await may_write(services, principal):
        raise Refused(403, "forbidden", f"You may not use {WRITES}, so you cannot change files of the workspace.")
    services.switch.check()
    return workspace_of(services.settings.workspace, principal)
