"""Rules of the operator, and what they decide on calls, for tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from app.core.operator_rules import OperatorRule
from app.core.rules import ApprovalMode
from app.policy.gate import decide
from app.policy.policy_context import PolicyContext
from app.policy.rules.compiling import compiled_rules
from app.policy.rules.operator_rules import OperatorRules
from app.storage.principals import LOCAL_USER
from tools.catalogue import TOOLS
from tools.tool import Tool

BASH, PYTHON, READ, WRITE, FETCH = (
    next(tool for tool in TOOLS if tool.name == name)
    for name in ("bash", "python", "read_file", "write_file", "web_fetch")
)


def rules(*rows: dict[str, Any]) -> OperatorRules:
    return compiled_rules([OperatorRule(**{"reason": "No.", "action": "deny", **row}) for row in rows])


def verdict(
    of: OperatorRules,
    tool: Tool,
    arguments: dict[str, Any],
    workspace: Path = Path("/w"),
    mode: ApprovalMode = ApprovalMode.AUTO,
) -> str:
    """The decision for the most powerful principal, in the mode that asks least."""
    policy = PolicyContext(mode, boxed=True, workspace=workspace, rules=of)
    decision = decide(LOCAL_USER, tool, tool.normalise(arguments), policy)
    return type(decision).__name__.lower()


def spelled(table: str) -> list[str]:
    return [row.replace("\\n", "\n").replace("\\t", "\t").replace("\\a", "\a") for row in table.splitlines()]


NO_RM = rules({"tool": "bash", "commands": ["rm", "git push", "curl"]})
NO_SECRETS = rules({"tool": "*", "paths": ["secrets/**", "/etc/shadow", "**/*.pem"]})
NO_EVIL = rules({"tool": "*", "hosts": ["evil.example.org", "*.evil.example.org", "10.0.0.1", "169.254.169.254"]})
