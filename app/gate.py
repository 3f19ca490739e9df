"""Who may use which tool: the one function that both the schema list and the dispatcher ask."""

from __future__ import annotations

from app.people import Principal, Role
from tools.tool import Risk, Tool
from tools.toolbox import Allow, Decision, Refuse

# An allow-list: a role that has no row, or a risk that a row does not name, may not.
RIGHTS: dict[Role, frozenset[Risk]] = {
    Role.ADMIN: frozenset(Risk),
}


def decide(principal: Principal, tool: Tool) -> Decision:
    if tool.risk in RIGHTS.get(principal.role, frozenset()):
        return Allow()
    return Refuse(f"{tool.name} needs the role admin; {principal.name} is a {principal.role}.")
