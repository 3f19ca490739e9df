"""Rules of the operator, tools to decide on, and what the gate says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from app.core.rules import ApprovalMode, OperatorRule
from app.policy.gate import decide
from app.policy.policy_context import PolicyContext
from app.policy.rules.compiling import compiled_rules
from app.policy.rules.operator_rules import OperatorRules
from app.storage.principals import LOCAL_USER, Principal
from tools.base.rights import Risk, Role
from tools.catalogue import TOOLS
from tools.tool import Context, Tool, answering
from tools.toolbox import Decision

ANN = Principal("ann", Role.USER)
ANY = {"type": "object"}


def catalogue_tool(name: str) -> Tool:
    return next(one for one in TOOLS if one.name == name)


BASH, PYTHON, READ, WRITE, FETCH = map(catalogue_tool, ("bash", "python", "read_file", "write_file", "web_fetch"))


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
    return kind_of(decide(LOCAL_USER, tool, tool.normalise(arguments), policy))


def spelled(table: str) -> list[str]:
    return [row.replace("\\n", "\n").replace("\\t", "\t").replace("\\a", "\a") for row in table.splitlines()]


NO_RM = rules({"tool": "bash", "commands": ["rm", "git push", "curl"]})
NO_SECRETS = rules({"tool": "*", "paths": ["secrets/**", "/etc/shadow", "**/*.pem"]})
NO_EVIL = rules({"tool": "*", "hosts": ["evil.example.org", "*.evil.example.org", "10.0.0.1", "169.254.169.254"]})


async def run_nothing(_: dict[str, Any], __: Context) -> str:
    return "ran"


def some_tool(risk: Risk, **more: Any) -> Tool:
    return Tool("some_tool", "", ANY, risk, answering(run_nothing), **({"role": Role.GUEST} | more))


def kind_of(decision: Decision) -> str:
    return type(decision).__name__.lower()


RULES_FILE = """
[[rules]]
name = "keys"
tool = "*"
paths = ["secrets/**"]
action = "deny"
reason = "Keys are not for agents."

[[rules]]
tool = "bash"
commands = ["touch"]
action = "ask"
reason = "It makes files."

[[rules]]
name = "clients"
tool = "client_tools"
commands = ["rm"]
action = "ask"
reason = "It deletes."
"""
