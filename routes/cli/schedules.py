"""`dragoman schedule` and `dragoman trigger`: what begins runs without a request, on a server that runs."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from msgspec import Struct

from app.config.settings import Loaded
from app.schedules.signatures import SCHEMES
from routes.cli.columns import aligned
from routes.cli.remote import Remote, server_flags, with_remote
from routes.terminal.event_client import step
from routes.texts.exact import exact

MODES = ("deny", "ask", "sandboxed", "auto")
TIMES = {
    "cron": 'five fields, such as "30 7 * * MON-FRI", or @daily',
    "every": "an interval, such as 90m or 1h30m",
    "once": "a date and time, such as 2027-01-31T09:00, or 17:00, tomorrow 9:30, in 20m",
}
SECRET = "Its secret, shown only this once: {secret}"
SHOWN = {
    *("name", "message", "session", "missed", "scheme", "template", "time_zone"),
    *("profile", "model", "tools", "permissions"),
}


class Kind(Struct, frozen=True):
    """Schedules or triggers. `columns` makes a row's text of what the server says."""

    name: str
    path: str
    listed: str
    columns: Sequence[str]
    texts: Callable[[Mapping[str, Any]], Sequence[str]]


def _times(row: Mapping[str, Any]) -> str:
    return next(f"{kind} {row[kind]}" for kind in TIMES if row[kind])


def _moment(at: float | None) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at)) if at else "-"


def _last(row: Mapping[str, Any]) -> str:
    if not row["last"]:
        return "-"
    last = row["last"][0]
    return f"{_moment(last['at'])} {last.get('state') or last['outcome']}"


def _switch(row: Mapping[str, Any]) -> str:
    return "on" if row["enabled"] else "off"


SCHEDULE = Kind(
    "schedule",
    "/schedules",
    "schedules",
    ("id", "name", "state", "times", "next", "last"),
    lambda row: (row["id"], row["name"], _switch(row), _times(row), _moment(row["next"]), _last(row)),
)
TRIGGER = Kind(
    "trigger",
    "/triggers",
    "triggers",
    ("id", "name", "state", "scheme", "last"),
    lambda row: (row["id"], row["name"], _switch(row), row["scheme"], _last(row)),
)


def _flags(kind: Kind, parser: argparse.ArgumentParser) -> Sequence[argparse.ArgumentParser]:
    """The parsers of the actions on `schedule` or `trigger`, for the flags that all of them have."""
    add, others = _actions(parser, kind)
    if kind is TRIGGER:
        add.add_argument(
            "--scheme", dest="its_scheme", choices=SCHEMES, help="how deliveries authenticate (default: hmac)"
        )
        text = "the part of the body that the model reads, such as {{repository.name}} (default: all)"
        add.add_argument("--template", dest="its_template", help=text)
        return add, *others
    group = add.add_mutually_exclusive_group(required=True)
    for name, text in TIMES.items():
        group.add_argument(f"--{name}", dest=f"its_{name}", metavar="TIME", help=text)
    add.add_argument("--time-zone", dest="its_time_zone", metavar="ZONE", help="such as Europe/Berlin")
    add.add_argument("--missed", dest="its_missed", choices=("run", "skip"), help="missed times (default: run once)")
    add.add_argument("--jitter-s", dest="its_jitter_s", type=float, metavar="SECONDS", help="delay times by up to")
    return add, *others


def _actions(
    parser: argparse.ArgumentParser, kind: Kind
) -> tuple[argparse.ArgumentParser, list[argparse.ArgumentParser]]:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    add = actions.add_parser("add", help=f"add a {kind.name}", allow_abbrev=False)
    add.add_argument("name", help="what you call it")
    add.add_argument("message", help="what the model should do")
    add.add_argument("--profile", dest="its_profile", help="the profile of its runs")
    add.add_argument("--use-model", dest="its_model", metavar="MODEL", help="the model of its runs")
    add.add_argument(
        "--tools", dest="its_tools", metavar="NAMES", help="separated by commas (default: those that read)"
    )
    text = "the standing permissions of its runs, by id, separated by commas (default: all of yours)"
    add.add_argument("--permissions", dest="its_permissions", metavar="IDS", help=text)
    add.add_argument("--approval", dest="its_approval", choices=MODES, help="default: deny")
    add.add_argument("--rounds", dest="its_max_rounds", type=int, metavar="N", help="the most rounds of each run")
    places = "new (one each time), one (for all)" + (" or the id of a conversation" if kind is SCHEDULE else "")
    add.add_argument("--session", dest="its_session", metavar="SESSION", help=places)
    listing = actions.add_parser("list", help=f"your {kind.listed}", allow_abbrev=False)
    words = {"show": "show one with its last runs", "enable": "enable one", "disable": "disable one"}
    words |= {"run": "start a run now"} if kind is SCHEDULE else {"secret": "renew its secret"}
    others = [listing]
    for action, text in (words | {"remove": "remove one; its runs are kept"}).items():
        other = actions.add_parser(action, help=text, allow_abbrev=False)
        other.add_argument("id", help=f"of `dragoman {kind.name} list`")
        others.append(other)
    for one in (add, *others):
        server_flags(one, "your token")
    return add, others


def _run(kind: Kind, args: argparse.Namespace, loaded: Loaded, environ: Mapping[str, str]) -> int:
    """Exit code 1 when it cannot be done, with the reason on stderr."""

    def work(remote: Remote) -> int:
        print("\n".join(_act(kind, args, remote)))
        return 0

    return with_remote(args, loaded, environ, work)


schedule_flags = partial(_flags, SCHEDULE)
trigger_flags = partial(_flags, TRIGGER)
run_schedule = partial(_run, SCHEDULE)
run_trigger = partial(_run, TRIGGER)


def _act(kind: Kind, args: argparse.Namespace, remote: Remote) -> list[str]:
    """Return the lines that say what there is, or what was done."""
    match args.action:
        case "list":
            rows = remote.call("GET", kind.path)[kind.listed]
            texts = [dict(zip(kind.columns, map(exact, kind.texts(row)), strict=True)) for row in rows]
            return aligned(kind.columns, texts) if rows else [f"You have no {kind.listed}."]
        case "add":
            return _described(kind, remote.call("POST", kind.path, _fields(args)), remote.url)
    path = f"{kind.path}/{step(args.id)}"
    match args.action:
        case "show":
            return _described(kind, remote.call("GET", path), remote.url)
        case "remove":
            remote.call("DELETE", path)
            return [f"{exact(args.id)} is removed."]
        case "run":
            return [f"Run {exact(remote.call('POST', f'{path}/run')['run'])} begins."]
        case "secret":
            return _described(kind, remote.call("POST", f"{path}/secret"), remote.url)
    return _described(kind, remote.call("PATCH", path, {"enabled": args.action == "enable"}), remote.url)


def _fields(args: argparse.Namespace) -> dict[str, Any]:
    given = {name.removeprefix("its_"): value for name, value in vars(args).items() if name.startswith("its_")}
    fields = {"name": args.name, "message": args.message} | {k: v for k, v in given.items() if v is not None}
    for listed in {"tools", "permissions"} & fields.keys():
        fields[listed] = [name.strip() for name in fields[listed].split(",") if name.strip()]
    return fields


def _described(kind: Kind, row: Mapping[str, Any], url: str) -> list[str]:
    texts = zip(kind.columns, kind.texts(row), strict=True)
    lines = [f"{name}: {exact(text)}" for name, text in texts if name not in SHOWN | {"last"}]
    lines += [f"{name}: {exact(str(row[name]))}" for name in sorted(SHOWN & row.keys()) if row[name] not in (None, "")]
    if kind is TRIGGER:
        lines.append(f"deliveries: POST {url}{row['path']}")
    for last in row["last"]:
        words = (last["outcome"], last["run"] or "", last.get("state") or "", last["reason"])
        lines.append(f"  {_moment(last['at'])} {exact(' '.join(filter(None, words)))}")
    return [*lines, SECRET.format(secret=row["secret"])] if "secret" in row else lines
