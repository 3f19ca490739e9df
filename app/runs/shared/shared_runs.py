"""The runs of a server that shares its database: what another server has is done there.

Where the servers do not all have one workspace, the runs of a person are at their home, a node.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from contextlib import aclosing, suppress
from typing import Any

from msgspec import convert, to_builtins
from msgspec.structs import replace

from app.budget.budgets import Ledger
from app.core.attachments import File
from app.core.events import TERMINAL
from app.log.event_writer import PAGE, EventWriter, Watcher
from app.log.log_compaction import rest_after
from app.log.run_stream import page_of
from app.policy.approvals import Approvals
from app.policy.policy_context import Writes
from app.policy.stored_grants import Review
from app.replicas.peers import Body, Refusal, ReplicaGone, Replicas, ask_others
from app.runs.agent import Agent
from app.runs.recovery.left_off import ABANDONED, SUSPENDED
from app.runs.run_manager import AgentOf, MakeOutbox, Resume, RunManager
from app.runs.run_task import RunTask
from app.runs.session_queue import SharedQueue
from app.runs.shared.crossing import CROSSING, NOT_HERE, error_of, refusal_of
from app.runs.shared.homes import HomeAway, begun_at, begun_here
from app.storage.approvals import ApprovalRow
from app.storage.changes import LeaseLost, StoreFailed
from app.storage.kill_switch import KillSwitch
from app.storage.principals import Principal
from app.storage.runs import EventRow, RunRow
from app.storage.store import Store
from app.transcript.run_request import RunRequest
from tools.base.tasks import gather_all, wait_at_most
from tools.process.process_tree import run_shielded

ASKED_S = 60.0  # that a request waits for a server to have its run: longer than it takes to notice a dead one
RELEASE_S = 1.0  # between two tries to leave a run to its home
NEWS_S = 1.0  # between two looks into the store for events of a run elsewhere, if no message comes
LOOK_S = 0.25  # between two looks for the owner of a run that has none
NO_OWNER = "No server has run {run} at the moment. Try again."
UNKNOWN = "The server that has run {run} has stopped just now. Look whether your message is in GET /sessions/{session}."
LOST_WORDS = "The database did not confirm in time that this server is alive: others continue its runs. Try again."
ENDED = object()

logger = logging.getLogger(__name__)


class SharedRuns(RunManager):
    """As RunManager, whichever server has a run. Use `abandon` when this server has lost its lease."""

    takes_up_helpers = False

    def __init__(
        self,
        store: Store,
        journal: EventWriter,
        switch: KillSwitch,
        *,
        approvals: Approvals,
        ledger: Ledger,
        replicas: Replicas,
        outboxes: Iterable[MakeOutbox],
        announce_document: Callable[[str], None],
        observe_takeover: Callable[[], None],
    ) -> None:
        super().__init__(
            store,
            journal,
            switch,
            approvals,
            ledger,
            peers=replicas,
            outboxes=outboxes,
            publish=replicas.publish,
            announce_document=announce_document,
        )
        self._line = SharedQueue(store, replicas)
        self.replicas = replicas
        self.writes = Writes(last=math.inf)
        self._agent_of: AgentOf | None = None
        self._nodes = replicas.nodes
        self._observe_takeover = observe_takeover
        replicas.answerers.update(
            cancel=self._cancel_here,
            steer=self._steer_here,
            decide=self._decide_here,
            session=self._follow_session_here,
            start=self._start_here,
        )

    async def recover(self, resume: Resume, agent_of: AgentOf) -> None:
        """Go on with runs that no server has, as long as this one runs: those of another server are not touched."""
        self._agent_of = agent_of

        async def take_over(run: str) -> None:
            await self._lost.keep(run)  # it has ended here, and its end was not stored
            if not (row := await self._store.run(run)):
                return
            if row.ended is None:
                self._observe_takeover()
                if await resume(row, await self._nodes.asked_of(run)):
                    return
            self.replicas.session_moved(row.session)  # no task of it says so, now that its end is stored

        self.replicas.begin_taking(take_over)

    async def start(self, agent: Agent, principal: Principal, turn: RunRequest) -> RunRow:
        """Begin a run where the files of its principal are. Also raises HomeAway."""
        if self._nodes.shares or not agent.keeps_files or turn.helper_of:
            return await self._start_once(agent, principal, turn)
        self._may_begin()
        if (home := await self._nodes.fix_home(principal.name)) == self._nodes.here:
            return await self._start_once(agent, principal, turn)
        begun = await begun_at(home, self.replicas, self._store, agent=agent, principal=principal, turn=turn)
        return begun or await self._start_once(agent, principal, replace(turn, parked=True))

    async def _start_here(self, body: Body) -> Any:
        assert self._agent_of
        try:
            return await begun_here(body, self._nodes, self._agent_of, self._start_once)
        except CROSSING as error:
            raise refusal_of(error) from error

    async def _start(self, agent: Agent, principal: Principal, turn: RunRequest) -> RunRow:
        row = await super()._start(agent, principal, turn)
        if turn.parked:
            await run_shielded(self._release(row.id))
        return row

    def _begin(self, live: RunTask) -> None:
        if live.turn is None or not live.turn.parked:
            super()._begin(live)
            return
        self._ring(live.row)
        self.ledger.places.leave(live.row.principal, live.row.session)

    async def _release(self, run: str) -> None:
        """Leave a run that is stored to its home, however long the database is away."""
        while True:
            try:
                return await self.replicas.release([run])
            except StoreFailed as failure:
                logger.warning("run %s is not left to its node yet: %s", run, failure)
                await asyncio.sleep(RELEASE_S)

    async def _start_once(self, agent: Agent, principal: Principal, turn: RunRequest) -> RunRow:
        """Begin a run. If a lock was lost, so that another server has begun one for the same key, that one counts."""
        row = await super().start(agent, principal, turn)
        if turn.key is None:
            return row
        first = await self._store.key(principal.name, turn.key.value)
        if first is None or first.run == row.id:
            return row
        await self.cancel(row.id)
        turn.key.check(first.body)
        return await self.run(first.run, principal)

    async def _drive(self, live: RunTask) -> None:
        await super()._drive(live)
        if live.stopping == SUSPENDED:
            with suppress(StoreFailed):  # then they wait until the lease is over
                await self.replicas.release([live.row.id])

    async def close(self, grace_s: float = 0) -> None:
        self.replicas.drain(grace_s)
        await super().close(grace_s)

    async def _time_in(self, session: str | None) -> float:
        """Later than the session's last run too, whatever the clocks of other servers say."""
        now = await super()._time_in(session)
        last = await self._store.last_runs(session, None, 1) if session else []
        return max(now, last[0].created + 1e-6) if last else now

    def watch(self, run: str, after: int, watcher: Watcher | None = None) -> AsyncGenerator[list[EventRow], None]:
        return self._here(run, after, watcher) or self._watched_elsewhere(run, after)

    def _here(self, run: str, after: int, at: Watcher | None = None) -> AsyncGenerator[list[EventRow], None] | None:
        return super().watch(run, after, at) if run in self._live or run in self._unlisted else None

    async def _watched_elsewhere(self, run: str, after: int) -> AsyncGenerator[list[EventRow], None]:
        """The events of a run, whichever server has it: by message as they become durable, else from the store.

        They end once this server has lost its lease: its database does not answer, and a reader asks another server.
        """
        with self.replicas.following(run) as feed:
            while self.replicas.left_s > 0:
                if (stream := self._here(run, after)) is not None:  # taken over
                    async with aclosing(stream) as pages:
                        async for rows in pages:
                            yield rows
                    return
                feed.news.clear()
                row = None
                rows = feed.take(after)
                if not rows:
                    try:
                        async with asyncio.timeout(self.replicas.left_s):
                            row = await self._store.run(run)  # before its events: one that has ended has them all
                            rows = [rest_after(one, after) for one in await self._store.events(run, after, PAGE)]
                    except TimeoutError:
                        continue
                if rows:
                    rows = page_of(rows)
                    after = rows[-1].seq
                    yield rows
                    if rows[-1].type in TERMINAL:
                        return
                elif row is None or row.ended is not None:
                    return
                else:
                    await wait_at_most(NEWS_S, feed.news)

    async def is_active(self, run: str) -> bool:
        return run in self._live or ((row := await self._store.run(run)) is not None and row.ended is None)

    async def ended(self, run: str) -> None:
        await super().ended(run)
        while (row := await self._store.run(run)) is not None and row.ended is None:
            with self.replicas.awaiting(row.session) as moved, suppress(TimeoutError):
                async with asyncio.timeout(1):
                    await moved.wait()

    async def waiting(self, session: str) -> list[RunRow]:
        return (await self._store.active_runs(session))[1:]

    async def of(self, principal: str) -> list[RunRow]:
        return await self._store.active_runs_of(principal)

    async def cancel(self, run: str, why: str = "cancelled") -> None:
        if run not in self._live and not self._nodes.shares and await self._nodes.end(run, why):
            await self.ended(run)  # by any server
        elif run in self._live:  # perhaps since the question
            await super().cancel(run, why)
        else:
            await self._ask_owner(run, "cancel", {"run": run, "why": why})

    async def _cancel_here(self, body: Body) -> None:
        self._check_here(body["run"])
        await super().cancel(body["run"], body["why"])

    async def steer(self, run: str, message: str, files: Sequence[File] = ()) -> None:
        if run in self._live:
            return await super().steer(run, message, files)
        body = {"run": run, "message": message, "files": to_builtins(files)}
        if await self._ask_owner(run, "steer", body, again=False) is ENDED:
            await super().steer(run, message, files)  # says that it has ended
        return None

    async def _steer_here(self, body: Body) -> None:
        self._check_here(body["run"])
        try:
            await super().steer(body["run"], body["message"], convert(body["files"], list[File]))
        except CROSSING as error:
            raise refusal_of(error) from error

    async def decide(self, run: str, call: str, principal: Principal, review: Review) -> ApprovalRow:
        if run not in self._live:
            asked = {"run": run, "call": call, "principal": to_builtins(principal), "review": to_builtins(review)}
            answer = await self._ask_owner(run, "decide", asked)
            if answer is not ENDED:
                return convert(answer, ApprovalRow)
        return await super().decide(run, call, principal, review)

    async def _decide_here(self, body: Body) -> Any:
        self._check_here(body["run"])
        principal, review = convert(body["principal"], Principal), convert(body["review"], Review)
        try:
            return to_builtins(await super().decide(body["run"], body["call"], principal, review))
        except CROSSING as error:
            raise refusal_of(error) from error

    async def disable_tools(self, session: str, patterns: Sequence[str]) -> None:
        await super().disable_tools(session, patterns)
        await self._tell_others(session, disable=list(patterns))

    async def withdraw_grants(self, session: str, principal: Principal, grant: str | None = None) -> int:
        count = await super().withdraw_grants(session, principal, grant)
        await self._tell_others(session)
        return count

    async def adopt_labels(self, session: str, labels: Sequence[str]) -> None:
        await super().adopt_labels(session, labels)
        await self._tell_others(session, labels=list(labels))

    async def _follow_session_here(self, body: Body) -> None:
        """Let the runs of a session here follow a change of what they may do."""
        if "labels" in body:
            await super().adopt_labels(body["session"], body["labels"])
        for run in self._line.of(body["session"]):
            gate = self._live[run].gate
            if "disable" in body:  # else what is disabled stays so
                gate.disable(body["disable"])
            gate.grant(await self.approvals.grants(body["session"]))

    async def abandon(self) -> None:
        """End all that this server does for its runs, and write nothing: they are another server's now."""
        self._journal.drop(LeaseLost(LOST_WORDS))
        self._lost.forget_all()
        await gather_all(super(SharedRuns, self).cancel(run, ABANDONED) for run in list(self._live))

    def _check_here(self, run: str) -> None:
        if run not in self._live:
            raise Refusal(NOT_HERE, f"This server does not have run {run}.")

    async def _ask_owner(self, run: str, question: str, body: Body, *, again: bool = True) -> Any:
        """The owner's answer; ENDED for a run that has ended. Waits while no server has the run.

        Raises what the owner raises, and StoreFailed. With `again` the next owner is asked after one that has stopped.
        """
        if not self._nodes.shares and (away := await self._nodes.waits_for(run)):
            raise HomeAway(away)
        deadline = asyncio.get_running_loop().time() + ASKED_S
        while asyncio.get_running_loop().time() < deadline:
            owner, has_ended = await self.replicas.owner_of(run)
            if has_ended:
                return ENDED
            if owner is not None:
                try:
                    return await self._asked(owner, question, body)
                except ReplicaGone as gone:
                    if not again:
                        session = row.session if (row := await self._store.run(run)) else ""
                        raise StoreFailed(UNKNOWN.format(run=run, session=session)) from gone
                except Refusal as refusal:
                    if refusal.name != NOT_HERE:
                        raise error_of(refusal) from refusal
            await asyncio.sleep(LOOK_S)
        raise StoreFailed(NO_OWNER.format(run=run))

    async def _asked(self, owner: str, question: str, body: Body) -> Any:
        if owner == self.replicas.me:  # taken over a moment ago
            return await self.replicas.answerers[question](body)
        return await self.replicas.ask(owner, question, body)

    async def _tell_others(self, session: str, **change: Any) -> None:
        """Let the others' runs of a session follow a change. Raises StoreFailed."""
        await ask_others(self.replicas, "session", {"session": session, **change}, lambda _, refusal: error_of(refusal))
