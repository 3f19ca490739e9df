"""`dragoman node list | forget NAME`: the machines that share a database, each with a workspace of its own."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Mapping

from app.config.settings import Loaded
from app.replicas.nodes import NodeState
from app.storage.changes import StoreFailed
from routes.cli.columns import aligned, failed

HEAD = ("node", "servers", "people", "runs that wait", "jobs", "away")
ONE_SERVER = "This server has a database of its own (SQLite), so there are no nodes. See docs/replicas.md."
NO_DRIVER = "PostgreSQL needs the extra: pip install 'dragoman[postgres]'"
NO_NAME = "Name the node: dragoman node forget NAME. There are: {names}"
UNKNOWN = "There is no node {name!r}. There are: {names}"
SERVES = "Node {name} has {count} running. Stop it first; if it has died, wait until its lease is over."
FORGOTTEN = (
    "Node {name} is given up: {waiting} waiting for it end, {jobs} lost, {people} get another node with their next "
    "message. Files on it are left as they are."
)


def node_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", choices=("list", "forget"), metavar="ACTION", help="list or forget")
    help_text = "the node to give up: runs that wait for it end, its people get another one"
    parser.add_argument("name", nargs="?", metavar="NAME", help=help_text)


def run_node(args: argparse.Namespace, loaded: Loaded, _environ: Mapping[str, str]) -> int:
    """Exit code 1 when it cannot be done, with the reason on stderr."""
    if (url := loaded.settings.postgres_url) is None:
        return failed(ONE_SERVER)
    try:
        return asyncio.run(_run(args.action, args.name, url))
    except ModuleNotFoundError:
        return failed(NO_DRIVER)
    except StoreFailed as failure:
        return failed(str(failure))


async def _run(action: str, name: str | None, url: str) -> int:
    from app.replicas.postgres.nodes import connected, forget, states  # an extra that may not be installed

    async with connected(url) as connection:
        known = await states(connection)
        names = ", ".join(one.name for one in known) or "none"
        if action == "list":
            print("\n".join(aligned(HEAD, map(cells, known))))
            return 0
        if not name:
            return failed(NO_NAME.format(names=names))
        if (node := await forget(connection, name)) is None:
            return failed(UNKNOWN.format(name=name, names=names))
    if node.replicas:
        return failed(SERVES.format(name=name, count=counted(node.replicas, "server")))
    counts = counted(node.waiting, "run"), counted(node.jobs, "job"), counted(node.people, "person", "people")
    print(FORGOTTEN.format(name=name, waiting=counts[0], jobs=counts[1], people=counts[2]))
    return 0


def cells(node: NodeState) -> dict[str, str]:
    away = "" if node.replicas else "a day or longer" if node.away_s is None else f"{max(0, int(node.away_s))} s"
    values = (node.name, *map(str, (node.replicas, node.people, node.waiting, node.jobs)), away)
    return dict(zip(HEAD, values, strict=True))


def counted(count: int, one: str, many: str = "") -> str:
    return f"{count} {one if count == 1 else many or f'{one}s'}"
