"""Approvals: calls that wait for a person, stored, bound to the exact call and its principal, decided once."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Sequence
from typing import Any
from weakref import WeakValueDictionary

import msgspec
from msgspec.structs import replace

from app.core.events import ApprovalResolved
from app.core.messages import AskedCall
from app.policy.call_rows import QUOTED
from app.policy.doors import DOORS, outcome
from app.policy.grants import Grant, grant_of, reaches_hosts
from app.policy.permits.permissions import Permission, day_of, permissions_of
from app.policy.permits.proposals import Proposal
from app.policy.permits.stored_permissions import check_permission, permission_changes
from app.policy.reapproval import first_reason
from app.policy.stored_grants import NO_HOSTS, Review, UnfitArguments, check_grant, grant_changes, with_chosen_hosts
from app.storage.approvals import ApprovalDecided, ApprovalRow, ApprovalStore
from app.storage.audit import AuditRow
from app.storage.changes import Change
from app.storage.principals import Principal
from parsing import Arguments
from tools.base.permit import canonical, fingerprint
from tools.toolbox import Refuse, Toolbox

NO_APPROVER = "nobody"
QUESTION_TIME_LIMIT_S = 300.0  # of those of MCP servers, whose calls hold a place at the server
UNLIMITED = 2**31 - 1  # uses of a permission in a day
RUN_ENDED = "the end of its run"
CALL_ENDED = "the end of its call"


class NoApproval(Exception):
    """There is no such approval, or it belongs to another principal."""


class AlreadyDecided(Exception):
    """The approval was decided before. `row` has that decision."""

    def __init__(self, row: ApprovalRow) -> None:
        super().__init__(f"This call was already {outcome(row.state, row.by or '', row.door)}. That decision stands.")
        self.row = row


class ApprovalExpired(Exception):
    """The approval has expired."""

    def __init__(self) -> None:
        super().__init__("This approval has expired and the call was not run. Send a message to request it again.")


PendingApproval = tuple[ApprovalRow, asyncio.Future[ApprovalRow]]


Objection = Callable[[Arguments], str | None]
"""Returns the error in an answer to a question, or None."""


class Approvals:
    """All pending approvals. `time_limit_s` limits the wait for a decision (None: no limit), `grant_time_limit_s` the
    life of a grant (None: the life of its session)."""

    def __init__(
        self,
        store: ApprovalStore,
        time_limit_s: float | None = None,
        grant_time_limit_s: float | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.clock = clock
        self.time_limit_s = time_limit_s
        self._grant_time_limit_s = grant_time_limit_s
        self._store = store
        self._waiting: dict[str, PendingApproval] = {}  # by run: one call of each at a time
        self._question_locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()  # by run
        # By run and their own id; True for those that may be approved for the session.
        self._questions: dict[tuple[str, str], tuple[PendingApproval, Objection, bool]] = {}

    def open(
        self,
        run: str,
        session: str,
        principal: Principal,
        call: AskedCall,
        *,
        reason: str,
        binding: str = "",
        origins: Sequence[dict[str, Any]] = (),
        proposals: Sequence[Proposal] = (),
        secrets: str = "",
    ) -> ApprovalRow:
        """Return a new row; the caller stores it before sending any event. An approval is bound to `binding`."""
        row = _row(run, session, principal, call, reason, time_limit_s=self.time_limit_s, binding=binding)
        offered = json.dumps(msgspec.to_builtins(proposals))
        row = replace(row, origins=json.dumps(origins), proposals=offered, secrets=secrets)
        self.reopen(row)
        return row

    def question_lock(self, run: str) -> asyncio.Lock:
        """Return the lock that serialises the questions of a run's tools."""
        return self._question_locks.setdefault(run, asyncio.Lock())

    def open_question(
        self,
        run: str,
        session: str,
        principal: Principal,
        asked: AskedCall,
        *,
        reason: str,
        objection: Objection,
        limit_s: float | None = QUESTION_TIME_LIMIT_S,
        for_session: bool = False,
    ) -> ApprovalRow:
        """Return a new row for a question that a tool asks during a call; the person's arguments are the answer.

        `limit_s` is its time limit where approvals have none. `for_session`: it may be approved for the whole session.
        """
        row = _row(run, session, principal, asked, reason, time_limit_s=self.time_limit_s or limit_s)
        pending = row, asyncio.get_running_loop().create_future()
        self._questions[run, asked.id] = pending, objection, for_session
        return row

    def reopen(self, row: ApprovalRow) -> None:
        self._waiting[row.run] = row, asyncio.get_running_loop().create_future()

    async def current(self, row: ApprovalRow) -> ApprovalRow:
        """Return the row with a decision that came between its reading and its `reopen`. Raises StoreFailed."""
        known = await self._store.approval(row.run, row.call) or row
        if known.state != "pending":
            self._waiting.pop(row.run, None)
        return known

    async def wait(self, row: ApprovalRow) -> ApprovalRow:
        """Wait for the decision and return the stored row; `expired` after the time limit. Raises StoreFailed."""
        if row.state != "pending":
            return row
        row = await self._outcome(self._waiting[row.run])
        self._waiting.pop(row.run, None)
        return row

    async def answer(self, row: ApprovalRow) -> ApprovalRow:
        """Wait for the answer to a question and return the stored row, like `wait`. Raises StoreFailed."""
        row = await self._outcome(self._questions[row.run, row.call][0])
        self._questions.pop((row.run, row.call), None)
        return row

    async def _outcome(self, waiting: PendingApproval) -> ApprovalRow:
        row, decided = waiting
        left_s = None if row.expires is None else max(0.0, row.expires - time.time())
        await asyncio.wait([decided], timeout=left_s)
        return decided.result() if decided.done() else await self._close(row, "expired", NO_APPROVER)

    async def withdraw_questions(self, run: str, call: str | None = None) -> list[ApprovalRow]:
        """Withdraw one question of the run, or all of them (None); return the rows. Raises StoreFailed."""
        left = [key for key in self._questions if key[0] == run and call in (None, key[1])]
        by = RUN_ENDED if call is None else CALL_ENDED
        return [await self._close(self._questions.pop(key)[0][0], "withdrawn", by) for key in left]

    @property
    def waiting(self) -> int:
        """The number of calls and questions that wait for a person."""
        return len(self._waiting) + len(self._questions)

    def has_question(self, run: str) -> bool:
        """True if a tool of the run waits for the answer to a question."""
        return any(key[0] == run for key in self._questions)

    def is_waiting(self, run: str) -> bool:
        """True if the run waits only for a decision. A call that asks a question ends with the server."""
        return run in self._waiting and not self._waiting[run][1].done()

    async def withdraw(self, run: str, by: str = RUN_ENDED) -> ApprovalRow | None:
        """Withdraw the run's pending approval, if any; return its row. Raises StoreFailed."""
        waiting = self._waiting.pop(run, None)
        return await self._close(waiting[0], "withdrawn", by) if waiting else None

    async def close_pending(self, run: str) -> None:
        """Withdraw the stored approvals of a run that ended without doing so. Raises StoreFailed."""
        for row in await self._store.pending_of(run):
            if row.state == "pending":
                await self._close(row, "withdrawn", RUN_ENDED)

    async def _close(self, row: ApprovalRow, state: str, by: str) -> ApprovalRow:
        """Close an approval without a person's decision, unless one was stored first."""
        closed = ApprovalDecided(row.run, row.call, state, time.time(), by)
        audit = _audit_of(row, closed, row.reason, json.loads(row.arguments))
        if await self._store.decide_approval(closed, [audit]):
            return _with_decision(row, closed)
        return await self._store.approval(row.run, row.call) or _with_decision(row, closed)

    async def grants(self, session: str) -> list[Grant]:
        return [grant_of(row) for row in await self._store.grants(session)]

    async def grants_of_quotations(self, session: str) -> list[Grant]:
        """Return the exact grants given for a quoted call: that person knew that it was a quotation."""
        approved = await self._store.approved_for_session(session)
        when = {row.decided for row in approved if first_reason(row).startswith(QUOTED)}
        return [one for one in await self.grants(session) if one.fingerprint is not None and one.created in when]

    async def permissions(self, principal: str, chosen: Sequence[str] | None = None) -> tuple[Permission, ...]:
        """Return the standing permissions of a principal, those of these ids (None: all). Raises StoreFailed."""
        if chosen is not None and not chosen:
            return ()
        return permissions_of(await self._store.permissions(principal), chosen)

    async def use(self, permission: Permission, call: str) -> bool:
        """Count a use of a permission for a call that may run; False if there is none left. Raises StoreFailed.

        Calls by a rule without a limit are not counted.
        """
        if permission.is_rule and permission.per_day is None:
            return True
        now = self.clock()
        return await self._store.use_permission(permission.id, day_of(now), permission.per_day or UNLIMITED, now)

    async def row(self, run: str, call: str, principal: Principal) -> ApprovalRow:
        row = await self._store.approval(run, call)
        if row is None or row.principal != principal.name:
            raise NoApproval(f"Run {run!r} has no approval {call!r}. GET /approvals lists your pending approvals.")
        return row

    async def decide(
        self,
        run: str,
        call: str,
        principal: Principal,
        review: Review,
        toolbox: Toolbox | None,
        *,
        tainted: bool = False,
    ) -> ApprovalRow:
        """Store a decision, once (compare and set). `tainted`: the conversation contains untrusted text.

        The run's `toolbox` normalises edited calls and applies the rules.

        Raises NoApproval, AlreadyDecided, ApprovalExpired, UnfitArguments, StoreFailed.
        """
        row = await self.row(run, call, principal)
        if too_late := _too_late(row):
            raise too_late
        question = self._questions.get((run, call))
        if review.scope == "always" and review.decision == "approve":
            count = len(await self._store.permissions(principal.name))
            check_permission(row, review, principal, count, self.clock())
        if question:
            _check_answer(question[1], review, for_session=question[2])
        else:
            review = _validated(row, review, toolbox, tainted=tainted)
        final = json.loads(row.arguments) if review.arguments is None else review.arguments
        decided = ApprovalDecided(
            run=run,
            call=call,
            state="approved" if review.decision == "approve" else "denied",
            decided=time.time(),
            by=principal.name,
            scope=review.scope,
            edited=None if review.arguments is None else canonical(review.arguments),
            note=review.note,
            door=review.door,
        )
        grants = grant_changes(row, review, final, decided.decided, self._grant_time_limit_s, tainted=tainted)
        changed = ", arguments changed" if review.arguments is not None else ""
        why = f"scope {review.scope}{changed}, {DOORS[review.door]}"
        also = [_audit_of(row, decided, why, final), *grants, *permission_changes(row, review, decided.decided)]
        if not await self._store.decide_approval(decided, also):
            raise _too_late(await self.row(run, call, principal)) or AlreadyDecided(row)
        row = _with_decision(row, decided)
        waiting = question[0] if question else self._waiting.get(run)
        if waiting and waiting[0].call == call and not waiting[1].done():
            waiting[1].set_result(row)
        return row


def _validated(row: ApprovalRow, review: Review, toolbox: Toolbox | None, *, tainted: bool) -> Review:
    """Return the review with its arguments normalised. Raises UnfitArguments."""
    if toolbox and review.arguments is not None:  # edited arguments are normalised like those of a call
        review = replace(review, arguments=toolbox.normalise_call(row.name, review.arguments)[1])
    if review.decision != "approve":
        return review
    requested: Arguments = json.loads(row.arguments)
    if review.hosts:
        if not reaches_hosts(toolbox.tool(row.name) if toolbox else None):
            raise UnfitArguments(NO_HOSTS)
        chosen = with_chosen_hosts(requested if review.arguments is None else review.arguments, review.hosts)
        review = replace(review, arguments=None if chosen == requested else chosen)
    final = requested if review.arguments is None else review.arguments
    objection = toolbox.decide(row.name, final) if toolbox else None
    if isinstance(objection, Refuse):
        raise UnfitArguments(objection.reason)
    if review.scope != "always":
        check_grant(row.name, review, final, tainted=tainted)
    return review


def _row(
    run: str,
    session: str,
    principal: Principal,
    call: AskedCall,
    reason: str,
    *,
    time_limit_s: float | None,
    binding: str = "",
) -> ApprovalRow:
    now = time.time()
    return ApprovalRow(
        run=run,
        call=call.id,
        session=session,
        principal=principal.name,
        name=call.name,
        arguments=canonical(call.arguments),
        fingerprint=fingerprint(principal.name, call.name, call.arguments, binding),
        reason=reason,
        created=now,
        expires=None if time_limit_s is None else now + time_limit_s,
    )


def is_over(row: ApprovalRow) -> bool:
    """True if the approval has expired."""
    return row.expires is not None and row.expires <= time.time()


def _check_answer(objection: Objection, review: Review, *, for_session: bool) -> None:
    """Raises UnfitArguments."""
    if review.pattern:
        raise UnfitArguments("A question has no pattern of calls to allow. Leave pattern out.")
    if review.scope != "once" and not for_session:
        raise UnfitArguments("A question is answered once. Leave scope out.")
    if review.hosts:
        raise UnfitArguments("A question has no network access to allow. Leave hosts out.")
    if review.decision == "approve" and (reason := objection(review.arguments or {})):
        raise UnfitArguments(reason)


def resolution_event(row: ApprovalRow) -> ApprovalResolved:
    """Return the event for a decision."""
    edited: Arguments | None = json.loads(row.edited) if row.edited else None
    return ApprovalResolved(
        row.call, decision=row.state, by=row.by or "", scope=row.scope, arguments=edited, note=row.note, door=row.door
    )


def _too_late(row: ApprovalRow) -> Exception | None:
    if row.state == "expired" or (row.state == "pending" and is_over(row)):
        return ApprovalExpired()
    return None if row.state == "pending" else AlreadyDecided(row)


def _with_decision(row: ApprovalRow, decided: ApprovalDecided) -> ApprovalRow:
    return replace(
        row,
        state=decided.state,
        decided=decided.decided,
        by=decided.by,
        scope=decided.scope,
        edited=decided.edited,
        note=decided.note,
        door=decided.door,
    )


def _audit_of(row: ApprovalRow, decided: ApprovalDecided, why: str, arguments: Arguments) -> Change:
    """Return the audit row of a decision."""
    return AuditRow(
        decided.decided,
        principal=row.principal,
        action=row.name,
        decision=decided.state,
        why=why,
        by=decided.by,
        run=row.run,
        call=row.call,
        fingerprint=fingerprint(row.principal, row.name, arguments),  # without the binding, like all in the audit
    )
