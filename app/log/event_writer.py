"""The event log's one writer: changes that arrive while a write is under way leave together in the next one.

An event becomes visible only after its transaction has been committed: what a client has seen survives a kill.
Secrets are hidden before anything is kept, so that no reader of the log can meet one.

    RunLog.add, put ──> pending ──┐
    RunLog.add, put ──> pending ──┼──> batch ──> one transaction ──> publish ──> watchers, news, rows
    EventWriter.put ──────────────┘      ^             |
                                         └─ the next ──┘  SPACING_S after the commit before

- A log that has something pending is in the batch. What is pending is taken only when the write begins, so that deltas
  which arrived meanwhile leave as one row, and numbers (`seq`) are given in the order of the log.
- `publish` follows the commit and does not wait: watchers read the last rows from memory (KEPT), those further behind
  the store. One that waits for text writes it there and then (`Watcher`): no task has to be woken.
- Nothing waits for a write but `flush`, and `room` once BACKLOG changes wait: a token costs a place in a list.
- What begins a run or a round waits PATIENCE_S for the answer's first text, and leaves with it, in one transaction.
- If the store refuses a batch, each log in it ends with a terminal event that only its watchers see (`fail`), and takes
  nothing more: what is stored stays a beginning of what happened. A store that refuses only what starts something
  (StartsPaused) gets each log in a transaction of its own. A log whose run another server owns by now is abandoned.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Protocol

from msgspec import Struct, field

from app.core.deltas import MAX_DELTA, joined, parted
from app.core.document_events import DocumentStarted
from app.core.events import (
    TERMINAL,
    AgentEvent,
    ApprovalRequired,
    ApprovalResolved,
    Delta,
    Encoded,
    RoundStarted,
    RunFailed,
    RunStarted,
    TextDelta,
    ToolFinished,
    encode,
)
from app.core.observers import ObservedRun, ObserveEvent, Observers
from app.log.documents import Documents, OpenDrafts
from app.log.log_compaction import DELTAS
from app.log.redacted_rows import redacted_row
from app.redaction.events import RedactedEvents
from app.redaction.redactor import Redactor
from app.storage.changes import Change, ChangeWriter, LeaseLost, StartsPaused, StoreFailed
from app.storage.runs import EventRow, RunRow
from app.transcript.run_request import trace_of

KEPT = 4  # events of a live run kept in memory; a watcher further behind reads the store
PAGE = 32  # events that a watcher takes at a time: each that stalls holds a page of its own
NEWS = frozenset({RunStarted.type, ApprovalRequired.type, ApprovalResolved.type, ToolFinished.type}) | TERMINAL
SPACING_S = 0.001  # from one commit to the next, unless the store has its own
PATIENCE_S = 0.003  # in which servers nearby answer; too short to be noticed
PATIENT = frozenset({RunStarted.type, RoundStarted.type})
BACKLOG = 1024  # changes not yet written; a producer that is further ahead waits


def _ignore(*_: object) -> None:
    """Do nothing: nobody listens."""


class LogWriter(Protocol):
    """The part of a writer that a run and its log need."""

    redactor: Redactor
    documents: bool

    @property
    def full(self) -> bool: ...

    def open_log(self, run: str, on_failure: Callable[[], None], listeners: Listeners) -> RunLog: ...

    def announce(self, log: RunLog, *, hurries: bool = True) -> None: ...

    async def flush(self) -> None: ...

    async def room(self) -> None: ...


class Listeners(Struct, frozen=True, kw_only=True):
    """Callbacks of a run's log: `on_news` for each event of NEWS that is durable, `on_rows` for all that are.

    `outbox` returns changes that are written with events. `observe` sees the events as they are added, but for deltas.
    """

    on_news: Callable[[], None] = _ignore
    on_rows: Callable[[list[EventRow]], None] | None = None
    outbox: Callable[[list[EventRow]], Sequence[Change]] | None = None
    observe: ObserveEvent | None = None


NO_LISTENERS = Listeners()


class Watcher(Struct):
    """A place in a log. Text that it waits for is offered to `write`; False: it did nothing."""

    seq: int
    write: Callable[[EventRow], bool] | None = None


class RunLog:
    """The log of one live run: `add` events, `put` what belongs with them, `after` waits for the durable ones.

    If the store refuses, `failure` is the terminal event that the watchers get, and nothing more is taken: what is
    stored stays a beginning of what happened, without gaps. `on_failure` is called once.
    """

    def __init__(
        self, run: str, journal: LogWriter, on_failure: Callable[[], None], listeners: Listeners = NO_LISTENERS
    ) -> None:
        self.run = run
        self.last_seq = 0
        self.ended = False
        self.failure: EventRow | None = None
        self._journal = journal
        self._on_failure = on_failure
        self._is_abandoned = False
        self._on_news = listeners.on_news
        self._on_rows = listeners.on_rows
        self._outbox = listeners.outbox
        self._observe = listeners.observe
        self._pending: list[Delta | Encoded] = []
        self._changes: list[Change] = []
        self._kept: list[EventRow] = []
        self._waiting: dict[asyncio.Future[None], Watcher | None] = {}
        self._redacted = RedactedEvents(journal.redactor, deltas_only=True)
        self._documents = Documents() if journal.documents else None
        self._drafts = OpenDrafts()

    def add(self, event: AgentEvent) -> None:
        """Encoded here, not in the writer: what cannot be encoded breaks its own run, not the journal."""
        for redacted in self._redacted.add(event):
            if type(redacted) is TextDelta and len(redacted.text) <= MAX_DELTA:  # as a rule
                self._pending.append(redacted)
            elif isinstance(redacted, Delta):
                self._pending += parted(redacted)
            else:
                self._add_whole(redacted)
        self._journal.announce(self, hurries=event.type not in PATIENT)

    def _add_whole(self, event: AgentEvent) -> None:
        data = encode(event)
        redactor = self._journal.redactor
        if not redactor.is_clean_json(data) and (redacted := redactor.redact_value(event)) is not event:
            event, data = redacted, encode(redacted)
        if self._drafts.open or type(event) is DocumentStarted:
            self._pending += [Encoded(one.type, encode(one)) for one in self._drafts.completed(event)]
        else:
            self._pending.append(Encoded(event.type, data))
        if self._observe and not self.failure:
            self._observe(event)

    @property
    def full(self) -> bool:
        return self._journal.full

    def put(self, change: Change) -> None:
        """A change that is lost with the log if the store refuses it."""
        self._changes.append(redacted_row(change, self._journal.redactor))
        self._journal.announce(self, hurries=False)

    def go_on(self, last_seq: int, drafts: Mapping[str, str]) -> None:
        """Go on with the log of an earlier server, where documents (by their calls) were being written."""
        self.last_seq = last_seq
        self._drafts.open.update(drafts)

    async def after(self, watcher: Watcher) -> list[EventRow] | None:
        """The events behind the watcher, at least one unless the log has ended; None if only the store has them."""
        while self.last_seq <= watcher.seq and not self.ended:
            await self.news(watcher)
        missing = max(0, self.last_seq - watcher.seq)
        if missing > len(self._kept):
            return None
        begin = len(self._kept) - missing
        return self._kept[begin : begin + PAGE]

    async def news(self, watcher: Watcher | None = None) -> None:
        """Wait until there is something new, which the watcher has not written."""
        waiting = asyncio.get_running_loop().create_future()  # an asyncio.Event would be made anew for each batch
        self._waiting[waiting] = watcher
        try:
            await waiting
        finally:
            self._waiting.pop(waiting, None)

    def take_changes(self, events: list[EventRow]) -> list[Change]:
        """Return what is to be written with these events."""
        changes, self._changes = self._changes, []
        if self.failure or self._is_abandoned:
            return []
        return [*changes, *self._outbox(events)] if self._outbox else changes

    def take_events(self) -> list[EventRow]:
        """The pending events as numbered rows; neighbouring deltas leave as one."""
        pending, self._pending = self._pending, []
        if self.failure or self._is_abandoned:
            return []
        events = self._documents.with_documents(joined(pending)) if self._documents else joined(pending)
        rows = [
            EventRow(self.run, seq, event.type, event.data if isinstance(event, Encoded) else encode(event))
            for seq, event in enumerate(events, start=self.last_seq + 1)
        ]
        if self._documents:
            self._changes += self._documents.take_changes(self.run)
        return rows

    def publish(self, rows: list[EventRow]) -> None:
        if not rows:
            return
        self._keep(rows)
        self.last_seq = rows[-1].seq
        self.ended = rows[-1].type in TERMINAL
        if self.ended:
            self._on_failure = _ignore  # of a run that is over: it would keep the run's task until garbage is collected
        self.wake(rows[0] if len(rows) == 1 and rows[0].type in DELTAS else None)
        if self._on_rows:
            self._on_rows(rows)
        for row in rows:
            if row.type in NEWS:
                self._on_news()
                return

    def abandon(self) -> None:
        """Leave the log to another server, which writes it from now on: nothing more of this one is taken."""
        self._is_abandoned = True
        self.leave()

    def leave(self) -> None:
        """End the watchers' streams, not the log: it goes on when the server is back."""
        self.ended = True
        self.wake()

    def _keep(self, rows: list[EventRow]) -> None:
        self._kept += rows
        del self._kept[:-KEPT]

    def wake(self, text: EventRow | None = None) -> None:
        """Wake the watchers, but for those that write this text at once."""
        for waiting, watcher in self._waiting.items():
            if waiting.done():
                continue
            try:
                if text and watcher and watcher.write and text.seq == watcher.seq + 1 and watcher.write(text):
                    watcher.seq = text.seq
                else:
                    waiting.set_result(None)
            except Exception as error:  # noqa: BLE001 - one of three allowed: it ends one stream, and not the journal
                waiting.set_exception(error)

    def refuse(self, failure: StoreFailed) -> None:
        """Take nothing more: the store refused, or another server goes on with the run."""
        if isinstance(failure, LeaseLost):
            self.abandon()
        else:
            self.fail(str(failure))

    def fail(self, reason: str) -> None:
        """The store refused: the watchers still get a terminal event, and whoever drives the run may store it later."""
        if self.failure:
            return
        event = RunFailed("storage_failed", self._journal.redactor.redact(reason), retryable=True)
        if self._observe:
            self._observe(event)
        self.failure = EventRow(self.run, self.last_seq + 1, event.type, encode(event))
        on_failure = self._on_failure
        self.publish([self.failure])
        on_failure()


def observer_of(row: RunRow, observers: Observers, *, unlisted: bool) -> ObserveEvent | None:
    """Return the function that sees the events of a run's log; None if nothing observes them."""
    if not observers.all:
        return None
    run = ObservedRun(
        id=row.id,
        session=row.session,
        principal=row.principal,
        model=row.model,
        created=row.created,
        unlisted=unlisted,
        traceparent=trace_of(row),
    )
    return observers.of_run(run)


class _Batch(Struct):
    changes: list[Change] = field(default_factory=list)
    logs: dict[RunLog, None] = field(default_factory=dict)
    hurries: bool = False
    waits: bool = False  # for PATIENCE_S at most
    flushed: list[asyncio.Future[StoreFailed | None]] = field(default_factory=list)  # one for each caller of `flush`
    failure: StoreFailed | None = None

    def refuse(self, failure: StoreFailed) -> None:
        self.failure = failure
        self.finish()

    def finish(self) -> None:
        for flushed in self.flushed:
            if not flushed.done():
                flushed.set_result(self.failure)


Taken = tuple[RunLog, list[Change], list[EventRow]]
"""A log, its changes, and its events."""


class EventWriter:
    """Group changes and events into transactions of one writer task. Use as `async with EventWriter(store)`.

    `spacing_s` is the time from one commit to the next. With `documents`, long code blocks are sent as documents, too.
    `observe_commit` receives the seconds of each write, `observe_failure` is called with each that the store refuses.
    """

    def __init__(
        self,
        store: ChangeWriter,
        redactor: Redactor | None = None,
        *,
        documents: bool = False,
        spacing_s: float = SPACING_S,
        observe_commit: Callable[[float], None] = _ignore,
        observe_failure: Callable[[StoreFailed], None] = _ignore,
    ) -> None:
        self._store = store
        self._spacing_s = spacing_s
        self.documents = documents
        self.redactor = redactor or Redactor()
        self._ready: asyncio.Future[None] | None = None  # an asyncio.Event would cost each batch more
        self._next = _Batch()
        self._task: asyncio.Task[None] | None = None
        self.backlog = 0  # changes that wait for the next write
        self._observe_commit = observe_commit
        self._observe_failure = observe_failure

    async def __aenter__(self) -> EventWriter:
        self._task = asyncio.create_task(self._write_forever(), name="journal")
        return self

    async def __aexit__(self, *_: object) -> None:
        with suppress(StoreFailed):  # told to the runs it belongs to
            await self.flush()
        if self._task:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task

    def open_log(self, run: str, on_failure: Callable[[], None], listeners: Listeners = NO_LISTENERS) -> RunLog:
        return RunLog(run, self, on_failure, listeners)

    def put(self, change: Change) -> None:
        self._next.changes.append(redacted_row(change, self.redactor))
        self.backlog += 1
        self._hurry(self._next)

    def announce(self, log: RunLog, *, hurries: bool = True) -> None:
        batch = self._next
        batch.logs[log] = None
        self.backlog += 1
        if hurries:
            self._hurry(batch)
        elif not (batch.hurries or batch.waits):
            batch.waits = True
            asyncio.get_running_loop().call_later(PATIENCE_S, self._hurry, batch)

    async def flush(self) -> None:
        """Wait until everything put so far is durable. Raises StoreFailed."""
        batch, flushed = self._next, asyncio.get_running_loop().create_future()
        batch.flushed.append(flushed)
        self._hurry(batch)
        if failure := await flushed:
            raise failure

    def drop(self, failure: StoreFailed) -> None:
        """Refuse all that waits for the next write."""
        batch, self._next = self._next, _Batch()
        self.backlog = 0
        for log in batch.logs:
            log.refuse(failure)
        batch.refuse(failure)

    @property
    def full(self) -> bool:
        """Return True if the writer is so far behind that producers must wait for `room`."""
        return self.backlog > BACKLOG

    async def room(self) -> None:
        if self.full:
            await self.flush()

    def _hurry(self, batch: _Batch) -> None:
        """Have a batch written, unless it has been."""
        if not batch.hurries and batch is self._next and self._ready and not self._ready.done():
            self._ready.set_result(None)
        batch.hurries = True

    async def _write_forever(self) -> None:
        written = -math.inf
        while True:
            while not self._next.hurries:
                self._ready = asyncio.get_running_loop().create_future()
                await self._ready
            if (left_s := written + self._spacing_s - time.monotonic()) > 0:
                await asyncio.sleep(left_s)
            batch, self._next = self._next, _Batch()
            self.backlog = 0
            await self._write(batch)
            written = time.monotonic()

    async def _write(self, batch: _Batch) -> None:
        taken, changes, rows = list[Taken](), [*batch.changes], list[Change]()
        for log in batch.logs:
            events = log.take_events()
            own = log.take_changes(events)  # with the documents that have ended in these events
            rows += events
            changes += own
            taken.append((log, own, events))
        began = time.monotonic()
        try:
            await self._store.write(changes + rows)
        except StartsPaused:
            await self._write_apart(batch, taken)
            return
        except StoreFailed as failure:
            self._observe_failure(failure)
            for log, _, _ in taken:
                log.refuse(failure)
            batch.refuse(failure)
            return
        self._observe_commit(time.monotonic() - began)
        batch.finish()  # first: a run has left its session before a watcher that sees its end sends the next message
        for log, _, events in taken:
            log.publish(events)

    async def _write_apart(self, batch: _Batch, taken: list[Taken]) -> None:
        """Write what belongs to each log in a transaction of its own: only those that start something are refused."""
        try:
            await self._store.write(batch.changes)
        except StoreFailed as failure:
            batch.refuse(failure)
        for log, own, events in taken:
            try:
                if batch.failure and not log.last_seq:
                    raise batch.failure  # of a run that was to begin
                await self._store.write([*own, *events])
            except StoreFailed as failure:
                log.refuse(failure)
            else:
                log.publish(events)
        batch.finish()
