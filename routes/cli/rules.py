"""`dragoman rules`: the operator's rules on arguments, and a call that is tried against them without being run."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Mapping
from typing import Any

from app.config.settings import Loaded
from app.core.rules import OperatorRule
from app.policy.permits.bounds import Surroundings
from app.policy.permits.operator_permissions import permission_of_rule
from app.policy.rules.compiling import compiled_rules
from app.policy.rules.operator_rules import ALLOW
from tools.catalogue import CATALOGUE
from tools.tool import Tool

FIRST = {"bash": "command", "python": "code", "web_fetch": "url"}  # else path
NOTHING = "There are no rules on arguments: docs/rules.md describes them."


def rules_flags(parser: argparse.ArgumentParser) -> list[argparse.ArgumentParser]:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    listing = actions.add_parser("list", help="list the rules of the settings file", allow_abbrev=False)
    check = actions.add_parser(
        "check", help="show what the rules say about a call, without running it", allow_abbrev=False
    )
    check.add_argument("argument", metavar="COMMAND", help="a command; for --tool a path, URL, code or JSON object")
    check.add_argument("--tool", default="bash", choices=[tool.name for tool in CATALOGUE], metavar="TOOL")
    return [listing, check]


def run_rules(args: argparse.Namespace, loaded: Loaded, _: Mapping[str, str]) -> int:
    """Exit code 1 when a rule denies the call, 3 when one asks."""
    rules = compiled_rules(loaded.settings.rules)
    if args.action == "list":
        print("\n".join(f"{rule.label}: {_described(rule.row)}" for rule in rules.rules) or NOTHING)
        return 0
    tool = next(tool for tool in CATALOGUE if tool.name == args.tool)
    if (arguments := _arguments(tool, args.argument)) is None:
        print("dragoman: that is not a JSON object with the arguments of the call.", file=sys.stderr)
        return 2
    arguments = tool.normalise(arguments)
    finding = rules.find(tool, arguments, loaded.settings.workspace)
    if finding is None:
        around = Surroundings(loaded.settings.workspace, boxed=not loaded.settings.unsafe_no_sandbox, unchanged=True)
        covering = (
            one for one in rules.permissions if one.is_in_force(time.time()) and one.covers(tool, arguments, around)
        )
        allowed = next(covering, None)
        print(f"allow: {allowed.words}" if allowed else "No rule matches this call.")
        return 0
    print(f"{finding.action}: {finding.reason}")
    return {"deny": 1, "ask": 3}[finding.action]


def _described(row: OperatorRule) -> str:
    if row.action == ALLOW:
        return f"allow {permission_of_rule(row, row.name).words}"
    named = ((kind, getattr(row, kind)) for kind in ("paths", "hosts", "commands"))
    conditions = [f"{kind} {', '.join(of)}" for kind, of in named if of]
    return f"{row.action} {row.tool}{' with ' if conditions else ''}{' and '.join(conditions)}: {row.reason}"


def _arguments(tool: Tool, written: str) -> dict[str, Any] | None:
    if not written.lstrip().startswith("{") or tool.name == "bash":
        return {FIRST.get(tool.name, "path"): written}
    try:
        arguments = json.loads(written)
    except (ValueError, RecursionError):
        return None
    return arguments if isinstance(arguments, dict) else None
