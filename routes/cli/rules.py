"""`dragoman rules`: the operator's rules on arguments, and a call that is tried against them without being run.

`dragoman permission list | remove`: what you have allowed for good, at a server that runs.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

from app.config.settings import Loaded
from app.core.rules import OperatorRule
from app.policy.permits.bounds import Surroundings
from app.policy.permits.operator_permissions import permission_of_rule
from app.policy.permits.permissions import Permission, with_permitted_hosts
from app.policy.rules.compiling import compiled_rules
from app.policy.rules.operator_rules import ALLOW, OperatorRules
from routes.cli.columns import action, aligned
from routes.cli.remote import Remote, server_flags, with_remote
from routes.terminal.approval_text import one_line
from routes.terminal.event_client import step
from tools.base.rights import Origin, Risk
from tools.catalogue import CATALOGUE
from tools.tool import Tool

FIRST = {"bash": "command", "python": "code", "web_fetch": "url"}  # else path
NOTHING = "There are no rules on arguments: docs/rules.md describes them."
COLUMNS = ("id", "today", "all", "last", "words")
NONE = "You have no standing permissions: an approval offers them."


def rules_flags(parser: argparse.ArgumentParser) -> list[argparse.ArgumentParser]:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    listing = actions.add_parser("list", help="list the rules of the settings file", allow_abbrev=False)
    check = actions.add_parser(
        "check", help="show what the rules say about a call, without running it", allow_abbrev=False
    )
    check.add_argument("argument", metavar="COMMAND", help="a command; for --tool a path, URL, code or JSON object")
    check.add_argument(
        "--tool", default="bash", metavar="TOOL", help="such as read_file or mcp__mail__send (default: bash)"
    )
    return [listing, check]


def run_rules(args: argparse.Namespace, loaded: Loaded, _: Mapping[str, str]) -> int:
    """Exit code 1 when a rule denies the call, 3 when one asks."""
    rules = compiled_rules(loaded.settings.rules)
    if args.action == "list":
        print("\n".join(f"{rule.label}: {_described(rule.row)}" for rule in rules.rules) or NOTHING)
        return 0
    if (tool := _tool(args.tool)) is None:
        print(
            f"dragoman: no tool is called {args.tool!a}: there are {', '.join(one.name for one in CATALOGUE)}, "
            "and those of MCP servers, such as mcp__mail__send.",
            file=sys.stderr,
        )
        return 2
    if (arguments := _arguments(tool, args.argument)) is None:
        print("dragoman: that is not a JSON object with the arguments of the call.", file=sys.stderr)
        return 2
    arguments = tool.normalise(arguments)
    if (finding := rules.find(tool, arguments, loaded.settings.workspace)) is None:
        allowed = _allowed(rules, tool, arguments, loaded)
        print(f"allow: {allowed.words}" if allowed else "No rule matches this call.")
        return 0
    print(f"{finding.action}: {finding.reason}")
    return {"deny": 1, "ask": 3}[finding.action]


def _allowed(rules: OperatorRules, tool: Tool, arguments: dict[str, Any], loaded: Loaded) -> Permission | None:
    """Return the rule that allows a call that another row would ask about."""
    around = Surroundings(loaded.settings.workspace, boxed=not loaded.settings.unsafe_no_sandbox, unchanged=True)
    usable = [one for one in rules.permissions if one.is_in_force(time.time())]
    arguments = dict(with_permitted_hosts(usable, tool, arguments, around))
    return next((one for one in usable if one.covers(tool, arguments, around)), None)


def _tool(name: str) -> Tool | None:
    """The tool of this name. One of an MCP server is not known here: any arguments may be its own."""
    if not name.startswith("mcp__"):
        return next((tool for tool in CATALOGUE if tool.name == name), None)
    server, _, own = name.removeprefix("mcp__").partition("__")
    return Tool(name, "", {}, Risk.ADMIN, CATALOGUE[0].run, origin=Origin(server, own))


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


def permission_flags(parser: argparse.ArgumentParser) -> Sequence[argparse.ArgumentParser]:
    """The parsers of the actions, for the flags that all of them have."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    listing = action(actions, "list", "list your standing permissions, and how often they were used")
    removal = action(actions, "remove", "withdraw a standing permission: such calls ask again")
    removal.add_argument("id", help="as `dragoman permission list` shows it")
    for one in (listing, removal):
        server_flags(one, "your token")
    return listing, removal


def run_permission(args: argparse.Namespace, loaded: Loaded, environ: Mapping[str, str]) -> int:
    """Exit code 1 when it cannot be done, with the reason on stderr."""
    return with_remote(args, loaded, environ, lambda remote: _act(args, remote))


def _act(args: argparse.Namespace, remote: Remote) -> int:
    if args.action == "remove":
        remote.call("DELETE", f"/permissions/{step(args.id)}")
        print(f"{args.id} is withdrawn.")
        return 0
    rows = remote.call("GET", "/permissions")["permissions"]
    print("\n".join(aligned(COLUMNS, map(_texts, rows))) if rows else NONE)
    return 0


def _texts(row: Mapping[str, Any]) -> dict[str, str]:
    last = time.strftime("%Y-%m-%d %H:%M", time.localtime(row["last_used"])) if row["last_used"] else "-"
    given = (row["id"], row["uses_today"], row["uses"], last, row["words"])
    return dict(zip(COLUMNS, (one_line(str(one)) for one in given), strict=True))
