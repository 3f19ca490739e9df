"""The outbound effect of a call: what leaves the sandbox and the workspace, or is left there for other programs."""

from __future__ import annotations

from app.policy.patterns import names_address
from app.policy.policy_context import PolicyContext
from parsing import Arguments
from tools.base.rights import OutboundEffect, Risk
from tools.tool import Tool

_OUTSIDE = {
    Risk.READ: "reads outside of the workspace, with the address that is named",
    Risk.WRITE: "can write outside of the workspace",
    Risk.EXECUTE: "can execute commands outside of the sandbox",
    Risk.NETWORK: "reaches the network",
    Risk.ADMIN: "is not classified: it can do all that its server can",
}


def outbound_effect(tool: Tool, arguments: Arguments | None, policy: PolicyContext) -> OutboundEffect | None:
    """Return the call's outbound effect; without arguments (None) only that of every call of the tool."""
    if tool.confined and tool.risk is Risk.EXECUTE and not policy.boxed:
        guarded = policy.guarded or bool(policy.labels.refuses)
        return OutboundEffect(policy.way_out) if guarded or not policy.networked else None
    if arguments is not None and (named := tool.leaves(arguments, policy.workspace)):
        return named
    return None if tool.confined else OutboundEffect(f"{tool.name} {_OUTSIDE[tool.risk]}.")


def carries_data(effect: OutboundEffect, arguments: Arguments | None) -> bool:
    """Return True if the effect sends a text, or names an address: that can carry data out by itself."""
    return effect.carries_text or _names_address(arguments)


def _names_address(arguments: Arguments | None) -> bool:
    waiting: list[tuple[str, object]] = list((arguments or {}).items())
    while waiting:
        name, value = waiting.pop()
        if isinstance(value, str) and value and names_address(name, value):
            return True
        if isinstance(value, dict):
            waiting += value.items()
        if isinstance(value, list):
            waiting += [(name, one) for one in value]
    return False
