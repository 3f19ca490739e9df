"""`dragoman replay --model` and `dragoman compare`: stored runs with other models, by a running server."""

from __future__ import annotations

import argparse
import html
import json
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct, field

from app.config.settings import Loaded
from app.replay.recording import UnusableRecording, read_file
from routes.cli.columns import aligned, failed
from routes.cli.remote import Refusal, Remote, server_flags, with_remote

LIMIT_S = 3600.0  # of one trial, which is as long as a run
SET_FORM = "It has [[runs]] tables with run or file, and checks: docs/replay.md shows one."
COLUMNS = ("run", "model", "checks", "end", "calls", "rounds", "tokens", "cost", "seconds")
STYLE = (
    "body{font:15px sans-serif;margin:2em}table{border-collapse:collapse}td,th{border:1px solid #999;padding:4px 8px;\
text-align:left;vertical-align:top}pre{white-space:pre-wrap;margin:0;max-width:40em}.no{background:#fdd}"
)


class Item(Struct):
    """A run of a set, and what it is judged by."""

    run: str
    checks: dict[str, Any] = field(default_factory=dict)


class UnusableSet(Exception):
    """The set cannot be used. The message says why."""


def trial_flags(parser: argparse.ArgumentParser) -> None:
    """The flags of a trial, beside those that name the models."""
    parser.add_argument("--system", type=Path, metavar="FILE", help="a text for the system prompt")
    parser.add_argument("--profile", help="a profile for the run")
    parser.add_argument("--live", action="store_true", help="let tools work, in a scratch copy of the workspace")
    help_text = "exact: the same call; name: the next result of the same tool"
    parser.add_argument("--match", choices=("exact", "name"), default="exact", help=help_text)
    server_flags(parser)


def compare_flags(parser: argparse.ArgumentParser) -> list[argparse.ArgumentParser]:
    parser.add_argument("set", type=Path, metavar="SET", help="a TOML file of runs and checks, or a folder of tests")
    parser.add_argument("--models", required=True, help="names of models, separated by commas")
    parser.add_argument("--html", type=Path, metavar="FILE", help="write a page of it, which needs no network")
    parser.add_argument("--json", dest="as_json", action="store_true", help="write the results as JSON")
    trial_flags(parser)
    return [parser]


def run_compare(args: argparse.Namespace, loaded: Loaded, environ: Mapping[str, str]) -> int:
    """Exit code 1 if a check fails or a run cannot be tried."""
    try:
        items = items_of(args.set)
        body = trial_body(args)
    except (UnusableSet, UnusableRecording, OSError) as unusable:
        return failed(unusable)
    models = [one.strip() for one in args.models.split(",") if one.strip()]

    def compare(remote: Remote) -> int:
        results = [_tried(remote, item, body | {"model": model}) for item in items for model in models]
        if args.html:
            args.html.write_text(page(results), encoding="utf-8")
        print(json.dumps(results, indent=1) if args.as_json else "\n".join(table(results)))
        return int(not all(map(has_passed, results)))

    return with_remote(args, loaded, environ, compare)


def try_runs(args: argparse.Namespace, loaded: Loaded, environ: Mapping[str, str]) -> int:
    """`dragoman replay RUN ... --model`: each run then and now, side by side. Exit code 1 if one cannot be tried."""
    try:
        body = trial_body(args) | ({"model": args.model} if args.model else {})
    except OSError as error:
        return failed(f"{args.system} cannot be read: {error.strerror}.")

    def tried(remote: Remote) -> int:
        results = [_tried(remote, Item(run), body) for run in args.what]
        if args.as_json:
            print(json.dumps(results, indent=1))
        else:
            print("\n\n".join("\n".join(side_by_side(one)) for one in results))
        return int(any("error" in one for one in results))

    return with_remote(args, loaded, environ, tried)


def trial_body(args: argparse.Namespace) -> dict[str, Any]:
    """Return the body of a trial by these flags. Raises OSError."""
    body: dict[str, Any] = {}
    if args.system:
        body["system"] = args.system.read_text(encoding="utf-8")
    if args.profile:
        body["profile"] = args.profile
    if args.live:
        body["live"] = True
    return body | ({"match": args.match} if args.match != "exact" else {})


def items_of(path: Path) -> list[Item]:
    """Return the runs of a set. Raises UnusableSet, UnusableRecording, OSError."""
    if path.is_dir():
        return [Item(read_file(one).run.id) for one in sorted(path.glob("*.json"))]
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8")).get("runs")
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UnusableSet(f"{path} is no TOML: {error}. {SET_FORM}") from error
    if not isinstance(tables, list) or not tables:
        raise UnusableSet(f"{path} names no runs. {SET_FORM}")
    return [_item(path, number, one) for number, one in enumerate(tables, 1)]


def _item(path: Path, number: int, table: Any) -> Item:
    if not isinstance(table, dict) or len({"run", "file"} & table.keys()) != 1:
        raise UnusableSet(f"{path}, runs entry {number}: name a run or a file. {SET_FORM}")
    run = table["run"] if "run" in table else read_file(path.parent / str(table["file"])).run.id
    checks = table.get("checks", {})
    if not isinstance(checks, dict):
        raise UnusableSet(f"{path}, runs entry {number}: checks is a table. {SET_FORM}")
    return Item(str(run), checks)


def _tried(remote: Remote, item: Item, body: Mapping[str, Any]) -> dict[str, Any]:
    """Return the result of one trial, or its error, which ends no other."""
    checks = {"checks": item.checks} if item.checks else {}
    wanted = body.get("model", "")
    try:
        return remote.call("POST", f"/runs/{item.run}/replay", {**body, **checks}, LIMIT_S) | {"wanted": wanted}
    except Refusal as refusal:
        return {"run": item.run, "wanted": wanted, "error": str(refusal)}


def has_passed(result: Mapping[str, Any]) -> bool:
    return "error" not in result and all(one["ok"] for one in result.get("checks", ()))


def row(result: Mapping[str, Any]) -> dict[str, str]:
    """Return the columns of a trial, as texts."""
    if "error" in result:
        return dict.fromkeys(COLUMNS, "") | {"run": result["run"], "model": result["wanted"], "end": result["error"]}
    now, checks = result["now"], result.get("checks", [])
    passed = f"{sum(one['ok'] for one in checks)} of {len(checks)}" if checks else "-"
    stopped = result.get("stopped_at")
    cost, seconds = now.get("cost"), now.get("seconds")
    return {
        "run": result["run"],
        "model": now["model"],
        "checks": passed,
        "end": f"stopped at {stopped[:40]}" if stopped else now["reason"],
        "calls": str(len(now["calls"])),
        "rounds": str(now["rounds"]),
        "tokens": f"{now['tokens']:,}",
        "cost": "-" if cost is None else f"{cost:.4f}",
        "seconds": "-" if seconds is None else f"{seconds:.1f}",
    }


def table(results: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return a line for each trial, those of checks that failed, and one for each model."""
    lines = aligned(COLUMNS, map(row, results))
    for one in results:
        lines += (
            f"  {one['run']}, {one['wanted']}: {check['check']}: {check.get('found', 'no')}"
            for check in one.get("checks", ())
            if not check["ok"]
        )
    for model in dict.fromkeys(one["wanted"] for one in results):
        of_model = [one for one in results if one["wanted"] == model]
        lines.append(f"{model}: {sum(map(has_passed, of_model))} of {len(of_model)} runs passed")
    return lines


def side_by_side(result: Mapping[str, Any]) -> list[str]:
    """Return a run then and now, in lines."""
    if "error" in result:
        return [f"{result['run']}: {result['error']}"]
    then, now = result["then"], result["now"]
    lines = [f"{result['run']}: {then['model']} then, {now['model']} now"]
    lines += aligned(
        ("", "then", "now"),
        (
            {"": name, "then": str(then.get(name, "-")), "now": str(now.get(name, "-"))}
            for name in ("reason", "rounds", "tokens", "cost", "seconds")
        ),
    )
    for word, one in (("then", then), ("now", now)):
        lines += [f"calls {word}:", *(f"  {call}" for call in one["calls"] or ["none"])]
    if stopped := result.get("stopped_at"):
        lines.append(f"The trial ended at a call of which nothing is recorded: {stopped}. --live lets it go on.")
    return [*lines, f"text then: {then['text']}", f"text now: {now['text']}"]


def page(results: Sequence[Mapping[str, Any]]) -> str:
    """Return a page of HTML that loads nothing."""
    head = "".join(f"<th>{name}</th>" for name in (*COLUMNS, "answer"))
    rows = []
    for one in results:
        cells = "".join(f"<td>{html.escape(text)}</td>" for text in row(one).values())
        failures = "".join(
            f"<br>{html.escape(check['check'])}: {html.escape(check.get('found', ''))}"
            for check in one.get("checks", ())
            if not check["ok"]
        )
        answer = html.escape(one.get("now", {}).get("text", ""))
        kind = "" if has_passed(one) else ' class="no"'
        rows.append(f"<tr{kind}>{cells}<td><pre>{answer}</pre>{failures}</td></tr>")
    return (
        f"<!doctype html><html lang=en><meta charset=utf-8><title>Models compared</title><style>{STYLE}</style>"
        f"<h1>Models compared</h1><table><tr>{head}</tr>{''.join(rows)}</table></html>\n"
    )
