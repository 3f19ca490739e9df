"""All runs of the server: begun, watched through their logs, steered, stopped; a watcher that leaves stops nothing."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Sequence
from contextlib import nullcontext
from functools import partial
from secrets import token_hex

from msgspec.structs import replace

from app.budget.budgets import Ledger
from app.core.attachments import File
from app.core.events import TextDelta
from app.core.log_context import task_of_run
from app.core.notifier import Notifier
from app.core.profile_spec import TEMPORARY, modes_in
from app.documents.library import Library
from app.log.event_writer import EventWriter, Listeners, Watcher, observer_of
from app.log.run_stream import watched
from app.log.terminal_retry import TerminalRetry
from app.log.unlisted_log import UnlistedLog, UnlistedWriter
from app.policy.approvals import Approvals
from app.policy.gate import Gate
from app.policy.permits.stored_permissions import removal_changes
from app.policy.policy_context import Writes
from app.policy.stored_grants import Review, withdrawal_changes
from app.replicas.peers import Alone, Peers
from app.runs.agent import Agent
from app.runs.direct_call import direct_agent
from app.runs.recording.parts import LANE
from app.runs.recovery.left_off import SUSPENDED, LeftOff
from app.runs.run_task import RunTask
from app.runs.session_queue import SessionQueue
from app.storage.approvals import ApprovalRow
from app.storage.changes import Change, StoreFailed
from app.storage.kill_switch import KillSwitch
from app.storage.people.permissions import PermissionRow
from app.storage.principals import Principal
from app.storage.runs import KEY_LIFE_S, EventRow, KeyRow, RunRow
from app.storage.sessions import ConversationKey, SessionRow, SessionTools
from app.storage.store import Store
from app.transcript.inbox import InboxClosed
from app.transcript.recent_histories import RecentHistories
from app.transcript.run_request import (
    MAX_LINE,
    ConversationMoved,
    IdempotencyKey,
    NotFound,
    RunOver,
    RunRequest,
    SessionBusy,
    Stopping,
    direct_call_of,
    is_open_to,
    names_behind,
)
from app.workspace.document_texts import with_texts
from app.workspace.placing import placed
from tools.base.tasks import gather_all

logger = logging.getLogger(__name__)
ONE_ROUND = (
    "Run {run} makes one call, relays one answer or writes a summary, so it takes no message. Send it with the next "
    "request."
)
Resume = Callable[[RunRow, str | None], Awaitable[bool]]
AgentOf = Callable[[RunRow], Awaitable[tuple[Agent, float]]]  # and its time limit; raises NotFound
MakeOutbox = Callable[[RunRow, Sequence[EventRow]], Sequence[Change]]
Publish = Callable[[Sequence[EventRow]], None]  # sends rows of one run, which are durable, to where it is watched
UNLISTED_S = 10.0  # that the log of an unlisted run can be watched from its beginning after its end


class RunManager:
    """Use `app.runs.recovery` before the first start and `close()` at the end."""

    takes_up_helpers = True  # of a run that goes on here: no other server can have them

    def __init__(
        self,
        store: Store,
        journal: EventWriter,
        switch: KillSwitch,
        approvals: Approvals,
        ledger: Ledger,
        *,
        peers: Peers | None = None,
        outboxes: Iterable[MakeOutbox] = (),
        publish: Publish | None = None,
        announce_document: Callable[[str], None] | None = None,
    ) -> None:
        self.approvals = approvals
        self.notifier = Notifier()
        self.peers = peers or Alone()
        self.documents = Library(store, journal, self.notifier.notify, peers=self.peers, announce=announce_document)
        self.ledger = ledger
        self._store = store
        self._journal = journal
        self._switch = switch
        self._live: dict[str, RunTask] = {}
        self._unlisted: dict[str, UnlistedLog] = {}
        self._line: SessionQueue = SessionQueue()
        self._histories = RecentHistories(store, journal.redactor)
        self._lost = TerminalRetry(store, approvals)
        self.outboxes = list(outboxes)
        self._publish = publish
        self._newest = 0.0  # when a run was created last
        self._stopping = False
        self.writes = Writes()

    async def start(self, agent: Agent, principal: Principal, turn: RunRequest) -> RunRow:
        """Begin a run, or find the one that the same key has begun, and return at once.

        Raises NotFound, ConversationMoved, SessionBusy, BudgetSpent, KeyReused, Paused, Stopping, UnsafeName,
        StoreFailed.
        """
        return await self.begin_once(principal, turn.key, lambda: self._start(agent, principal, turn))

    async def begin_once(
        self, principal: Principal, key: IdempotencyKey | None, begin: Callable[[], Awaitable[RunRow]]
    ) -> RunRow:
        """Begin a run, or return the one that the same key has begun. Raises KeyReused, and what `begin` raises."""
        if key is None:
            return await begin()
        owned = principal.name, key.value
        async with self.peers.lock("key", "\n".join(owned)):  # two requests must not both find it new
            known = await self._store.key(*owned)
            if known is None or known.created < time.time() - KEY_LIFE_S:
                return await begin()
        key.check(known.body)
        return await self.run(known.run, principal)

    async def begin_at(
        self,
        agent: Agent,
        principal: Principal,
        session: str,
        store: Callable[[float], Awaitable[tuple[RunRow, LeftOff]]],
    ) -> RunRow:
        """Begin a run that goes on from a log and a history, which `store` stores with the time of the run.

        Raises BudgetSpent, Paused, Stopping, and what `store` raises.
        """
        self._may_begin()
        await self._lost.keep_all()
        await self.ledger.check(principal, agent.budgets())
        async with self.ledger.entering(principal, session):
            row, left = await store(await self._time_in(None))
            live = self._made(row, agent, left.left_s, left=left)
            live.take_up(left, self._switch.unpaused)
            self._begin(live)
        return row

    async def _start(self, agent: Agent, principal: Principal, turn: RunRequest) -> RunRow:
        if not turn.conversation:
            return await self._start_in(agent, principal, turn)
        owned = principal.keeper, turn.conversation, principal.name
        async with self.peers.lock("conversation", "\n".join(owned[:2])):  # two first messages begin one session
            try:
                if await self._store.keyed_session(*owned) == turn.session:
                    return await self._start_in(agent, principal, turn)
            except NotFound:
                if await self._store.keyed_session(*owned):  # it was not deleted just now
                    raise
            raise ConversationMoved

    async def _start_in(self, agent: Agent, principal: Principal, turn: RunRequest) -> RunRow:
        self._may_begin()
        if turn.call:
            agent = direct_agent(agent, turn.call)
        await self._lost.keep_all()
        if limited := turn.asked or turn.budgeted:
            await self.ledger.check(principal, agent.budgets())
        session = turn.session or turn.new_session or f"ses_{token_hex(10)}"
        is_known = turn.session or turn.new_session  # then it must not be deleted meanwhile
        async with self.peers.lock("session", session) if is_known else nullcontext():
            if turn.session is not None:
                await self._check_session(session, principal)
            others = await self._line.in_order(session) if turn.session else ()
            if others and (turn.when_busy == "refuse" or len(others) >= MAX_LINE):
                raise SessionBusy(others[0], len(others) - 1)
            files, now = await _placed(agent, turn.files), await self._time_in(turn.session)
            async with self.ledger.entering(principal, session, asked=limited):
                run, state = turn.run or f"run_{token_hex(10)}", "queued" if others or turn.parked else "running"
                policy = agent.policy_with(turn.stored_policy)
                row = RunRow(
                    run,
                    session=session,
                    principal=principal.name,
                    model=agent.provider.model,
                    state=state,
                    created=now,
                    policy=policy,
                )
                if not turn.unlisted:
                    self._put_rows(row, turn, principal, begins_session=turn.session is None)
                live = self._made(row, agent, agent.time_limit_within(turn.time_limit_s), turn=turn)
                live.keep(turn.imported)
                if turn.has_message:
                    live.post(turn.message, files, untrusted=turn.untrusted)
                if not turn.unlisted:
                    await self._journal.flush()
                self._begin(live)
        return row

    def _put_rows(self, row: RunRow, turn: RunRequest, principal: Principal, *, begins_session: bool) -> None:
        """Put the rows of a new run, and of what it can be found by."""
        if begins_session:
            modes = modes_in(row.policy)
            self._journal.put(
                SessionRow(
                    row.session,
                    row.principal,
                    row.created,
                    turn.title,
                    turn.disabled,
                    options=json.dumps(modes),
                    temporary=TEMPORARY in modes,
                )
            )
            if turn.conversation:
                self._journal.put(ConversationKey(principal.keeper, turn.conversation, row.session))
        self._journal.put(row)
        if turn.key:
            self._journal.put(KeyRow(row.principal, turn.key.value, turn.key.body, row.id, row.created))
        for change in turn.beside(row) if turn.beside else ():
            self._journal.put(change)
        for name in turn.found_by:
            self._journal.put(KeyRow(row.principal, name, "", row.id, row.created))

    def _made(
        self,
        row: RunRow,
        agent: Agent,
        time_limit_s: float,
        *,
        left: LeftOff | None = None,
        turn: RunRequest | None = None,
    ) -> RunTask:
        unlisted = turn is not None and turn.unlisted
        return RunTask(
            row=row,
            agent=agent,
            store=self._store,
            histories=self._histories,
            journal=UnlistedWriter(self._journal) if unlisted else self._journal,
            line=self._line,
            approvals=self.approvals,
            time_limit_s=time_limit_s,
            listeners=Listeners(
                on_news=partial(self.notifier.notify, row.principal),
                on_rows=self._publish,
                outbox=partial(self.changes_with, row) if self.outboxes and not unlisted else None,
                observe=observer_of(row, self.ledger.observers, unlisted=unlisted),
            ),
            left=left,
            turn=turn,
            begins_session=turn is not None and turn.session is None,
        )

    def _begin(self, live: RunTask) -> None:
        self._live[live.row.id] = live
        if isinstance(live.log, UnlistedLog):
            self._unlisted[live.row.id] = live.log
        self._line.join(live.row.session, live.row.id)
        self._ring(live.row)
        live.task = task_of_run(self._drive(live), live.row.id, live.row.session, live.row.principal)

    async def go_on(self, row: RunRow, agent: Agent, left: LeftOff) -> None:
        """Take up a run of a server that has ended. Raises StoreFailed."""
        live = self._made(row, agent, left.left_s, left=left)
        live.take_up(left, self._switch.unpaused)
        await self._journal.flush()  # that it goes on: if it brings the server down each time, it ends
        self.ledger.places.enter(row.principal, row.session)
        self._begin(live)

    async def recover(self, resume: Resume, _agent_of: AgentOf) -> None:
        """Go on with the runs that the server before this one has left, in their order. Raises StoreFailed."""
        for row in await self._store.unfinished_runs():
            await resume(row, None)

    async def _drive(self, live: RunTask) -> None:
        run = live.row.id
        try:
            if self._stopping:  # it was being started when the others were stopped
                live.stop(SUSPENDED if live.held or live.may_go_on else "server_stopped")
            await live.drive()
            if live.log.failure:
                self._lost.add(run, live.log.failure, self.changes_with(live.row, [live.log.failure]))
                await self._lost.keep(run)
        except StoreFailed as failure:
            logger.error("run %s not stored: %s", run, failure)
        finally:
            del self._live[run]
            if live.is_unlisted:  # its watchers have its log
                asyncio.get_running_loop().call_later(UNLISTED_S, self._unlisted.pop, run, None)
            self._line.leave(live.row.session, run)
            self._ring(live.row)
            self.ledger.places.leave(live.row.principal, live.row.session)
            self.ledger.observers.leave(run)

    def changes_with(self, row: RunRow, events: Sequence[EventRow]) -> Sequence[Change]:
        """Return what is to be written with events of a run; nothing for a temporary conversation."""
        is_token = len(events) == 1 and events[0].type == TextDelta.type
        if (is_token and LANE not in row.policy) or TEMPORARY in modes_in(row.policy):
            return ()
        return [change for outbox in self.outboxes for change in outbox(row, events)]

    async def _time_in(self, session: str | None) -> float:
        """Later than any run before, whatever the clock says: those who follow a session go by that."""
        self._newest = max(time.time(), self._newest + 1e-6)
        return self._newest

    def _ring(self, row: RunRow) -> None:
        self.notifier.notify(row.principal)
        self.notifier.notify(row.session)

    def _may_begin(self) -> None:
        self._switch.check()
        if self._stopping:
            raise Stopping("The server is stopping. Try again when it is back.")

    async def run(self, run: str, principal: Principal) -> RunRow:
        await self._lost.keep(run)
        live = self._live.get(run)
        row = live.row if live and live.is_unlisted else await self._store.run(run)
        if row is None or not is_open_to(row, principal):
            raise NotFound(f"There is no run {run!r}. GET /sessions/{{id}} lists the runs of a session.")
        return row

    async def _check_session(self, session: str, principal: Principal) -> None:
        """Check that a run of a principal may begin in a session. Raises NotFound."""
        if await self._store.owner_of(session) != principal.name:
            raise no_session(session)
        if principal.is_linked:
            first = await self._store.next_run(session, None)
            if first is None or not is_open_to(first, principal):
                raise no_session(session)

    async def session(self, session: str, principal: Principal) -> SessionRow:
        row = await self._store.session(session)
        if row is None or row.principal != principal.name:
            raise no_session(session)
        return row

    async def under_way(self, session: str) -> str | None:
        """The run that a session is busy with."""
        return next(iter(await self._line.in_order(session)), None)

    def has(self, run: str) -> bool:
        """Return True if this server has the run, or its end that is not stored yet."""
        return run in self._live or bool(self._lost.events(run, 0))

    async def is_active(self, run: str) -> bool:
        return run in self._live

    async def ended(self, run: str) -> None:
        """Wait until a run has ended."""
        live = self._live.get(run)
        if live and live.task:
            await asyncio.wait([live.task])

    def watch(self, run: str, after: int, watcher: Watcher | None = None) -> AsyncGenerator[list[EventRow], None]:
        """The run's events behind the cursor `after`, as they become durable, up to the terminal one."""
        watcher = watcher or Watcher(after)
        if unlisted := self._unlisted.get(run):
            return unlisted.pages(watcher)
        audience = live.audience if (live := self._live.get(run)) else nullcontext()
        return watched(
            self._store,
            lambda: live.log if (live := self._live.get(run)) else None,
            self._lost,
            run,
            watcher,
            audience=audience,
        )

    def stopping(self, run: str) -> str | None:
        """Return why a run is being stopped; None while it is not."""
        return live.stopping if (live := self._live.get(run)) else None

    def is_left(self, run: str) -> bool:
        """Return True if all who have read the events of a run have left it."""
        live = self._live.get(run)
        return live is not None and live.audience.is_gone

    async def steer(self, run: str, message: str, files: Sequence[File] = ()) -> None:
        """Put a message in after the current round; it is stored when this returns.

        Raises RunOver, InboxFull, UnsafeName, StoreFailed.
        """
        live = self._live.get(run)
        if live and (not live.agent.takes_messages or direct_call_of(live.row)):
            raise RunOver(ONE_ROUND.format(run=run))
        try:
            if live is None:
                raise InboxClosed
            live.post(message, await _placed(live.agent, files))
            await self._journal.flush()
            if live.log.failure:  # it takes nothing more, though the store may be well again
                raise InboxClosed
        except InboxClosed:
            raise RunOver(f"Run {run} has ended. Send the message to POST /chat with its session.") from None

    async def cancel(self, run: str, why: str = "cancelled") -> None:
        """Stop a run: its model request, its tool and that tool's processes. Returns when all are gone."""
        live = self._live.get(run)
        if live is None or live.task is None:
            return
        if not live.begun:  # the first step of its task comes next
            await asyncio.sleep(0)
        live.stop(why)
        await asyncio.wait([live.task])

    async def cancel_all(self, why: str) -> None:
        await gather_all(self.cancel(run, why) for run in list(self._live))

    async def cancel_of(self, principal: str, why: str) -> None:
        """Stop whatever a principal has under way, and what the token of that name has begun for members."""
        theirs = [run for run, live in self._live.items() if principal in names_behind(live.row)]
        await asyncio.gather(*(self.cancel(run, why) for run in theirs))

    async def waiting(self, session: str) -> list[RunRow]:
        """The runs of a session whose turn has not come, in their order."""
        return [self._live[run].row for run in self._line.of(session)[1:]]

    async def of(self, principal: str) -> list[RunRow]:
        """Return a principal's active runs, oldest first; a run is `queued` until its turn comes."""
        theirs = [live for live in self._live.values() if live.row.principal == principal and not live.is_unlisted]
        return [replace(live.row, state="running" if live.conversation else live.row.state) for live in theirs]

    def states(self) -> Counter[str]:
        """Return the number of active runs in each state; `waiting` is for a person."""
        waits = self.approvals.is_waiting, self.approvals.has_question
        return Counter(
            "waiting" if any(one(run) for one in waits) else "running" if live.conversation else live.row.state
            for run, live in self._live.items()
        )

    def at_work(self) -> set[str]:
        """The principals that have a run under way."""
        return {name for live in self._live.values() for name in names_behind(live.row)}

    async def delete_session(self, session: str, principal: Principal) -> None:
        async with self.peers.lock("session", session):
            await self.session(session, principal)
            for run in reversed(await self._line.in_order(session)):  # those that wait first, so that none begins
                await self.cancel(run)
            for row in await self._store.runs(session):
                self._lost.forget(row.id)
            async with self.documents.writing(session):  # else a person's edit might outlive its document
                await self._store.delete_session(session)
                self.documents.forget(session)
            self._histories.forget(session)
            self.notifier.notify(principal.name)
            self.notifier.notify(session)

    async def disable_tools(self, session: str, patterns: Sequence[str]) -> None:
        """The session goes without these tools from now on, the run that is under way included. Raises StoreFailed."""
        await self._store.write([SessionTools(session, json.dumps(patterns))])
        for run in self._line.of(session):
            self._live[run].gate.disable(patterns)
        for helper in await self._store.helpers(session):
            await self.disable_tools(helper.session, patterns)

    async def keep_reading(self, session: str, read_only: bool) -> None:
        """Let the runs that are under way in a session, and its helpers, do no more than read, or more again."""
        for run in self._line.of(session):
            self._live[run].gate.keep_reading(read_only)
        for helper in await self._store.helpers(session):
            await self.keep_reading(helper.session, read_only)

    async def adopt_labels(self, session: str, labels: Sequence[str]) -> None:
        """Let the session's runs have labels that are stored. Raises StoreFailed."""
        for run in self._line.of(session):
            if known := self._live[run].agent.scope.labels:
                known.adopt(labels)

    async def decide(self, run: str, call: str, principal: Principal, review: Review) -> ApprovalRow:
        """A person's decision on a call that waits. Raises what `Approvals.decide` raises."""
        await self._lost.keep(run)
        live = self._live.get(run)
        if live is None and (row := await self._store.run(run)) and row.ended is not None:
            await self.approvals.close_pending(run)
        toolbox = live.agent.toolbox if live else None
        tainted = live is not None and live.gate.policy.guarded
        return await self.approvals.decide(run, call, principal, review, toolbox, tainted=tainted)

    async def enter_permissions(self, gate: Gate, chosen: Sequence[str] | None) -> None:
        """Let a gate have the standing permissions of its principal, those of these ids. Raises StoreFailed.

        Where calls can wait for a person, they are read with the first call that could use one.
        """
        if gate.principal.is_linked:
            chosen = ()  # they were given to the account, not to a bot
        gate.chosen_permissions = chosen
        if gate.policy.unattended:
            gate.permit(await self.approvals.permissions(gate.principal.name, chosen))

    async def withdraw_permission(self, row: PermissionRow, principal: Principal) -> None:
        """Withdraw a standing permission, also from runs under way. Raises StoreFailed."""
        await self._store.write(removal_changes(row, principal.name, time.time()))
        for live in self._live.values():
            if live.row.principal == row.principal:
                live.gate.permit([one for one in live.gate.policy.permissions if one.id != row.id])

    async def withdraw_grants(self, session: str, principal: Principal, grant: str | None = None) -> int:
        """Take back one grant of the session, or (None) all, at once: how many. Raises StoreFailed."""
        rows = [row for row in await self._store.grants(session) if grant in (None, row.id)]
        await self._store.write(withdrawal_changes(rows, principal.name))
        for run in self._line.of(session):
            self._live[run].gate.grant(await self.approvals.grants(session))
        self.notifier.notify(session)
        return len(rows)

    async def _suspend(self, *, all_runs: bool) -> None:
        """Leave runs to the next server: those that wait for a person and those behind them, or all that can go on."""
        for live in [live for live in self._live.values() if live.may_go_on and (all_runs or live.waits)]:
            for run in self._line.from_last_to(live.row.session, live.row.id):
                behind = self._live.get(run)
                if behind and (all_runs or live.waits):  # else somebody has decided meanwhile
                    await self.cancel(run, SUSPENDED if behind.may_go_on else "server_stopped")

    async def close(self, grace_s: float = 0) -> None:
        """Begin nothing new, let the runs end for `grace_s`, then leave them to the next server.

        Those that wait for a person are left at once. Those that cannot go on get their terminal event.
        """
        self._stopping = True
        await self._suspend(all_runs=False)
        tasks = [live.task for live in self._live.values() if live.task]
        if tasks and grace_s:
            await asyncio.wait(tasks, timeout=grace_s)
        await self._suspend(all_runs=True)
        await self.cancel_all("server_stopped")
        await self._lost.keep_all()
        self.notifier.close()


async def _placed(agent: Agent, files: Sequence[File]) -> Sequence[File]:
    """Put the files into the workspace of the agent's tools, and read documents; not for a relay, which has none."""
    if not files or not agent.keeps_files:
        return files
    context = agent.scope.tool_context
    return await with_texts(await placed(files, context.workspace), context.sandbox, agent.view.window)


def no_session(session: str) -> NotFound:
    return NotFound(f"There is no session {session!r}. GET /sessions lists yours; leave it out to begin one.")
