"""The store beside a plain one that applies each change at once: both say the same, whatever happens in between."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from app.core.events import RunFinished, TextDelta, ToolStarted
from app.core.messages import Message, dump
from app.storage.audit import AuditRow
from app.storage.changes import Change, StoreFailed
from app.storage.runs import ALL, EventRow, InboxRow, InboxTaken, KeyRow, RunBegan, RunEnded, RunRow
from app.storage.sessions import MessageRow, SessionRow, SessionTitle
from app.storage.sql.writes import WRITES
from app.storage.sqlite.database import Database
from app.storage.sqlite.recent_events import MOST_EVENTS
from app.storage.sqlite.schema import SCHEMA
from app.storage.sqlite.store import SQLiteStore
from app.storage.state import StateRow
from app.storage.usage import ModelUsage, UsageAdded
from tests.support.databases.earlier import set_pragma

TABLES = ("sessions", "runs", "inbox", "messages", "idempotency", "audit", "used", "spent", "state")
LONG = 20_000  # characters of a change that is written to its table at once
LARGE = 40_000  # of one that the writer's thread commits
NAMES = st.sampled_from("abc")
SIZES = st.sampled_from([1, 1, 1, 1, 400, LONG, LARGE])
Step = tuple[Any, ...]
CHANGES = st.one_of(
    st.tuples(st.just("session"), NAMES, SIZES),
    st.tuples(st.just("run"), NAMES, NAMES),
    st.tuples(st.sampled_from(["began", "ended", "taken"]), NAMES),
    st.tuples(st.sampled_from(["inbox", "message"]), NAMES, SIZES),
    st.tuples(st.sampled_from(["key", "audit", "used", "spent", "title", "state"]), NAMES),
    st.tuples(st.just("events"), NAMES, st.integers(1, MOST_EVENTS), SIZES),
    st.tuples(st.just("last event"), NAMES),
)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("write"), st.lists(CHANGES, max_size=5)),
        st.tuples(st.just("write"), st.lists(CHANGES, max_size=5)),
        st.tuples(st.just("cancelled write"), st.lists(CHANGES, max_size=5), st.integers(1, 4)),
        st.tuples(st.sampled_from(["read", "catch up", "kill", "close", "tidy", "settle", "visit", "vacuum", "many"])),
        st.tuples(st.just("read events"), NAMES, st.integers(0, 40), st.integers(1, 50)),
        st.tuples(st.sampled_from(["full", "busy"]), st.booleans()),
        st.tuples(st.just("delete"), NAMES),
        st.tuples(st.just("cancelled check"), st.integers(1, 4)),
    ),
    min_size=10,
    max_size=40,
)


@dataclass
class Both:
    """A store, and what it must hold: `plain` has what was accepted."""

    folder: Path
    store: SQLiteStore
    plain: sqlite3.Connection
    events: dict[str, list[EventRow]] = field(default_factory=dict)
    now: float = 0.0
    full: bool = False
    other: sqlite3.Connection | None = None  # which holds the database

    @property
    def lasting(self) -> bool:
        return not self.full and self.other is None

    def made(self, kind: str, *of: Any) -> Sequence[Change]:
        """Changes that the database takes, of what there is."""
        self.now += 1.0
        name = of[0]
        match kind, of:
            case "session", (_, size):
                return [] if self.has("sessions", id=name) else [SessionRow(name, name, self.now, "é" * size)]
            case "run", (_, session):
                row = RunRow(f"{name}{self.now}", session, "ann", "m", "queued", self.now)
                return [row] if self.has("sessions", id=session) else []
            case "state", _:
                return [StateRow(name, str(self.now))]
            case "title", _:
                return [SessionTitle(name, str(self.now))]
            case "message", (_, size):
                position = self.count("messages", session=name)
                text = dump(Message("user", f"w{self.now} " * (size // 8 + 1)))
                return [MessageRow(name, position, "r", text)] if self.has("sessions", id=name) else []
            case "key", _:
                return [KeyRow(name, "k", "body", str(self.now), self.now)]
            case "audit", _:
                return [AuditRow(self.now, name, "bash", "ask", "\t\n", "policy")]
            case "used", _:
                return [UsageAdded(name, "tokens", "2026-11", 2.0)]
            case "spent", _:
                return [ModelUsage(name, "2026-11", "m", "r", "s", 1, 2, 3, 0, 0, None, None)]
        run = self.newest_run(name)
        if run is None:
            return []
        match kind, of:
            case "began", _:
                return [RunBegan(run)] if self.has("runs", id=run, state="queued") else []
            case "ended", _:
                return [] if self.has("runs", id=run, state="answered") else [RunEnded(run, "answered", self.now)]
            case "taken", _:
                return [InboxTaken(run)]
            case "inbox", (_, size):
                return [InboxRow(run, int(self.now), "x" * size)]
            case "events", (_, number, size):
                return self.new_events(run, number, size)
        return [EventRow(run, len(self.events.get(run, ())) + 1, RunFinished.type, "{}")]

    def new_events(self, run: str, number: int, size: int) -> list[EventRow]:
        events, first = self.events.get(run, []), len(self.events.get(run, ())) + 1
        if events and events[-1].type == RunFinished.type:
            return []
        kinds = [ToolStarted.type if seq % 11 == 0 else TextDelta.type for seq in range(first, first + number)]
        data = json.dumps({"call": "c", "text": "x" * (size // number)})
        return [EventRow(run, seq, kind, data) for seq, kind in enumerate(kinds, start=first)]

    def newest_run(self, name: str) -> str | None:
        rows = self.plain.execute("SELECT id FROM runs WHERE id LIKE ? ORDER BY created DESC", (f"{name}%",)).fetchall()
        return rows[0][0] if rows else None

    def has(self, table: str, **values: object) -> bool:
        return self.count(table, **values) > 0

    def count(self, table: str, **values: object) -> int:
        equal = " AND ".join(f"{name} = ?" for name in values)
        return int(self.plain.execute(f"SELECT COUNT(*) FROM {table} WHERE {equal}", (*values.values(),)).fetchone()[0])

    def take(self, changes: Sequence[Change]) -> None:
        for change in changes:
            if isinstance(change, EventRow):
                self.events.setdefault(change.run, []).append(change)
            else:
                self.plain.execute(WRITES[type(change)].sql, WRITES[type(change)].values(change))

    def planned(self, groups: Sequence[Step]) -> list[Change]:
        """Each of them made of what there will be; a savepoint takes all of them back."""
        kept = {run: list(rows) for run, rows in self.events.items()}
        self.plain.execute("SAVEPOINT planned")
        changes = list[Change]()
        for group in groups:
            made = self.made(*group)
            self.take(made)
            changes += made
        self.plain.execute("ROLLBACK TO planned")
        self.plain.execute("RELEASE planned")
        self.events = kept
        return changes

    async def step(self, kind: str, *of: Any) -> None:
        match kind, of:
            case "write", (groups,):
                await self.write(self.planned(groups))
            case "many", ():
                for number in range(70):
                    await self.write(
                        self.planned([("used", "a"), ("audit", "b")] if number % 2 else [("run", "c", "a")])
                    )
            case "cancelled write", (groups, steps):
                await self.cancelled(groups, steps)
            case "cancelled check", (steps,) if self.lasting:
                checking = asyncio.create_task(self.store.check())
                await leave(checking, steps)
            case "read", ():
                await self.same()
            case "read events", (name, after, limit):
                await self.same_events(self.newest_run(name) or "", after, limit)
            case "catch up", ():
                with suppress(StoreFailed):
                    await self.store._catch_up()
            case "tidy", ():
                await self.store._tidy()
            case "settle", ():
                with suppress(StoreFailed):
                    await self.store.forget_before(0.0, 0.0)
            case "vacuum", () if self.lasting:
                await self.store.vacuum()
            case "delete", (name,) if self.lasting:
                await self.delete(name)
            case "visit", () if self.lasting:
                async with asyncio.timeout(30):
                    visitor = await SQLiteStore.open(self.folder / "test.db", visitor=True)
                    own, self.store = self.store, visitor
                    await self.same()
                    self.store = own
                    await visitor.close()
            case ("kill" | "close") as end, ():
                await self.reopen(killed=end == "kill")
            case "full", (full,):
                await self.fill(full)
            case "busy", (busy,):
                if self.other:
                    self.other.close()
                self.other = sqlite3.connect(self.folder / "test.db", isolation_level=None) if busy else None
                if self.other:
                    self.other.execute("BEGIN IMMEDIATE")

    async def fill(self, full: bool) -> None:
        self.full = full
        await set_pragma(self.store, f"max_page_count = {1 if full else 1 << 30}")

    async def write(self, changes: Sequence[Change]) -> None:
        try:
            await self.store.write(changes)
        except StoreFailed:
            assert not self.lasting
        else:
            self.take(changes)

    async def cancelled(self, groups: Sequence[Step], steps: int) -> None:
        """What has begun is done."""
        if self.lasting:
            changes = self.planned(groups)
            await leave(asyncio.create_task(self.store.write(changes)), steps)
            async with self.store._one_writer:
                self.take(changes)

    async def delete(self, session: str) -> None:
        await self.store.delete_session(session)
        for (run,) in self.plain.execute("SELECT id FROM runs WHERE session = ?", (session,)).fetchall():
            self.plain.execute("DELETE FROM inbox WHERE run = ?", (run,))
            self.plain.execute("DELETE FROM idempotency WHERE run = ?", (run,))
            self.events.pop(run, None)
        self.plain.execute("DELETE FROM messages WHERE session = ?", (session,))
        self.plain.execute("DELETE FROM runs WHERE session = ?", (session,))
        self.plain.execute("DELETE FROM sessions WHERE id = ?", (session,))

    async def reopen(self, *, killed: bool) -> None:
        await self.step("busy", False)
        await self.fill(False)
        if killed:
            if self.store._look:
                self.store._look.cancel()
            await Database.close(self.store)  # nothing is applied
        else:
            await self.store.close()
        self.store = await opened(self.folder)

    async def same(self) -> None:
        """Every table says the same, if it can be read."""
        try:
            rows = await self.store._each(*((f"SELECT * FROM {table}", ()) for table in TABLES))
        except StoreFailed:
            assert not self.lasting
            return
        for table, found in zip(TABLES, rows, strict=True):
            expected = self.plain.execute(f"SELECT * FROM {table}").fetchall()
            assert sorted(found, key=repr) == sorted(expected, key=repr), table
        for run in self.events:
            await self.same_events(run, 0, ALL)
        if self.lasting:
            for session in "abc":
                texts = [
                    json.loads(text)["text"]
                    for (text,) in self.plain.execute(
                        "SELECT message FROM messages WHERE session = ? ORDER BY position", (session,)
                    )
                ]
                assert [message.text for message in await self.store.messages(session)] == texts
                listed = self.plain.execute("SELECT id FROM runs WHERE session = ? ORDER BY created", (session,))
                assert [run.id for run in await self.store.runs(session)] == [id for (id,) in listed]

    async def same_events(self, run: str, after: int, limit: int) -> None:
        expected = self.events.get(run, [])
        assert await self.store.events(run, after, limit) == expected[after : after + limit]
        assert await self.store.last_seq(run) == len(expected)


async def leave(task: asyncio.Task[None], steps: int) -> None:
    """Cancel it some steps later, if it has not ended by then."""
    for _ in range(steps):
        await asyncio.sleep(0)
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


async def opened(folder: Path) -> SQLiteStore:
    store = await SQLiteStore.open(folder / "test.db")
    await set_pragma(store, "synchronous = OFF")
    await store._writer.execute("PRAGMA busy_timeout = 1")
    return store


async def lived(folder: Path, steps: Sequence[Step]) -> None:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as plain:
        for script in SCHEMA:
            plain.executescript(script)
        both = Both(folder, await opened(folder), plain)
        beginning = [("session", name, 1) for name in "abc"] + [("run", name, name) for name in "abca"]
        for step in [("write", beginning), *steps]:
            await both.step(*step)
        for ended in ("kill", "close"):
            await both.step(ended)
            await both.same()
        await both.store.close()


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(STEPS)
def test_the_store_says_what_a_plain_one_says(steps: list[Step]) -> None:
    with TemporaryDirectory() as folder:
        asyncio.run(asyncio.wait_for(lived(Path(folder), steps), 60))
