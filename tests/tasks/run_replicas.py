"""`make replicas`: PostgreSQL, three replicas and nginx on this machine, until Ctrl-C.

Data stay in .cache/replicas; the model is that of the DRAGOMAN_* variables, else the embedded one. Everything listens
on loopback, and ends with this process, however that ends.
"""

from __future__ import annotations

import asyncio
import os
import sys
from contextlib import suppress
from pathlib import Path

from tests import ROOT
from tests.support.databases.postgres import TEMPLATE, Cluster, programs
from tests.support.replicas.servers import made_token, replica_environ, three_replicas

FOLDER = ROOT / ".cache" / "replicas"
DATABASE = "replicas"
DURABLE = ("fsync=on", "full_page_writes=on", "autovacuum=on")


def main() -> int:
    """Hold the terminal: Ctrl-C there must reach the replicas before the database, not all at once."""
    if programs() is None:
        print("There is no PostgreSQL, or no asyncpg: `make replicas` installs both where it can.", file=sys.stderr)
        return 1
    alive, ours = os.pipe()
    child = os.fork()
    if child == 0:
        os.setsid()
        os.close(ours)
        with Path(os.devnull).open() as nothing:
            os.dup2(nothing.fileno(), 0)
        _run(alive)
        os._exit(0)
    os.close(alive)
    with suppress(KeyboardInterrupt):
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    print("\nStopping: the replicas drain, nginx and PostgreSQL end after them ...", flush=True)
    os.close(ours)
    with suppress(KeyboardInterrupt):
        os.waitpid(child, 0)
    return 0


def _run(alive: int) -> None:
    cluster = Cluster(_made(FOLDER / "postgres"), *DURABLE)
    try:
        if (cluster.folder / "data" / "PG_VERSION").exists():
            cluster.start()
        else:
            cluster.make()
            cluster.sql(f"CREATE DATABASE {DATABASE} TEMPLATE {TEMPLATE}")
        asyncio.run(_serve(cluster.url(DATABASE), alive))
    finally:
        cluster.stop()


async def _serve(database_url: str, alive: int) -> None:
    """Print the addresses; return when the process that holds the other end of `alive` has ended."""
    ended = asyncio.Event()
    asyncio.get_running_loop().add_reader(alive, ended.set)
    settings = {name: value for name, value in os.environ.items() if name.startswith("DRAGOMAN_")}
    port, token = int(settings.pop("DRAGOMAN_PORT", "0")), _kept_token(database_url)
    async with three_replicas(
        FOLDER, database_url, None, balancer="nginx", environ=settings, token=token, port=port
    ) as replicas:
        print(f"\nOpen  {replicas.url}/#token={token}\nAlso  export DRAGOMAN_URL={replicas.url} DRAGOMAN_TOKEN={token}")
        for one in replicas:
            print(f"      {one.node}: {one.base_url}, process {one.process.pid}, log {one.log}")
        print(f"      database: {database_url}\nCtrl-C ends all of it.", flush=True)
        await ended.wait()
        for one in replicas:
            one.terminate()
        for one in replicas:
            await one.process.wait()


def _kept_token(database_url: str) -> str:
    """The token of an earlier start, kept beside the data that it is for."""
    file = FOLDER / "postgres" / "token"
    if not file.exists():
        (FOLDER / "work").mkdir(parents=True, exist_ok=True)
        token = made_token(replica_environ(FOLDER, "node-1", database_url))
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w") as written:
            written.write(token)
    return file.read_text()


def _made(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return folder.resolve()


if __name__ == "__main__":
    sys.exit(main())
