"""`dragoman memory list | search | show | add | edit | delete`: the caller's memories, at a server that runs."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlencode

from app.config.settings import Loaded
from app.memory.limits import MOST_PAGE
from routes.cli.columns import aligned, failed
from routes.cli.remote import Remote, server_flags, with_remote
from routes.terminal.event_client import step
from routes.texts.exact import exact
from tools.base.access import KINDS

COLUMNS = ("id", "kind", "day", "text")
NONE = "Nothing is remembered."
OFF = "The memory is off (memory = false): nothing is remembered or recalled."


def memory_flags(parser: argparse.ArgumentParser) -> Sequence[argparse.ArgumentParser]:
    """The parsers of the actions, for the flags that all of them have."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    listing = actions.add_parser("list", help="list all, the most recently changed first", allow_abbrev=False)
    listing.add_argument("--session", help="only those of this conversation")
    listing.add_argument("--untrusted", action="store_true", help="only those from untrusted text")
    search = actions.add_parser("search", help="search by words and by meaning", allow_abbrev=False)
    search.add_argument("words", nargs="+", help="a question, or words")
    show = actions.add_parser("show", help="show one with its source", allow_abbrev=False)
    add = actions.add_parser("add", help="remember a sentence", allow_abbrev=False)
    add.add_argument("text")
    edit = actions.add_parser("edit", help="change the text, the kind or the mark of one", allow_abbrev=False)
    delete = actions.add_parser("delete", help="delete one, those of a conversation, or all", allow_abbrev=False)
    for child in (show, edit):
        child.add_argument("id", help="as `dragoman memory list` shows it")
    delete.add_argument("id", nargs="?", help="as `dragoman memory list` shows it")
    delete.add_argument("--session", help="those of this conversation")
    delete.add_argument("--all", action="store_true", help="all that you have")
    edit.add_argument("text", nargs="?", help="the new text")
    edit.add_argument("--trusted", action="store_true", help="remove the mark of untrusted text")
    for child in (add, edit):
        child.add_argument("--kind", choices=KINDS)
    children = [listing, search, show, add, edit, delete]
    for child in children:
        server_flags(child)
    return children


def run_memory(args: argparse.Namespace, loaded: Loaded, environ: Mapping[str, str]) -> int:
    """Exit code 1 when it cannot be done, with the reason on stderr."""
    return with_remote(args, loaded, environ, lambda remote: _act(args, remote))


def _act(args: argparse.Namespace, remote: Remote) -> int:
    match args.action:
        case "list":
            _print_all(args, remote)
        case "search":
            found = remote.call("GET", f"/memory?{urlencode({'q': ' '.join(args.words), 'limit': 20})}")["memories"]
            print(_table(found) if found else "No memory matches that.")
        case "show":
            for name, value in remote.call("GET", _path(args.id)).items():
                print(f"{name}: {exact(str(value))}")
        case "add":
            fields = {"text": args.text} | ({"kind": args.kind} if args.kind else {})
            print(_table([remote.call("POST", "/memory", fields)]))
        case "edit":
            fields = {"text": args.text, "kind": args.kind, "untrusted": False if args.trusted else None}
            changed = {name: value for name, value in fields.items() if value is not None}
            print(_table([remote.call("PATCH", _path(args.id), changed)]))
        case _:
            return _delete(args, remote)
    return 0


def _delete(args: argparse.Namespace, remote: Remote) -> int:
    if sum(map(bool, (args.id, args.session, args.all))) != 1:
        return failed("name one memory, or --session ID, or --all")
    if args.id:
        remote.call("DELETE", _path(args.id))
        print(f"Deleted {args.id}.")
    else:
        query = urlencode({"session": args.session} if args.session else {"all": "true"})
        print(f"Deleted {remote.call('DELETE', f'/memory?{query}')['deleted']} memories.")
    return 0


def _print_all(args: argparse.Namespace, remote: Remote) -> None:
    query: dict[str, Any] = {"limit": MOST_PAGE}
    query |= {"session": args.session} if args.session else {}
    query |= {"untrusted": "true"} if args.untrusted else {}
    following: str | None = ""
    while following is not None:
        page = remote.call("GET", f"/memory?{urlencode(query | ({'before': following} if following else {}))}")
        if page["memories"]:
            print(_table(page["memories"]))
        elif not following:
            print(NONE)
        following = page["next"]
    if not page["enabled"]:
        print(OFF, file=sys.stderr)


def _path(memory: str) -> str:
    return f"/memory/{step(memory)}"


def _table(rows: Sequence[Mapping[str, Any]]) -> str:
    return "\n".join(aligned(COLUMNS, map(_cells, rows)))


def _cells(row: Mapping[str, Any]) -> dict[str, str]:
    day = time.strftime("%Y-%m-%d", time.localtime(row["updated"]))
    marks = ", ".join([*row["labels"], *(["untrusted"] if row["untrusted"] else [])])
    text = exact(" ".join(row["text"].split()))
    return {"id": row["id"], "kind": row["kind"], "day": day, "text": f"({marks}) {text}" if marks else text}
