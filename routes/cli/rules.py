"""`dragoman rules`: the operator's rules on arguments, and calls that are tried against them without being run."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
from pydantic import ValidationError

from app.config.display import wrong_values
from app.config.settings import NAMES, Loaded, Settings
from app.config.sources import SettingsError, in_file
from app.core.rules import OperatorRule
from app.policy.permits.bounds import Surroundings
from app.policy.permits.operator_permissions import permission_of_rule
from app.policy.permits.permissions import Permission, with_permitted_hosts
from app.policy.rules.compiling import compiled_rules
from app.policy.rules.operator_rules import ALLOW, OperatorRules
from app.redaction.redactor import Redactor
from app.replay.backtest import DAYS, LONGEST_DAYS, Backtest, Changed, Report, Tried
from app.storage.store import Store
from routes.cli.columns import aligned, failed
from routes.cli.replay import with_existing_store
from routes.startup.storage import secrets_of
from tools.base.rights import Origin, Risk
from tools.catalogue import CATALOGUE
from tools.tool import Tool

FIRST = {"bash": "command", "python": "code", "web_fetch": "url"}  # else path
MOST_SHOWN = 50  # calls
UNTRIED = 2  # exit code
DAYS_RULE = f"--days is a number above 0, at most {LONGEST_DAYS:,}."
NO_CALLS = "There are no stored calls{of} of that time. --days looks further back."
NO_ROWS = "{file} has neither rules nor tools: write the rows to try as [[rules]], [[tools]] or rules = []."
WORDS = {"allow": "allowed", "ask": "asked", "refuse": "refused"}
NOTHING = "There are no rules on arguments: docs/rules.md describes them."


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
    help_text = "decide the stored calls again by these rules, and show which would go otherwise; none is run"
    backtest = actions.add_parser("backtest", help=help_text, description=f"{help_text}.", allow_abbrev=False)
    rows_help = "a settings file whose rules and tools are tried in place of those in force"
    backtest.add_argument("file", nargs="?", type=Path, metavar="FILE", help=rows_help)
    backtest.add_argument("--days", type=float, default=DAYS, help=f"days back (default: {DAYS:g})")
    backtest.add_argument("--principal", default="", metavar="NAME", help="only the calls of this person")
    backtest.add_argument("--json", dest="as_json", action="store_true", help="write all of it as JSON")
    return [listing, check, backtest]


def run_rules(args: argparse.Namespace, loaded: Loaded, _: Mapping[str, str]) -> int:
    """Exit code of check: 1 when a rule denies the call, 3 when one asks."""
    if args.action == "backtest":
        return run_backtest(args, loaded)
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


def run_backtest(args: argparse.Namespace, loaded: Loaded) -> int:
    """Exit code 0 if no call changes, 1 if some do, 2 if it cannot be tried."""
    if not 0 < args.days <= LONGEST_DAYS:
        return failed(DAYS_RULE) and UNTRIED
    try:
        tried = _tried(args.file, loaded.settings)
    except SettingsError as error:
        return failed(error) and UNTRIED
    redact, found = Redactor(secrets_of(loaded.settings)).redact, list[Report]()

    async def work(store: Store) -> int:
        backtest = Backtest(store=store, tried=tried, days=args.days, principal=args.principal, redact=redact)
        found.append(await backtest.report())
        return 0

    if with_existing_store(loaded, work):
        return UNTRIED
    report = found[0]
    if not (report.calls or report.untried):
        of = f" of {args.principal!a}" if args.principal else ""
        return failed(NO_CALLS.format(of=of)) and UNTRIED
    if args.as_json:
        print(json.dumps(msgspec.to_builtins(report), indent=1))
    else:
        print("\n".join(_lines(report)))
    return int(report.changed > 0) if report.calls else UNTRIED


def _tried(file: Path | None, settings: Settings) -> Tried:
    """Return the rules of a file, or those in force without one. Raises SettingsError."""
    if file is None:
        return Tried.of(settings)
    problems = list[str]()
    _, given = in_file(file, {}, NAMES, Path(), problems)
    rows = {name: one for name, one in given.items() if name in ("rules", "tools")}
    if not (rows or problems):
        problems.append(NO_ROWS.format(file=file))
    if problems:
        raise SettingsError(problems)
    values = {"data_dir": settings.data_dir, "workspace": settings.workspace}
    try:
        checked = Settings.model_validate(values | {name: one.value for name, one in rows.items()})
    except ValidationError as wrong:
        raise SettingsError(wrong_values(wrong, rows, Settings.model_fields)) from None
    rules, tools = (getattr(checked, name) if name in rows else None for name in ("rules", "tools"))
    return Tried.of(settings, rules, tools)


def _lines(report: Report) -> Iterator[str]:
    asked = [f"{number:g} a day" for number in report.asked_a_day]
    counts = ((kind, word, asked if kind == "ask" else ["", ""]) for kind, word in WORDS.items())
    rows = [
        {"": word, "then": f"{report.then[kind]:,}", "now": f"{report.now[kind]:,}", "then ": before, "now ": after}
        for kind, word, (before, after) in counts
    ]
    yield f"Of {report.days:g} days and {report.sessions:,} conversations, {report.calls:,} calls decided again:"
    yield from aligned(("", "then", "now", "then ", "now "), rows)
    for why, number in report.untried.items():
        yield f"{number:,} cannot be tried: {why}."
    yield from (f"{number:,} are decided by the rule {rule}." for rule, number in report.rules.items())
    yield f"{report.changed:,} would go otherwise{':' if report.changed else '.'}"
    left = MOST_SHOWN
    for group in report.groups:
        by = f"{group.by} {group.rule}".rstrip()
        yield f"{group.calls:,} x {group.tool}: {WORDS[group.then]} ({group.then_by}) -> {WORDS[group.now]} ({by})"
        yield from map(_line, group.examples[:left])
        left -= len(group.examples[:left])
    if report.changed > MOST_SHOWN - left:
        yield f"These are {MOST_SHOWN - left} of them; --json has all."


def _line(one: Changed) -> str:
    return f"    {one.session} {one.run}  {one.arguments}"
