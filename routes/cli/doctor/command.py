"""The command `dragoman doctor`: its flags, the report as lines or JSON, its exit codes."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import textwrap
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from shutil import get_terminal_size

from app.config.settings import Loaded, load_settings
from app.config.sources import SettingsError
from app.redaction.redactor import Redactor, secrets_in
from routes.cli.columns import action
from routes.cli.doctor.checks import CHECKS, Checked, run_checks
from routes.cli.doctor.finding import State, Subject
from routes.cli.doctor.model_report import model_report_flags, run_model_report
from routes.startup.storage import secrets_of

EXIT_CODES = {State.OK: 0, State.SKIPPED: 0, State.WARNING: 1, State.PROBLEM: 2}
COLOURS = {State.OK: "32", State.SKIPPED: "2", State.WARNING: "33", State.PROBLEM: "31"}
NARROWEST, WIDEST = 60, 120  # columns


def doctor_flags(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    """Return the parser of `doctor model`, for the flags that it has, too."""
    parser.add_argument("--json", dest="as_json", action="store_true", help="write the report as JSON")
    help_text = "start no MCP server and contact no model server: nothing leaves this machine"
    parser.add_argument("--offline", action="store_true", help=help_text)
    help_text = "replay the newest runs, as many as 10 s allow: this version must not take them otherwise"
    parser.add_argument("--replay", action="store_true", help=help_text)
    help_text = "send one short request to each model, and measure the time to its first token"
    parser.add_argument("--ask-model", action="store_true", help=help_text)
    actions = parser.add_subparsers(dest="action", metavar="ACTION")
    child = action(actions, "model", "examine a model server by prompts: what it loses, and which settings help")
    model_report_flags(child)
    return child


def run_doctor(args: argparse.Namespace, environ: Mapping[str, str]) -> int:
    """Exit code 0 if all is well, 1 with warnings, 2 with problems."""
    if args.action == "model":
        return run_model_report(args, load_settings(vars(args), environ), environ)
    subject = subject_of(vars(args), environ)
    checked = asyncio.run(run_checks(CHECKS, subject))
    code = exit_code(checked)
    if args.as_json:
        print(json.dumps(as_json(checked), indent=1))
    else:
        print("\n".join(lines(checked, colours=sys.stdout.isatty() and not environ.get("NO_COLOR"))))
    sys.stdout.flush()
    if any("not finished" in one.finding.found for one in checked):
        os._exit(code)  # a thread that hangs on a disk would keep the interpreter from ending
    return code


def subject_of(flags: Mapping[str, object], environ: Mapping[str, str]) -> Subject:
    """The installation to look at; settings that are not valid are a finding, not an error."""
    loaded: Loaded | None = None
    objections: Sequence[str] = ()
    try:
        loaded = load_settings(flags, environ)
    except SettingsError as error:
        objections = error.problems
    secrets = [*secrets_in(environ), *(secrets_of(loaded.settings) if loaded else ())]
    return Subject(
        environ=environ,
        loaded=loaded,
        redactor=Redactor(secrets),
        objections=objections,
        ask_model=bool(flags.get("ask_model")),
        offline=bool(flags.get("offline")),
        replay=bool(flags.get("replay")),
    )


def exit_code(checked: Iterable[Checked]) -> int:
    return max((EXIT_CODES[one.finding.state] for one in checked), default=0)


def as_json(checked: Sequence[Checked]) -> dict[str, object]:
    counts = Counter(one.finding.state for one in checked)
    rows = [
        {
            "check": one.check,
            "subject": one.finding.subject or None,
            "state": one.finding.state.value,
            "found": one.finding.found,
            "advice": one.finding.advice or None,
        }
        for one in checked
    ]
    return {"exit_code": exit_code(checked), "counts": {state.value: counts[state] for state in State}, "checks": rows}


def lines(checked: Sequence[Checked], *, colours: bool) -> Iterator[str]:
    """A line for each finding, below it what to do; the sums at the end."""
    width = min(max(get_terminal_size().columns, NARROWEST), WIDEST)
    names = max(len(one.check) for one in checked)
    states = max(map(len, State))
    indent = " " * (states + names + 4)
    for one in checked:
        finding = one.finding
        subject = f"{finding.subject}: " if finding.subject else ""
        head = f"{finding.state.value:{states}}  {one.check:{names}}  "
        first, *others = textwrap.wrap(f"{subject}{finding.found}", width - len(indent), break_on_hyphens=False) or [""]
        yield f"{_coloured(head, finding.state, colours=colours)}{first}"
        yield from (f"{indent}{line}" for line in others)
        if finding.advice:
            yield from (
                f"{indent}{line}"
                for line in textwrap.wrap(
                    f"-> {finding.advice}", width - len(indent), subsequent_indent="   ", break_on_hyphens=False
                )
            )
    counts = Counter(one.finding.state for one in checked)
    yield ""
    yield ", ".join(f"{counts[state]} {state.value}" for state in State if counts[state])


def _coloured(head: str, state: State, *, colours: bool) -> str:
    return f"\x1b[{COLOURS[state]}m{head}\x1b[0m" if colours else head
