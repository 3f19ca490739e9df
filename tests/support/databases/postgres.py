"""PostgreSQL for tests: a cluster of their own in a temporary directory, run by an account without rights.

A test that takes the fixture `database` of tests/conftest.py runs on SQLite and on PostgreSQL: `settings_in` of
tests/support/server/serving.py, and `opened` here, use the one that it is for. Each folder has a database of its own,
also after a restart on it. A test of faults has a cluster of its own: `with cluster() as postgres`.
"""

from __future__ import annotations

import asyncio
import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import AsyncIterator, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import cache
from importlib.util import find_spec
from itertools import count
from pathlib import Path

import psutil
import pytest

from app.storage.database import DATABASE, open_store
from app.storage.store import Store
from tests.support.nightly import USUAL_DATABASE
from tests.support.replicas.nginx import free_port

LIMIT_S = 60
ACCOUNTS = ("postgres", "nobody")  # one of them runs it where the tests run as root, as which it refuses to
USER = "dragoman"
TEMPLATE = "dragoman_template"  # a database with the schema, which is copied for each test
# A crash of the machine may cost all of it.
QUICK = ("fsync=off", "full_page_writes=off", "autovacuum=off", "shared_buffers=32MB", "max_connections=200")
PREFIX = "dragoman-postgres-"  # of a cluster's folder; the id of its test process follows
MEMORY, MEMORY_NEEDED = Path("/dev/shm"), 4 * 2**30  # where clusters are, if there is as much room
HOW = "apt-get install postgresql, and pip install asyncpg"


@cache
def programs() -> Path | None:
    """The folder of `initdb`, of the newest version; None where there is no PostgreSQL, or no driver of it."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[-3]))
    if not found and (in_path := shutil.which("initdb")):
        found = [Path(in_path).resolve()]
    return found[-1].parent if found and find_spec("asyncpg") else None


def require_postgres() -> None:
    """Skip the test where there is no PostgreSQL; under CI it fails."""
    if programs() is None:
        assert os.environ.get("CI") != "true", f"There is no PostgreSQL: {HOW}."
        pytest.skip(f"there is no PostgreSQL: {HOW}")


class Cluster:
    """A server on a free port of loopback, and on a socket in its folder. It ends with this process at latest."""

    def __init__(self, folder: Path, *settings: str) -> None:
        found = programs()
        assert found
        self.folder, self.port = folder, free_port()
        self._programs, self._settings = found, (*QUICK, *settings)
        self._account = next((pwd.getpwnam(one) for one in ACCOUNTS if _exists(one)), None)
        self._account = self._account if os.geteuid() == 0 else None
        self._numbers = count(1)
        self._process: subprocess.Popen[bytes] | None = None

    def url(self, database: str) -> str:
        return f"postgresql://{USER}@127.0.0.1:{self.port}/{database}"

    def socket_url(self, database: str) -> str:
        return f"postgresql://{USER}@/{database}?host={self.folder}&port={self.port}"

    def make(self) -> None:
        """Make the files of a cluster, and in it the template of databases."""
        if self._account:
            os.chown(self.folder, self._account.pw_uid, self._account.pw_gid)
        flags = ("--no-sync", "--no-instructions", "--encoding=UTF8", "--locale=C", "--auth=trust", "-U", USER)
        self._run("initdb", "-D", str(self.folder / "data"), *flags)
        self.start()
        self.sql(f"CREATE DATABASE {TEMPLATE}")
        with ThreadPoolExecutor(1) as thread:  # the test's own thread may have a loop that runs
            thread.submit(asyncio.run, _filled(self.url(TEMPLATE))).result()

    def start(self) -> None:
        """Return once it takes connections. It ends with the thread that calls this: that is to be the main one."""
        place = ("-D", str(self.folder / "data"), "-p", str(self.port), "-k", str(self.folder), "-h", "127.0.0.1")
        options = [f"-c{one}" for one in self._settings]
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(self._command("postgres", *place, *options), stdout=log, stderr=log)
        ready = [str(self._programs / "pg_isready"), "-q", "-h", "127.0.0.1", "-p", str(self.port)]
        while subprocess.run(ready).returncode:
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(0.02)
            assert self._process.poll() is None, (self.folder / "log").read_text()

    def stop(self, mode: str = "fast") -> None:
        """Stop it as `pg_ctl` does; `immediate` is a crash."""
        if self._process and self._process.poll() is None:
            self._run("pg_ctl", "stop", "-s", "-w", "-m", mode, "-D", str(self.folder / "data"))
            self._process.wait(LIMIT_S)

    def database(self) -> str:
        """The URL of a new database that has the schema."""
        name = f"db{next(self._numbers)}"
        self.sql(f"CREATE DATABASE {name} TEMPLATE {TEMPLATE} STRATEGY file_copy")
        return self.url(name)

    def sql(self, statement: str, database: str = "postgres") -> str:
        """Execute a statement as the superuser, and return what it answers."""
        return self._run("psql", "-XqAt", "-v", "ON_ERROR_STOP=1", "-d", self.url(database), "-c", statement)

    def _run(self, program: str, *words: str) -> str:
        done = subprocess.run(self._command(program, *words), capture_output=True, timeout=LIMIT_S, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def _command(self, program: str, *words: str) -> list[str]:
        """The command, as the account; the server ends when this process does."""
        limits = ["--pdeathsig=QUIT"] if program == "postgres" else []
        if self._account:
            limits += [f"--reuid={self._account.pw_uid}", f"--regid={self._account.pw_gid}", "--clear-groups"]
        return [*(["setpriv", *limits] if limits else []), str(self._programs / program), *words]


def _exists(account: str) -> bool:
    with suppress(KeyError):
        return bool(pwd.getpwnam(account))
    return False


async def _filled(url: str) -> None:
    await (await open_store(Path(), url)).close()


def _in_memory() -> Path | None:
    """A file system in memory: a new database is 300 files and 9 MB, which takes a disk eight times as long."""
    if USUAL_DATABASE == "postgres" or not os.access(MEMORY, os.W_OK):  # thousands of databases would fill it
        return None
    return MEMORY if shutil.disk_usage(MEMORY).free >= MEMORY_NEEDED else None


def _remove_left() -> None:
    """Remove the clusters in memory of test runs that were killed: each holds a gigabyte of it."""
    for left in MEMORY.glob(f"{PREFIX}*"):
        owner = left.name.removeprefix(PREFIX).partition("-")[0]
        if owner.isdecimal() and not psutil.pid_exists(int(owner)):
            subprocess.run(["rm", "-rf", left], check=True)


@contextmanager
def cluster(*settings: str) -> Generator[Cluster, None, None]:
    """A running cluster; `settings` are those of PostgreSQL, such as `fsync=on`."""
    require_postgres()
    _remove_left()
    folder = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-", dir=_in_memory()))
    made = Cluster(folder, *settings)
    try:
        made.make()
        yield made
    finally:
        made.stop("immediate")
        subprocess.run(["rm", "-rf", folder], check=True)  # thousands of files


class Databases:
    """The database of each folder, where the test is for PostgreSQL."""

    def __init__(self) -> None:
        self.cluster: Cluster | None = None
        self.kind = "sqlite"  # or `postgres`, or `replicas`: three servers on one PostgreSQL
        self._urls: dict[Path, str] = {}

    @property
    def servers(self) -> int:
        """The number of servers that a test's client asks in turn."""
        return 3 if self.kind == "replicas" else 1

    def url_of(self, folder: Path) -> str | None:
        """The URL of the database of this folder; None if the test is for SQLite."""
        if self.kind == "sqlite":
            return None
        assert self.cluster
        if folder not in self._urls:
            self._urls[folder] = self.cluster.database()
        return self._urls[folder]


DATABASES = Databases()


@asynccontextmanager
async def opened(folder: Path) -> AsyncIterator[Store]:
    """The store that the test is for."""
    store = await open_store(folder / DATABASE, DATABASES.url_of(folder))
    try:
        yield store
    finally:
        await store.close()
