"""`dragoman project`: the instructions of the workspace, what has changed in them, and a person's decision."""

from __future__ import annotations

import argparse
import difflib
from collections.abc import Mapping
from typing import Any

from app.config.settings import Loaded
from routes.cli.remote import Remote, server_flags, with_remote
from routes.texts.exact import exact

ACTIONS = ("show", "accept", "decline")
NONE = "The workspace has no instructions (AGENTS.md, .agents/skills)."
STATES = {
    "new": "is new: not in the prompt until it is accepted",
    "changed": "has changed: not in the prompt until it is accepted",
    "accepted": "is accepted",
    "declined": "is declined",
    "unusable": "cannot be used",
}


def project_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", nargs="?", choices=ACTIONS, default="show", help="show is the default")
    parser.add_argument("path", nargs="?", help="only this file (default: all files that wait for a decision)")
    server_flags(parser)


def run_project(args: argparse.Namespace, loaded: Loaded, environ: Mapping[str, str]) -> int:
    """Exit code 1 when it cannot be done, with the reason on stderr."""
    return with_remote(args, loaded, environ, lambda remote: _run(args, remote))


def _run(args: argparse.Namespace, remote: Remote) -> int:
    files = [file for file in remote.call("GET", "/project")["files"] if args.path in (None, file["path"])]
    if not files:
        print(f"The workspace has no instructions {args.path}." if args.path else NONE)
        return 1 if args.path else 0
    for file in files:
        _act(args, remote, file)
    return 0


def _act(args: argparse.Namespace, remote: Remote, file: Mapping[str, Any]) -> None:
    """Show a file, or what has changed in it, and decide on exactly that text."""
    print(f"{exact(file['path'])} {STATES.get(file['state'], file['state'])}.")
    if problem := file.get("problem"):
        print(f"  {exact(problem)}")
        return
    waits = file["state"] in ("new", "changed")
    if args.action == "show" or waits:
        print("\n".join(f"  {exact(line)}" for line in _lines(file)))
    if args.action != "show" and (waits or args.path):
        decision = {"path": file["path"], "digest": file["digest"], "decision": args.action}
        after = remote.call("POST", "/project", decision)
        print(f"{exact(after['path'])} {STATES[after['state']]}.")


def _lines(file: Mapping[str, Any]) -> list[str]:
    text: str = file["text"]
    before = file.get("before")
    if before is None:
        return text.split("\n")
    return list(difflib.unified_diff(before.split("\n"), text.split("\n"), "before", "now", lineterm=""))
