"""`dragoman permission list | remove`: what you have allowed for good, at a server that runs."""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping, Sequence
from typing import Any

from app.config.settings import Loaded
from routes.cli.columns import action, aligned
from routes.cli.remote import Remote, server_flags, with_remote
from routes.terminal.event_client import step
from routes.texts.exact import one_line

COLUMNS = ("id", "today", "all", "last", "words")
NONE = "You have no standing permissions: an approval offers them."


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
