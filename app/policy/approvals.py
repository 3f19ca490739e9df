"""Calls that wait for a person: stored, bound to the exact call and its principal, decided once."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Protocol
from weakref import WeakValueDictionary

from app.core.events import ApprovalResolved
from app.core.messages import AskedCall
from app.policy.gate import QUOTED
from app.policy.grants import Grant, grant_of, reaches_hosts
from app.policy.reapproval import first_reason
from app.policy.stored_grants import NO_HOSTS, UnfitArguments, Wish, check_grant, granted, with_chosen_hosts
from app.storage.approvals import ApprovalDecided, ApprovalRow, ApprovalStore
from app.storage.audit import AuditRow
from app.storage.changes import Change
from app.storage.principals import Principal
from parsing import Arguments
from tools.base.permit import canonical, fingerprint
from tools.tool import Tool
from tools.toolbox import Decision, Refuse

NOBODY = "nobody"
QUESTION_TIME_LIMIT_S = 300.0  # a tool asks it, whose own time goes on
RUN_ENDED = "the end of its run"
CALL_ENDED = "the end of its call"


class NoApproval(Exception):
    """There is no such approval, or it belongs to somebody else."""


class AlreadyDecided(Exception):
    """Somebody was faster. `row` says who, and what was decided."""

    def __init__(self, row: ApprovalRow) -> None:
        super().__init__(f"This call was {row.state} by {row.by} already. The run goes on by that.")
        self.row = row


class ApprovalExpired(Exception):
    """The time to decide is over."""

    def __init__(self) -> None:
        super().__init__("The time to decide is over, and the call was not run. Ask for it again with a message.")


Waiting = tuple[ApprovalRow, asyncio.Future[ApprovalRow]]


class Door(Protocol):
    """What is asked of the toolbox of the run that asked: the form in which a call is decided on, and whether it could
    run."""

    def normalise_call(self, name: str, arguments: Arguments) -> tuple[str, Arguments]: ...

    def decide(self, name: str, arguments: Arguments) -> Decision: ...

    def tool(self, name: str) -> Tool | None: ...


Objection = Callable[[Arguments], str | None]
"""What is wrong with an answer to a question; None when nothing is."""


class Approvals:
    """All calls that wait. `time_limit_s` is how long each of them does, None for as long as it takes;
    `grant_time_limit_s` how long a grant lasts, None for the life of its session."""

    def __init__(
        self, store: ApprovalStore, time_limit_s: float | None = None, grant_time_limit_s: float | None = None
    ) -> None:
        self.time_limit_s = time_limit_s
        self._grant_time_limit_s = grant_time_limit_s
        self._store = store
        self._waiting: dict[str, Waiting] = {}  # by run: one call of each at a time
        self._asking: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()  # by run
        self._questions: dict[tuple[str, str], tuple[Waiting, Objection]] = {}  # by run and their own id

    def open(
        self, run: str, session: str, principal: Principal, call: AskedCall, reason: str, binding: str = ""
    ) -> ApprovalRow:
        """A new row, for the caller to store before anybody is told of it, or waits. A yes is bound to `binding`."""
        row = _row(run, session, principal, call, reason, self.time_limit_s, binding)
        self.reopen(row)
        return row

    def one_question(self, run: str) -> asyncio.Lock:
        """Held while a person is asked something in the middle of a call of this run: questions come one by one."""
        return self._asking.setdefault(run, asyncio.Lock())

    def open_question(
        self, run: str, session: str, principal: Principal, asked: AskedCall, reason: str, objection: Objection
    ) -> ApprovalRow:
        """The same for what a tool asks in the middle of a call: the arguments that a person gives are the answer."""
        row = _row(run, session, principal, asked, reason, self.time_limit_s or QUESTION_TIME_LIMIT_S)
        self._questions[run, asked.id] = (row, asyncio.get_running_loop().create_future()), objection
        return row

    def reopen(self, row: ApprovalRow) -> None:
        self._waiting[row.run] = row, asyncio.get_running_loop().create_future()

    async def wait(self, row: ApprovalRow) -> ApprovalRow:
        """What was decided, as the row that is stored; `expired` when nobody did in time. Raises StoreFailed."""
        if row.state != "pending":
            return row
        row = await self._outcome(self._waiting[row.run])
        self._waiting.pop(row.run, None)
        return row

    async def answer(self, row: ApprovalRow) -> ApprovalRow:
        """What a person says to a question, as `wait` has it. Raises StoreFailed."""
        waiting, _ = self._questions[row.run, row.call]
        row = await self._outcome(waiting)
        self._questions.pop((row.run, row.call), None)
        return row

    async def _outcome(self, waiting: Waiting) -> ApprovalRow:
        row, decided = waiting
        left_s = None if row.expires is None else max(0.0, row.expires - time.time())
        await asyncio.wait([decided], timeout=left_s)
        return decided.result() if decided.done() else await self._close(row, "expired", NOBODY)

    async def withdraw_questions(self, run: str, call: str | None = None) -> list[ApprovalRow]:
        """What became of one question of the run, or (None) of all that are left. Raises StoreFailed."""
        left = [key for key in self._questions if key[0] == run and call in (None, key[1])]
        by = RUN_ENDED if call is None else CALL_ENDED
        return [await self._close(self._questions.pop(key)[0][0], "withdrawn", by) for key in left]

    def asks(self, run: str) -> bool:
        """Whether a tool of the run has a question that is open."""
        return any(key[0] == run for key in self._questions)

    def waits(self, run: str) -> bool:
        """Whether all that the run waits for is a person. A question is asked by a tool, which cannot wait for long."""
        return run in self._waiting and not self._waiting[run][1].done()

    async def withdraw(self, run: str, by: str = RUN_ENDED) -> ApprovalRow | None:
        """What became of the call that the run still asked for, if it did. Raises StoreFailed."""
        waiting = self._waiting.pop(run, None)
        return await self._close(waiting[0], "withdrawn", by) if waiting else None

    async def close_left(self, run: str) -> None:
        """The run has ended without closing what it asked for. Raises StoreFailed."""
        for row in await self._store.pending_of(run):
            if row.state == "pending":
                await self._close(row, "withdrawn", RUN_ENDED)

    async def _close(self, row: ApprovalRow, state: str, by: str) -> ApprovalRow:
        """Decide without a person, unless one was faster."""
        closed = ApprovalDecided(row.run, row.call, state, time.time(), by)
        call = fingerprint(
            row.principal, row.name, json.loads(row.arguments)
        )  # as all of the audit: without its binding
        audit = AuditRow(closed.decided, row.principal, row.name, state, row.reason, by, row.run, row.call, call)
        if await self._store.decide_approval(closed, [audit]):
            return _after(row, closed)
        return await self._store.approval(row.run, row.call) or _after(row, closed)

    async def grants(self, session: str) -> list[Grant]:
        return [grant_of(row) for row in await self._store.grants(session)]

    async def grants_of_quotations(self, session: str) -> list[Grant]:
        """Exact grants that were given in answer to a question about a quotation: the person knew that it is one."""
        approved = await self._store.approved_for_session(session)
        when = {row.decided for row in approved if first_reason(row).startswith(QUOTED)}
        return [one for one in await self.grants(session) if one.fingerprint is not None and one.created in when]

    async def row(self, run: str, call: str, principal: Principal) -> ApprovalRow:
        row = await self._store.approval(run, call)
        if row is None or row.principal != principal.name:
            raise NoApproval(f"Run {run!r} has not asked for {call!r}. GET /approvals lists what waits for you.")
        return row

    async def decide(
        self, run: str, call: str, principal: Principal, wish: Wish, door: Door | None, *, tainted: bool = False
    ) -> ApprovalRow:
        """Compare and set. `tainted`: the conversation holds untrusted text.

        Raises NoApproval, AlreadyDecided, ApprovalExpired, UnfitArguments, StoreFailed.
        """
        row = await self.row(run, call, principal)
        if too_late := _too_late(row):
            raise too_late
        question = self._questions.get((run, call))
        if question:
            _check_answer(question[1], wish)
        else:
            wish = _checked(row, wish, door, tainted=tainted)
        final = json.loads(row.arguments) if wish.arguments is None else wish.arguments
        decided = ApprovalDecided(
            run,
            call,
            "approved" if wish.decision == "approve" else "denied",
            time.time(),
            principal.name,
            wish.scope,
            None if wish.arguments is None else canonical(wish.arguments),
            wish.note,
        )
        grants = granted(row, wish, final, decided.decided, self._grant_time_limit_s, tainted=tainted)
        also = [_audit_of(row, decided, wish, final), *grants]
        if not await self._store.decide_approval(decided, also):
            raise _too_late(await self.row(run, call, principal)) or AlreadyDecided(row)
        row = _after(row, decided)
        waiting = question[0] if question else self._waiting.get(run)
        if waiting and waiting[0].call == call and not waiting[1].done():
            waiting[1].set_result(row)
        return row


def _checked(row: ApprovalRow, wish: Wish, door: Door | None, *, tainted: bool) -> Wish:
    """The wish, its arguments as they would run. Raises UnfitArguments."""
    if door and wish.arguments is not None:  # an edit comes through the same door as a call
        wish = replace(wish, arguments=door.normalise_call(row.name, wish.arguments)[1])
    if wish.decision != "approve":
        return wish
    asked: Arguments = json.loads(row.arguments)
    if wish.hosts:
        if not reaches_hosts(door.tool(row.name) if door else None):
            raise UnfitArguments(NO_HOSTS)
        chosen = with_chosen_hosts(asked if wish.arguments is None else wish.arguments, wish.hosts)
        wish = replace(wish, arguments=None if chosen == asked else chosen)
    final = asked if wish.arguments is None else wish.arguments
    objection = door.decide(row.name, final) if door else None
    if isinstance(objection, Refuse):
        raise UnfitArguments(objection.reason)
    check_grant(row.name, wish, final, tainted=tainted)
    return wish


def _row(
    run: str,
    session: str,
    principal: Principal,
    call: AskedCall,
    reason: str,
    time_limit_s: float | None,
    binding: str = "",
) -> ApprovalRow:
    now = time.time()
    return ApprovalRow(
        run,
        call.id,
        session,
        principal.name,
        call.name,
        canonical(call.arguments),
        fingerprint(principal.name, call.name, call.arguments, binding),
        reason,
        now,
        None if time_limit_s is None else now + time_limit_s,
    )


def is_over(row: ApprovalRow) -> bool:
    """Whether the time to decide is."""
    return row.expires is not None and row.expires <= time.time()


def _check_answer(objection: Objection, wish: Wish) -> None:
    """Raises UnfitArguments."""
    if wish.scope != "once":
        raise UnfitArguments("This is a question, which is answered once. Leave scope out.")
    if wish.hosts:
        raise UnfitArguments("This is a question, which reaches no host. Leave hosts out.")
    if wish.decision == "approve" and (reason := objection(wish.arguments or {})):
        raise UnfitArguments(reason)


def resolution(row: ApprovalRow) -> ApprovalResolved:
    """What clients are told of a decision."""
    edited: Arguments | None = json.loads(row.edited) if row.edited else None
    return ApprovalResolved(row.call, row.state, row.by or "", row.scope, edited, row.note)


def _too_late(row: ApprovalRow) -> Exception | None:
    if row.state == "expired" or (row.state == "pending" and is_over(row)):
        return ApprovalExpired()
    return None if row.state == "pending" else AlreadyDecided(row)


def _after(row: ApprovalRow, decided: ApprovalDecided) -> ApprovalRow:
    return replace(
        row,
        state=decided.state,
        decided=decided.decided,
        by=decided.by,
        scope=decided.scope,
        edited=decided.edited,
        note=decided.note,
    )


def _audit_of(row: ApprovalRow, decided: ApprovalDecided, wish: Wish, final: Arguments) -> Change:
    """What the audit says of the decision."""
    print_of_call = fingerprint(row.principal, row.name, final)
    why = f"scope {wish.scope}{', arguments changed' if wish.arguments is not None else ''}"
    return AuditRow(
        decided.decided, row.principal, row.name, decided.state, why, decided.by, row.run, row.call, print_of_call
    )
