"""`dragoman webhook add | list | remove | test | deliveries`: receivers of notifications, at a server that runs."""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping, Sequence
from typing import Any

from app.config.settings import Loaded
from routes.cli.columns import aligned, failed
from routes.cli.remote import Remote, server_flags, with_remote
from routes.terminal.event_client import step
from routes.texts.exact import exact

COLUMNS = ("id", "name", "state", "pending", "url")
DELIVERIES = ("id", "type", "state", "attempts", "created", "error")
MADE = """{secret}

This is the secret of {id}, which signs its messages. It is shown only now; POST /webhooks/{id}/secret replaces it.
"""


def webhook_flags(parser: argparse.ArgumentParser) -> Sequence[argparse.ArgumentParser]:
    """The parsers of the actions, for the flags that all of them have."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    add = actions.add_parser("add", help="add a webhook and print its secret once", allow_abbrev=False)
    add.add_argument(
        "address", metavar="URL", help="the address to send to: https and a public host, unless private_hosts names it"
    )
    add.add_argument("--name", help="a name for lists (default: the host)")
    add.add_argument("--events", metavar="NAMES", help="such as approval.required,run.ended (default: all)")
    add.add_argument("--channel", metavar="NAME", help="what it is sent: webhook (signed JSON, the default) or ntfy")
    add.add_argument("--decides", action="store_true", help="send links that decide what waits for your approval")
    add.add_argument("--everyone", action="store_true", help="the events of all principals, for admins")
    listing = actions.add_parser("list", help="list your webhooks, one per line", allow_abbrev=False)
    children = [add, listing]
    for name, text in NAMED.items():
        children.append(child := actions.add_parser(name, help=text, allow_abbrev=False))
        child.add_argument("id", help="as `dragoman webhook list` shows it")
    for child in children:
        server_flags(child)
    return children


NAMED = {
    "remove": "remove a webhook and its deliveries",
    "test": "send a test now",
    "deliveries": "list the last deliveries, newest first",
}


def run_webhook(args: argparse.Namespace, loaded: Loaded, environ: Mapping[str, str]) -> int:
    """Exit code 1 when it cannot be done, with the reason on stderr."""
    return with_remote(args, loaded, environ, lambda remote: _act(args, remote))


def _act(args: argparse.Namespace, remote: Remote) -> int:
    path = f"/webhooks/{step(getattr(args, 'id', ''))}"
    match args.action:
        case "add":
            made = remote.call("POST", "/webhooks", _request(args))
            print(MADE.format(**made) if made["secret"] else f"{made['id']} is added.")
        case "list":
            rows = remote.call("GET", "/webhooks")["webhooks"]
            print("\n".join(aligned(COLUMNS, ({name: exact(str(row[name])) for name in COLUMNS} for row in rows))))
        case "remove":
            remote.call("DELETE", path)
            print(f"{args.id} is removed.")
        case "test":
            return _tested(remote.call("POST", f"{path}/test"))
        case _:
            rows = remote.call("GET", f"{path}/deliveries")["deliveries"]
            print("\n".join(aligned(DELIVERIES, map(_delivery, rows))))
    return 0


def _request(args: argparse.Namespace) -> Mapping[str, Any]:
    events = [one.strip() for one in (args.events or "").split(",") if one.strip()]
    body: dict[str, Any] = {"url": args.address, "events": events, "everyone": args.everyone}
    return body | {name: value for name in ("name", "channel", "decides") if (value := getattr(args, name))}


def _tested(answer: Mapping[str, Any]) -> int:
    if answer["delivered"]:
        print(f"Delivered ({answer['status']}) in {answer['duration_s']} s.")
        return 0
    return failed(f"not delivered: {exact(answer['error'])}")


def _delivery(row: Mapping[str, Any]) -> Mapping[str, str]:
    at = time.strftime("%Y-%m-%d %H:%M", time.localtime(row["created"]))
    return {name: exact(str(row[name] or "")) for name in DELIVERIES} | {"created": at}
