"""Runs: one task each, watched through its log; a watcher that leaves does not stop it."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from functools import partial
from secrets import token_hex
from weakref import WeakValueDictionary

from app.agent import Agent
from app.conversation import Conversation
from app.events import TERMINAL, AgentEvent, RunFailed, RunFinished, encode
from app.journal import Journal, RunLog
from app.messages import Message, dump
from app.people import Principal
from app.provider import ProviderFailed
from app.store import Change, EventRow, MessageRow, RunEnded, RunRow, SessionRow, Store, StoreFailed

logger = logging.getLogger(__name__)

PAGE = 256  # events read from the store at a time
TITLE_LENGTH = 80
CANCELLED = "This call was stopped before it finished; what it had done by then is unknown."
INTERRUPTED = "The server stopped while this call ran; its outcome is unknown. Check before doing it again."


class NotFound(Exception):
    """There is no such session or run, or it belongs to somebody else."""


class SessionBusy(Exception):
    """The session already has a run under way."""

    def __init__(self, run: str) -> None:
        super().__init__(f"The session is busy with run {run}: wait for it, or cancel it.")
        self.run = run


class Stopping(Exception):
    """The server is about to stop and starts no more runs."""


@dataclass(slots=True)
class LiveRun:
    """A run under way. It is stopped at most once: a second cancel must not cut the first one's cleaning up."""

    row: RunRow
    agent: Agent
    conversation: Conversation
    log: RunLog
    task: asyncio.Task[None] | None = None
    begun: asyncio.Event = field(default_factory=asyncio.Event)  # a task cancelled before its first step runs nothing
    stopping: str | None = None  # why

    def stop(self, why: str) -> None:
        if self.task and not self.stopping:
            self.stopping = why
            self.task.cancel()


class Runs:
    """All runs of this server. Use `recover()` before the first start and `close()` at the end."""

    def __init__(self, store: Store, journal: Journal) -> None:
        self._store = store
        self._journal = journal
        self._live: dict[str, LiveRun] = {}
        self._busy: dict[str, str] = {}  # session -> its run under way
        self._alone: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()  # session -> start or delete
        self._lost: dict[str, tuple[EventRow, RunEnded]] = {}  # ends that the store refused, until it takes them
        self._keeping = asyncio.Lock()
        self._closing = False

    async def start(self, agent: Agent, principal: Principal, message: str, session: str | None) -> RunRow:
        """Begin a run and return at once. Raises NotFound, SessionBusy, StoreFailed, Stopping."""
        if self._closing:
            raise Stopping("The server is stopping. Send the message again when it is back.")
        place = session or f"ses_{token_hex(10)}"
        async with self._alone.setdefault(place, asyncio.Lock()):
            row = RunRow(f"run_{token_hex(10)}", place, principal.name, agent.provider.model, "running", time.time())
            messages: list[Message] = []
            if session is None:
                self._journal.put(SessionRow(place, principal.name, row.created, message[:TITLE_LENGTH]))
            else:
                await self.session(session, principal)
                if session in self._busy:
                    raise SessionBusy(self._busy[session])
                messages = await self._store.messages(session)
            log = RunLog(row.id, self._journal, on_failure=partial(self._stop, row.id, "storage_failed"))
            conversation = Conversation(place, messages, _keeper(row, log.put))
            self._journal.put(row)
            conversation.settle(INTERRUPTED)  # a store that refused may have lost results
            conversation.append(Message("user", message))
            await self._journal.flush()
            self._begin(LiveRun(row, agent, conversation, log))
        return row

    def _begin(self, live: LiveRun) -> None:
        self._live[live.row.id] = live
        self._busy[live.row.session] = live.row.id
        live.task = asyncio.create_task(self._drive(live), name=live.row.id)

    async def run(self, run: str, principal: Principal) -> RunRow:
        await self._keep_end(run)
        row = await self._store.run(run)
        if row is None or row.principal != principal.name:
            raise NotFound(f"There is no run {run!r}. GET /sessions/{{id}} lists the runs of a session.")
        return row

    async def session(self, session: str, principal: Principal) -> SessionRow:
        row = await self._store.session(session)
        if row is None or row.principal != principal.name:
            raise NotFound(f"There is no session {session!r}. GET /sessions lists yours; leave it out to begin one.")
        return row

    def under_way(self, session: str) -> str | None:
        """The run that a session is busy with."""
        return self._busy.get(session)

    async def ended(self, run: str) -> None:
        """Wait until a run has ended."""
        live = self._live.get(run)
        if live and live.task:
            await asyncio.wait([live.task])

    async def watch(self, run: str, after: int) -> AsyncGenerator[list[EventRow], None]:
        """The run's events behind the cursor `after`, as they become durable, up to the terminal one."""
        while True:
            live = self._live.get(run)
            rows = await live.log.after(after) if live else None
            if rows is None:
                rows = await self._store.events(run, after, PAGE)
            if not rows and run in self._lost:
                rows = [row for row in self._lost[run][:1] if row.seq > after]
            if rows:
                after = rows[-1].seq
                yield rows
            if not rows or rows[-1].type in TERMINAL:
                return

    async def cancel(self, run: str, why: str = "cancelled") -> None:
        """Stop a run: its model request, its tool and that tool's processes. Returns when all are gone."""
        live = self._live.get(run)
        if live is None or live.task is None:
            return
        await live.begun.wait()
        live.stop(why)
        await asyncio.wait([live.task])

    def _stop(self, run: str, why: str) -> None:
        if live := self._live.get(run):
            live.stop(why)

    async def delete_session(self, session: str, principal: Principal) -> None:
        async with self._alone.setdefault(session, asyncio.Lock()):
            await self.session(session, principal)
            if session in self._busy:
                await self.cancel(self._busy[session])
            await self._store.delete_session(session)

    async def recover(self) -> None:
        """Runs that a stopped server left under way get their terminal event, their open calls an answer."""
        for row in await self._store.unfinished_runs():
            keep = _keeper(row, self._journal.put)
            Conversation(row.session, await self._store.messages(row.session), keep).settle(INTERRUPTED)
            event = RunFailed(
                "interrupted", "The server stopped during this run. Send the next message.", retryable=True
            )
            seq = await self._store.last_seq(row.id) + 1
            self._journal.put(EventRow(row.id, seq, event.type, encode(event)))
            self._journal.put(RunEnded(row.id, "interrupted", time.time()))
        await self._journal.flush()

    async def close(self) -> None:
        """Stop all runs, each with its terminal event, and start no more."""
        self._closing = True
        await asyncio.gather(*(self.cancel(run, "server_stopped") for run in list(self._live)))

    async def _drive(self, live: LiveRun) -> None:
        """One run from start to its one terminal event, whatever happens."""
        terminal: AgentEvent | None = None
        live.begun.set()
        if self._closing:  # it was being started when the others were stopped
            live.stop("server_stopped")
        try:
            async with aclosing(live.agent.run(live.row.id, live.conversation)) as events:
                async for event in events:
                    if event.type in TERMINAL:
                        terminal = event
                        break
                    live.log.add(event)
                    await self._journal.room()
        except asyncio.CancelledError:
            terminal = live.agent.account.finished(live.stopping or "cancelled")
        except ProviderFailed as failure:
            terminal = RunFailed(failure.code, failure.message, failure.retryable)
        except StoreFailed as failure:
            terminal = RunFailed("storage_failed", str(failure), retryable=True)
        except Exception:
            logger.exception("run %s broke", live.row.id)
        finally:
            live.stopping = live.stopping or "ended"
            await self._end(live, terminal or RunFailed("internal", BROKEN, retryable=True))

    async def _end(self, live: LiveRun, terminal: AgentEvent) -> None:
        run = live.row.id
        try:
            live.conversation.settle(CANCELLED)
            live.log.add(terminal)
            live.log.put(RunEnded(run, _state(terminal), time.time()))
            with suppress(StoreFailed):  # then the log has failed
                await self._journal.flush()
            if live.log.failure:
                self._lost[run] = live.log.failure, RunEnded(run, "storage_failed", time.time())
                await self._keep_end(run)
        except StoreFailed as failure:
            logger.error("run %s could not be kept: %s", run, failure)
        finally:
            del self._live[run]
            del self._busy[live.row.session]

    async def _keep_end(self, run: str) -> None:
        """Store the end that the store refused before, if there is one. Raises StoreFailed."""
        if run not in self._lost:
            return
        async with self._keeping:
            if run in self._lost:
                await self._store.write(self._lost[run])
                del self._lost[run]


def _keeper(row: RunRow, put: Callable[[Change], None]) -> Callable[[int, Message], None]:
    """How a conversation's new messages are kept."""
    return lambda position, message: put(MessageRow(row.session, position, row.id, dump(message)))


def _state(terminal: AgentEvent) -> str:
    match terminal:
        case RunFailed(code=word) | RunFinished(reason=word):
            return word
    raise AssertionError(terminal)


BROKEN = "The server has a bug that broke this run; its log has the details. The session can go on."
