"""Runs of a server that has ended: another one, or the same at its next start, goes on with each, or ends it."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from app.config.folders import FolderUnusable
from app.core.events import AgentEvent, ApprovalResolved, RunFailed, encode
from app.log.event_writer import EventWriter
from app.models.endpoints.model_registry import UnknownModel
from app.policy.approvals import NO_APPROVER, RUN_ENDED, is_over
from app.replicas.nodes import HOME_GONE
from app.runs.recovery.history import conversation_of
from app.runs.recovery.left_off import WAITED
from app.runs.recovery.state import crashes, enter, left_off, tasks_in
from app.runs.run_manager import AgentOf, RunManager
from app.runs.run_task import state_of
from app.storage.approvals import ApprovalDecided
from app.storage.runs import ALL, EventRow, InboxTaken, RunEnded, RunRow
from app.storage.state import RESTORED
from app.storage.store import Store
from app.transcript.conversation import INTERRUPTED
from app.transcript.inbox import message_of
from app.transcript.run_request import HELPER, TIED, UNTRUSTED, NotFound, has_mark, is_of_app, sender_of
from app.transcript.run_totals import totals_of
from tools.base.access import OVER, RemoteTask
from tools.base.tasks import retrieve
from tools.tool import Context

CancelTask = Callable[[RemoteTask, Context], Coroutine[Any, Any, None]]

MOST_CRASHES = 3  # after which a run goes on; the next one ends it
INTERRUPTION = "The server stopped during this run. Send the next message."
LOST_HOME = "The node with the files of this run has not come back. Send the next message."
TOO_OFTEN = "The server stopped {times} times during this run, so it is not continued. Send the next message."
OF_BACKUP = (
    "The database was restored from a backup that was made during this run. Its later steps are not in it, so the run "
    "is not continued: it could do things twice. Send the next message."
)


class Takeover(Struct, frozen=True):
    """Goes on with runs that this server owns now, and that no server is working on."""

    store: Store
    journal: EventWriter
    runs: RunManager
    agent_of: AgentOf
    cancel_task: CancelTask
    _background: set[asyncio.Task[None]] = field(default_factory=set)

    async def resume_run(self, row: RunRow, asked: str | None = None) -> bool:
        """Go on with a run, or end it: as it was `asked` to before, or because it cannot go on. Raises StoreFailed.

        All runs of its session that precede it have ended, or were resumed before. False if it has ended.
        """
        terminal = await self._asked_end(row, asked) if asked else await self._go_on(row)
        if terminal:
            await self.end_run(row, terminal)
        return terminal is None

    async def _asked_end(self, row: RunRow, reason: str) -> AgentEvent:
        if reason == HOME_GONE:
            return RunFailed(HOME_GONE, LOST_HOME, retryable=True)
        return totals_of(await self.store.events(row.id, 0, ALL), ()).finished(reason)

    async def _go_on(self, row: RunRow) -> AgentEvent | None:
        """Begin the task of the run; return its terminal event if it cannot go on."""
        if is_of_app(row):
            return interrupted()
        if has_mark(row, HELPER):
            return None if await self._is_awaited(row) else interrupted()
        try:
            agent, time_limit_s = await self.agent_of(row)
        except NotFound as missing:
            if isinstance(missing.__cause__, UnknownModel):
                return RunFailed("model_not_found", str(missing), retryable=False)
            return interrupted()
        except FolderUnusable:
            return interrupted()
        events = await self.store.events(row.id, 0, ALL)
        left = await left_off(self.store, row, agent, time_limit_s)
        if left is None:
            return interrupted()
        if left.words != WAITED:
            if has_mark(row, TIED):
                return interrupted()
            if row.created < float(await self.store.state(RESTORED) or 0):  # of a backup
                return interrupted(OF_BACKUP)
            if (times := crashes(events)) >= MOST_CRASHES:
                return interrupted(TOO_OFTEN.format(times=times + 1))
        self._cancel(row, [left.tasks[call.id] for call in left.unknown if call.id in left.tasks])
        enter(agent, left, events)
        await self.runs.go_on(row, agent, left)
        return None

    async def _is_awaited(self, row: RunRow) -> bool:
        """Return True if the run above goes on here: its call takes the helper up, or ends it with the run."""
        [*_, helper] = await self.store.lineage(row.id)
        if not (self.runs.takes_up_helpers and await self.runs.is_active(helper.parent_run)):
            return False
        self._begin(self._end_orphan(row, helper.parent_run), f"orphan {row.id}")
        return True

    def _begin(self, work: Coroutine[Any, Any, None], name: str) -> None:
        task = asyncio.create_task(work, name=name)
        self._background.add(task)
        task.add_done_callback(self._background.discard)
        task.add_done_callback(retrieve)

    def _cancel(self, row: RunRow, tasks: Iterable[RemoteTask]) -> None:
        """Cancel tasks of MCP servers whose results nothing waits for any more. No run waits for that."""
        context = Context(Path(), session=row.session, run=row.id, principal=row.principal)
        for one in tasks:
            if one.status not in OVER:
                self._begin(self.cancel_task(one, context), f"cancel a task of {row.id}")

    async def _end_orphan(self, row: RunRow, parent: str) -> None:
        """End a helper that the run above has not taken up."""
        await self.runs.ended(parent)
        above, helper = await self.store.run(parent), await self.store.run(row.id)
        has_ended = above is not None and above.ended is not None  # else it goes on in another server
        if has_ended and helper and helper.ended is None:
            await self.end_run(row, interrupted())

    async def close(self) -> None:
        """Stop watching for helpers that are not taken up, and cancelling tasks."""
        for task in self._background:
            task.cancel()
        await asyncio.gather(*self._background, return_exceptions=True)

    async def end_run(self, row: RunRow, terminal: AgentEvent) -> None:
        """Open calls get an answer, messages a place, the log its terminal event. Raises StoreFailed.

        If another run of the session is under way, its messages are that one's to add to: those of this one wait for
        the next turn.
        """
        if await self.runs.under_way(row.session) in (None, row.id) and not is_of_app(row):
            await self._settle(row)
        self._cancel(row, tasks_in(await self.store.events(row.id, 0, ALL)).values())
        events: list[AgentEvent] = []
        for approval in await self.store.pending_of(row.id):
            if approval.state == "pending":
                state, by = ("expired", NO_APPROVER) if is_over(approval) else ("withdrawn", RUN_ENDED)
                self.journal.put(ApprovalDecided(row.id, approval.call, state, time.time(), by))
                events.append(ApprovalResolved(approval.call, state, by))
        events.append(terminal)
        first = await self.store.last_seq(row.id) + 1
        rows = [EventRow(row.id, seq, event.type, encode(event)) for seq, event in enumerate(events, start=first)]
        for change in (*rows, *self.runs.changes_with(row, rows)):
            self.journal.put(change)
        self.journal.put(RunEnded(row.id, state_of(terminal), time.time()))
        await self.journal.flush()

    async def _settle(self, row: RunRow) -> None:
        conversation = conversation_of(row, await self.store.messages(row.session), self.journal.put, self.journal)
        for call in await self.store.handed_calls(row.id):
            conversation.hand_over(call)  # the client has it, and may send its result
        conversation.settle(INTERRUPTED, await self.store.started_calls(row.id))
        untrusted = UNTRUSTED in json.loads(row.policy)
        for message in await self.store.inbox(row.id):
            conversation.append(
                replace(message_of(message), at=row.created, untrusted=untrusted, sender=sender_of(row))
            )
        self.journal.put(InboxTaken(row.id))


def interrupted(message: str = INTERRUPTION) -> RunFailed:
    return RunFailed("interrupted", message, retryable=True)


@asynccontextmanager
async def recovered(
    store: Store, journal: EventWriter, runs: RunManager, agent_of: AgentOf, cancel_task: CancelTask
) -> AsyncGenerator[Takeover, None]:
    """Recover all runs when a server starts, in the order in which they came. Raises StoreFailed."""
    await runs.documents.load()
    takeover = Takeover(store, journal, runs, agent_of, cancel_task)
    await runs.recover(takeover.resume_run, agent_of)
    yield takeover
    await takeover.close()
