"""Forks inside a run: a branch whose first run has the log and the history of another one up to an event, and goes on.

It is what a restart does (`app.runs.recovery`), with two differences: the log ends where a person wants it to, and no
call is unknown. Those that are open at the event are made again, and ask. The branch works in a folder of its own, with
the files as they were at the event (`app.checkpoints.scratch`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from secrets import token_hex

from msgspec import Struct
from msgspec.structs import replace

from app.checkpoints.scratch import FORK, Moment, own_session
from app.core.events import Notice, RoundStarted, RunStarted, ToolFinished, ToolHanded, ToolRejected, ToolStarted
from app.core.messages import Message, dump
from app.core.profile_spec import TEMPORARY, modes_in
from app.core.rules import ApprovalMode, WhenAbsent
from app.runs.branching.forking import TEMPORARY_ENDS, Cut, Forking, NotForkable
from app.runs.branching.run_cut import Edit, RunCut, cut_run, edited, renumbered
from app.runs.composition.unattended import stored_options
from app.runs.recovery.history import begins_in
from app.runs.recovery.left_off import LeftOff
from app.runs.recovery.state import drafts_in, enter, unanswered_calls
from app.runs.run_factory import RunFactory
from app.storage.branches import BranchRow, RunResults
from app.storage.changes import Change
from app.storage.principals import Principal
from app.storage.runs import ALL, EventRow, InboxRow, KeyRow, RunRow
from app.storage.sessions import MessageRow
from app.transcript.run_request import HELPER, IMPORTED, KNOWN, LANE, UNTRUSTED, IdempotencyKey, RunRequest, has_mark
from app.transcript.run_totals import logged, totals_of

WORDS = "This run goes on from event {at} of run {run}, with the files as they were then."
LEFT_OUT = " {count:,} places are not among them (node_modules, .git and other names that no checkpoint has)."
WHOLE = "Fork the conversation before or after it: POST /sessions/{id}/fork."
SHARED = f"A fork inside a run needs a server with a database of its own, and this one has PostgreSQL. {WHOLE}"
LABELLED = f"Files have labels here, which copies of them would not have. {WHOLE}"
UNLISTED = "Nothing is kept of this run, so it cannot be forked. Send the request again."
RELAYED = "The run answers a client of another API, which has the conversation. Send another request with that client."
NOT_BEGUN = "The run has not begun, or only writes a summary. Fork another one, or wait until it has begun."
ELSEWHERE = f"The run was imported: its calls are history, and are not made here. {WHOLE}"
HELPERS = "A helper's run cannot be forked. Fork the run that it works for."


class ForkRequest(Struct, frozen=True):
    """The event at which a run is forked, and what is changed in the new one; `message` is one more of the person."""

    at: int
    model: str | None = None
    approval: ApprovalMode = ApprovalMode.ASK
    edit: Edit = Edit()
    message: str = ""
    key: IdempotencyKey | None = None
    traceparent: str = ""


class RunForking(Struct, frozen=True):
    """Forks runs of one server."""

    factory: RunFactory

    async def fork(self, principal: Principal, run: str, wanted: ForkRequest) -> RunRow:
        """Begin the run of a branch, or find the one that the same key has begun.

        Raises NotFound, NotForkable, Unfit, NoSuchState, and what composing and starting a run raise.
        """
        runs = self.factory.runs
        return await runs.begin_once(principal, wanted.key, lambda: self._fork(principal, run, wanted))

    async def _fork(self, principal: Principal, run: str, wanted: ForkRequest) -> RunRow:
        factory = self.factory
        row = await factory.runs.run(run, principal)
        await self._check(row)
        events = await factory.store.events(run, 0, ALL)
        cut = cut_run(events, await self._messages(row), wanted.at)
        if not cut.messages:
            raise NotForkable(NOT_BEGUN)
        cut = edited(cut, wanted.edit, {tool.name: tool.parameters for tool in factory.tools})
        session = own_session()
        workspace = await factory.workspace_of(principal, row.session)
        left_out = await factory.scratch.begin(session, principal.name, workspace, _moment(row, events, wanted.at))
        try:
            return await self._begin(principal, row, session, wanted, cut, notice=_notice(run, wanted.at, left_out))
        except BaseException:
            if await factory.store.owner_of(session) is None:
                await factory.scratch.forget(session)
            raise

    async def _check(self, row: RunRow) -> None:
        """Raises NotForkable."""
        factory = self.factory
        if await factory.store.run(row.id) is None:
            raise NotForkable(UNLISTED)
        if has_mark(row, LANE) or has_mark(row, KNOWN):
            raise NotForkable(RELAYED)
        if has_mark(row, HELPER):
            raise NotForkable(HELPERS)
        if has_mark(row, IMPORTED):
            raise NotForkable(ELSEWHERE)
        if TEMPORARY in modes_in(row.policy):
            raise NotForkable(TEMPORARY_ENDS)
        if not factory.runs.peers.is_alone:
            raise NotForkable(SHARED)
        if factory.labels is not None:
            raise NotForkable(LABELLED)

    async def _messages(self, row: RunRow) -> Sequence[Message]:
        """Return the messages of a run, from the one that began it."""
        store = self.factory.store
        messages = await store.messages_until(row.session, row.id)
        return messages[await begins_in(store, row, messages) :]

    async def _begin(
        self, principal: Principal, row: RunRow, session: str, wanted: ForkRequest, cut: RunCut, *, notice: Notice
    ) -> RunRow:
        factory = self.factory
        changes: dict[str, object] = {"approval": wanted.approval, "when_absent": WhenAbsent.WAIT}
        changes |= {"model": wanted.model} if wanted.model else {}
        options = stored_options(row.policy).model_copy(update=changes)
        agent = await factory.agent(principal, options, session)
        run = f"run_{token_hex(10)}"
        started = {"run": run, "session": session, "model": agent.provider.model}
        log = renumbered(cut, run, started, agent.scope.gate.policy.mode)
        inbox = [InboxRow(run, 0, wanted.message)] if wanted.message.strip() else []
        left = _left_off(cut, log)
        left = replace(left, inbox=inbox, notice=notice, left_s=factory.limits(options).seconds)
        enter(agent, left, log)
        marks = RunRequest(
            "", policy=options.policy(), untrusted=has_mark(row, UNTRUSTED), traceparent=wanted.traceparent
        )
        policy = agent.policy_with(marks.stored_policy)

        at = await self._at(row, run, cut, wanted.edit)

        async def store(now: float) -> tuple[RunRow, LeftOff]:
            new = RunRow(
                run,
                session=session,
                principal=principal.name,
                model=agent.provider.model,
                state="running",
                created=now,
                policy=policy,
            )
            begins = 0

            def also(_: BranchRow, position: int) -> list[Change]:
                nonlocal begins
                begins = position
                said = [replace(one, at=now) if one.at == row.created else one for one in cut.messages]
                kept = [MessageRow(session, at, run, dump(one)) for at, one in enumerate(said, start=position)]
                key = wanted.key
                named = [KeyRow(principal.name, key.value, key.body, run, now)] if key else []
                return [new, *kept, *inbox, *named, *log]

            forking = Forking(factory.runs, factory.store, factory.scratch)
            await forking.branch(principal, row.session, at, session, also)
            return new, replace(left, begins=begins)

        return await factory.runs.begin_at(agent, principal, session, store)

    async def _at(self, row: RunRow, run: str, cut: RunCut, edit: Edit) -> Cut:
        """Return where the branch begins, with what it has of the run beside its log and its messages."""
        answers = [one for one in cut.messages if one.call]
        whole = [one.call or "" for one in answers if one.text != edit.result]
        until = await self.factory.store.documents_changed(row, [one.call or "" for one in answers])
        return Cut(row.id, is_after=False, results=RunResults(row.id, run, whole), documents_until=until)


def _left_off(cut: RunCut, log: Sequence[EventRow]) -> LeftOff:
    """Return the state from which the new run goes on."""
    rounds = [at for at, one in enumerate(log) if one.type == RoundStarted.type]
    calls = cut.open_calls
    return LeftOff(
        last_seq=log[-1].seq if log else 0,
        is_announced=any(one.type == RunStarted.type for one in log),
        totals=totals_of(log, calls),
        before=totals_of(log[: rounds[-1]] if rounds else log, ()),
        reply=cut.reply,
        calls=unanswered_calls(calls, None, log),
        handed={fields["call"] for _, fields in logged(log, (ToolHanded.type,))},
        asked=cut.asked,
        drafts=drafts_in(log),
    )


def _moment(row: RunRow, events: Sequence[EventRow], at: int) -> Moment:
    until = [one for one in events if one.seq <= at]
    started = {fields["call"] for _, fields in logged(until, (ToolStarted.type,))}
    finished = {fields.get("call") or "" for _, fields in logged(until, (ToolFinished.type, ToolRejected.type))}
    return Moment(row.id, started, finished, row.ended or math.inf)


def _notice(run: str, at: int, left_out: int) -> Notice:
    return Notice(FORK, WORDS.format(at=at, run=run) + (LEFT_OUT.format(count=left_out) if left_out else ""))
