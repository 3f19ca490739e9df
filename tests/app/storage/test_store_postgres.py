"""What the store in PostgreSQL has of its own: how it is opened, what its failures say, and what it survives."""

from __future__ import annotations

import asyncio
import sqlite3
import sys
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, closing, suppress
from pathlib import Path

import pytest

from app.core.events import TextDelta, ToolStarted, encode
from app.core.messages import Message, dump
from app.storage.audit import AuditRow
from app.storage.changes import Change, LeaseLost, StartsPaused, StoreFailed
from app.storage.database import open_store
from app.storage.files.store import FileRow, SessionFile
from app.storage.postgres.database import WRITING
from app.storage.postgres.failures import failure
from app.storage.postgres.schema import SCHEMA, TABLES, migrate
from app.storage.postgres.statements import STATEMENTS, WRITE
from app.storage.postgres.store import PostgresStore
from app.storage.postgres.write_function import WriteFunction
from app.storage.runs import ALL, EventRow, InboxRow, RunEnded, RunRow
from app.storage.sessions import MessageRow, SessionRow
from app.storage.sqlite.schema import SCHEMA as SQLITE_SCHEMA
from app.storage.sqlite.schema import TABLES as SQLITE_TABLES
from app.storage.state import StateRow
from app.storage.usage import UsageAdded
from tests.support.databases.postgres import Cluster
from tests.support.replicas.nginx import free_port

pytestmark = pytest.mark.anyio
LIMIT_S = 60
BEGUN = (SessionRow("s", "ann", 1.0, "Title"), RunRow("r", "s", "ann", "m", "running", 2.0))
ME = "replica-1"
ALIVE = f"INSERT INTO replicas (id, node, version, lease_until) VALUES ('{ME}', 'a', '1', clock_timestamp())"
OTHERS = "datname = current_database() AND pid <> pg_backend_pid()"
CUT = f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {OTHERS}"
AUDITED = AuditRow(1.0, "ann", "bash", "ask", "It asks.", "policy")


@asynccontextmanager
async def store_at(url: str, *begun: Change) -> AsyncIterator[PostgresStore]:
    async with asyncio.timeout(LIMIT_S):
        store = await PostgresStore.open(url)
        try:
            await store.write(begun)
            yield store
        finally:
            await store.close()


def name_of(url: str) -> str:
    return url.rpartition("/")[2]


def deltas(*numbers: int) -> list[EventRow]:
    return [EventRow("r", number, TextDelta.type, encode(TextDelta(f"{number} "))) for number in numbers]


async def test_two_servers_may_make_the_tables_at_once(postgres: Cluster) -> None:
    """The database has none yet; the second waits for the first. It is reached over a socket here."""
    postgres.sql("CREATE DATABASE empty")
    async with asyncio.timeout(LIMIT_S):
        stores = await asyncio.gather(*(PostgresStore.open(postgres.socket_url("empty")) for _ in range(3)))
        await asyncio.gather(*(store.check() for store in stores))
        assert set(await stores[0].sizes()) == {*TABLES, "bytes"}
        await asyncio.gather(*(store.close() for store in stores))


async def test_versions_work_side_by_side_while_the_schema_only_adds(postgres: Cluster) -> None:
    """Each has the function of its own statements. What an older one could not use is refused."""
    url = postgres.database()
    before = WriteFunction({kind: STATEMENTS[kind] for kind in (SessionRow, RunRow)})
    async with store_at(url, *BEGUN) as store:
        postgres.sql(f"UPDATE dragoman_schema SET version = {len(SCHEMA) + 1}", name_of(url))
        async with store.connections.one() as connection:
            await migrate(connection, store.place, before)
            await connection.execute(before.call, *before.arguments(deltas(1), None, None))
        async with store_at(url, *deltas(2)) as other:
            assert await other.events("r", 0, ALL) == deltas(1, 2)
        assert before.name != WRITE.name
        postgres.sql(f"UPDATE dragoman_schema SET oldest = {len(SCHEMA) + 1}", name_of(url))
        with pytest.raises(StoreFailed, match=r"made by a newer dragoman .* Upgrade this one"):
            await PostgresStore.open(url)


def test_every_table_of_sqlite_is_there_with_its_columns(postgres: Cluster) -> None:
    """What is added to one schema is added to the other."""
    numbers = {("memories", "number"), ("audit", "number"), ("document_suggestions", "number")}
    columns = "SELECT table_name || '.' || column_name FROM information_schema.columns WHERE table_schema = 'public'"
    theirs = set(postgres.sql(columns, name_of(postgres.database())).split())
    with closing(sqlite3.connect(":memory:")) as database:
        for script in SQLITE_SCHEMA:
            database.executescript(script)
        ours = {
            f"{table}.{column[1]}"
            for table in SQLITE_TABLES
            if table != "event_batches"
            for column in database.execute(f"PRAGMA table_info({table})")
        }
    assert ours - theirs == set() and {f"{table}.{name}" for table, name in numbers} <= theirs


SECRET = "s3cret-w0rd"


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("postgresql://ann:{secret}@127.0.0.1:{closed}/x", "cannot be reached: .* Check that it runs"),
        ("postgresql://ann:{secret}@no-host.invalid/x", "cannot be reached: .* Check that it runs"),
        ("postgresql://nobody:{secret}@127.0.0.1:{port}/postgres", "Correct the user in DRAGOMAN_DATABASE_URL"),
        ("postgresql://dragoman:{secret}@127.0.0.1:{port}/nothing", "Create that database"),
        ("postgres://dragoman:{secret}@127.0.0.1:{port}/postgres?sslmode=require", "Turn ssl on .* or change sslmode"),
        ("postgres://dragoman:{secret}@127.0.0.1:{port}/postgres?sslmode=yes", "cannot be used: .*sslmode"),
        ("postgres://dragoman:{secret}@127.0.0.1:{port}/postgres?speed=high", "Correct what stands behind the `\\?`"),
    ],
)
async def test_a_url_that_leads_nowhere_is_named_without_its_password(postgres: Cluster, url: str, words: str) -> None:
    async with asyncio.timeout(LIMIT_S):
        with pytest.raises(StoreFailed, match=words) as failed:
            await PostgresStore.open(url.format(secret=SECRET, port=postgres.port, closed=free_port()))
    assert SECRET not in str(failed.value)


async def test_without_the_driver_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in [name for name in sys.modules if name.startswith("app.storage.postgres")]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, "asyncpg", None)
    with pytest.raises(StoreFailed, match=r"pip install 'dragoman\[postgres\]'"):
        await open_store(Path("never-opened"), "postgresql://127.0.0.1/x")


@pytest.mark.parametrize("mode", ["fast", "immediate"])
async def test_a_server_that_is_restarted_is_waited_for(postgres: Cluster, mode: str) -> None:
    """What was under way is written once."""
    async with store_at(postgres.database(), *BEGUN) as store:
        store.patience_s = LIMIT_S

        async def write() -> None:
            for number in range(1, 200):
                await store.write(deltas(number))

        writing = asyncio.create_task(write())
        while await store.last_seq("r") < 20:
            pass
        await asyncio.to_thread(postgres.stop, mode)
        reading = asyncio.create_task(store.session("s"))
        await asyncio.sleep(0)
        postgres.start()
        assert await reading
        await writing
        assert await store.events("r", 0, ALL) == deltas(*range(1, 200))


async def test_connections_that_are_cut_lose_and_double_nothing(postgres: Cluster) -> None:
    url, writers, writes = postgres.database(), 4, 25
    sessions = [SessionRow(f"s{one}", "ann", 1.0, "") for one in range(writers)]
    runs = [RunRow(f"r{one}", f"s{one}", "ann", "m", "running", 1.0) for one in range(writers)]
    async with store_at(url, *sessions, *runs) as store:
        store.patience_s = LIMIT_S
        done = asyncio.Semaphore(0)

        async def write(one: int) -> None:
            for number in range(1, writes + 1):
                await store.write([UsageAdded("ann", "tokens", "2026-11", 1.0), AUDITED])
                await store.write([EventRow(f"r{one}", number, "x", "{}")])
                done.release()

        writing = asyncio.gather(*map(write, range(writers)))
        for _ in range(writers * writes // 5):
            await asyncio.to_thread(postgres.sql, CUT, name_of(url))
            for _ in range(5):
                await done.acquire()
        await writing
        assert await store.usage("ann", "tokens", "2026-11") == writers * writes
        assert len(await store.audit(1 << 40, 1_000)) == writers * writes
        assert [await store.last_seq(run.id) for run in runs] == [writes] * writers


async def test_a_server_that_has_lost_its_lease_writes_nothing_more(postgres: Cluster) -> None:
    url = postgres.database()
    async with store_at(url, *BEGUN) as store:
        postgres.sql(ALIVE, name_of(url))
        store.fenced_by = ME
        await store.write(deltas(1))
        postgres.sql("UPDATE replicas SET state = 'gone'", name_of(url))
        for refused in (store.write(deltas(2)), store.delete_session("s"), store.replace_events("r", [])):
            with pytest.raises(LeaseLost):
                await refused
        assert await store.events("r", 0, ALL) == deltas(1)


async def test_nothing_starts_while_the_database_says_paused(postgres: Cluster) -> None:
    """What does not start a run or a tool is still written."""
    url = postgres.database()
    async with store_at(url, *BEGUN, StateRow("paused", "yes")) as store:
        postgres.sql(ALIVE, name_of(url))
        store.fenced_by = ME
        tool = EventRow("r", 2, ToolStarted.type, encode(ToolStarted("c", "bash", {}, "native")))
        for starts in ([tool], [RunRow("r2", "s", "ann", "m", "queued", 3.0)]):
            with pytest.raises(StartsPaused):
                await store.write([*deltas(1), *starts])
        await store.write(deltas(1))
        await store.write([StateRow("paused", "no")])
        await store.write([tool])
        assert await store.started_calls("r") == {"c"}


async def test_a_cancelled_caller_leaves_a_whole_transaction(postgres: Cluster) -> None:
    async with store_at(postgres.database(), *BEGUN) as store:
        for number in range(1, 20):
            writing = asyncio.create_task(store.write([*deltas(number), InboxRow("r", number, "x")]))
            for _ in range(number % 5):
                await asyncio.sleep(0)
            writing.cancel()
            with suppress(asyncio.CancelledError):
                await writing
            await asyncio.gather(*(task for task in asyncio.all_tasks() if task.get_name() == WRITING))
            seqs = [row.seq for row in await store.events("r", 0, ALL)]
            assert seqs == [row.position for row in await store.inbox("r")]


async def test_what_a_cancelled_caller_was_writing_is_there_after_the_end(postgres: Cluster) -> None:
    url = postgres.database()
    async with store_at(url, *BEGUN) as store:
        writing = asyncio.create_task(store.write(deltas(1)))
        await asyncio.sleep(0)
        writing.cancel()
    async with store_at(url) as store:
        assert await store.events("r", 0, ALL) == deltas(1)


REFUSED: dict[str, Iterable[Change]] = {
    "a lone surrogate": [SessionRow("x", "ann", 1.0, "\ud800")],
    "a number beyond 64 bits": [RunEnded("r", "answered", 1 << 1100)],
    "a number twice": deltas(1),
    "an event of no run": [EventRow("gone", 1, "x", "{}")],
}


@pytest.mark.parametrize("name", REFUSED)
async def test_what_cannot_be_stored_is_a_failure_and_nothing_of_it_is_kept(postgres: Cluster, name: str) -> None:
    async with store_at(postgres.database(), *BEGUN, *deltas(1)) as store:
        with pytest.raises(StoreFailed):
            await store.write([StateRow("kept", "no"), *REFUSED[name]])
        assert await store.state("kept") is None
        await store.write(
            [SessionRow("nul", "ann", 1.0, "a\0b"), MessageRow("nul", 0, "r", dump(Message("user", "\0")))]
        )
        found = await store.session("nul")
        assert found and found.title == "a\ufffdb" and [one.text for one in await store.messages("nul")] == ["\0"]


async def test_a_file_is_kept_for_a_session_that_gets_it_while_the_last_one_is_deleted(postgres: Cluster) -> None:
    async with store_at(postgres.database()) as store:
        for number in range(20):
            old, new = f"old{number}", f"new{number}"
            await store.write([SessionRow(old, "ann", 1.0, ""), FileRow("f", b"\0\xff"), SessionFile(old, "f")])
            added = [SessionRow(new, "ann", 1.0, ""), FileRow("f", b"\0\xff"), SessionFile(new, "f")]
            await asyncio.gather(store.write(added), store.delete_session(old))
            assert await store.file("f", new) == b"\0\xff"
            await store.delete_session(new)
            assert await store.file("f") is None


def test_a_full_disk_and_too_many_connections_have_their_advice() -> None:
    asyncpg = pytest.importorskip("asyncpg")
    full = failure(asyncpg.DiskFullError("could not extend file"), "postgresql://h/x")
    many = failure(asyncpg.TooManyConnectionsError("sorry, too many clients already"), "postgresql://h/x")
    assert "Make room on the disk" in str(full) and "Raise max_connections" in str(many)
