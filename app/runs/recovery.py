"""Recovery after a restart: runs that waited for a person resume, the others get their terminal event."""

from __future__ import annotations

import json
import time
from collections.abc import Awaitable, Callable, Sequence

from msgspec.structs import replace

from app.core.events import AgentEvent, ApprovalResolved, RunFailed, ToolRejected, encode
from app.core.messages import AskedCall, unanswered
from app.log.event_writer import EventWriter
from app.policy.approvals import NO_APPROVER, RUN_ENDED, is_over
from app.policy.reapproval import number_of
from app.runs.agent import Agent
from app.runs.run_manager import RunManager
from app.runs.run_task import Interrupted, conversation_of
from app.runs.tool_executor import Unanswered
from app.storage.approvals import ApprovalDecided, ApprovalRow
from app.storage.runs import ALL, EventRow, InboxTaken, RunEnded, RunRow
from app.storage.store import Store
from app.transcript.conversation import INTERRUPTED
from app.transcript.inbox import message_of
from app.transcript.run_request import UNTRUSTED, NotFound, is_helper
from app.transcript.run_totals import totals_of

INTERRUPTION = "The server stopped during this run. Send the next message."

AgentOf = Callable[[RunRow], Awaitable[tuple[Agent, float]]]
"""The agent that a run was begun with, and its time limit in seconds. Raises NotFound if its principal has gone."""


async def recover(store: Store, journal: EventWriter, runs: RunManager, agent_of: AgentOf) -> None:
    """Recover all runs when a server starts. Raises StoreFailed."""
    await runs.documents.load()
    waiting = set[str]()  # sessions whose run goes on
    for row in await store.unfinished_runs():
        if row.session not in waiting and await _goes_on(store, runs, row, agent_of):
            waiting.add(row.session)
        else:
            await _end(store, journal, row, runs, history=row.session not in waiting)


async def _goes_on(store: Store, runs: RunManager, row: RunRow, agent_of: AgentOf) -> bool:
    """Take the run up again if all it waited for was a person. Otherwise its state is unknown."""
    pending, questions = list(unanswered(await store.messages(row.session))), await store.pending_of(row.id)
    if not pending or not questions or row.state == "queued" or is_helper(row):
        return False
    try:
        agent, time_limit_s = await agent_of(row)
    except NotFound:
        return False
    own = [call for call in pending if not agent.calls.goes_to_client(call)]  # handed over behind them
    if (
        not own
        or own[0].id in await store.started_calls(row.id)
        or (approval := _approval_of(questions, own[0])) is None
    ):
        return False
    events = await store.events(row.id, 0, ALL)
    left = _left(pending, approval, events)
    agent.calls.totals = totals_of(events, left.calls)
    if agent.calls.totals.has_accepted_plan:
        agent.calls.gate.act()
    if approval.state == "pending":
        runs.approvals.reopen(approval)
    used_s = time.time() - row.created - waited_s(questions)
    left_s = max(1.0, time_limit_s - used_s)
    messages, last_seq = await store.inbox(row.id), events[-1].seq if events else 0
    runs.go_on(row, agent, Interrupted(left, messages, last_seq, left_s))
    return True


def waited_s(rows: Sequence[ApprovalRow]) -> float:
    """Return the seconds a run has waited for a person; they do not count as its time."""
    return sum(max(0.0, (row.decided or time.time()) - row.created) for row in rows)


def _left(calls: list[AskedCall], approval: ApprovalRow, events: Sequence[EventRow]) -> Unanswered:
    """Read from the log which calls could not be parsed and whether the decision was logged."""
    refused, resolved, waiting = dict[str, str](), False, {call.id for call in calls}
    for event in events:
        if event.type in (ToolRejected.type, ApprovalResolved.type):
            fields = json.loads(event.data)
            if event.type == ApprovalResolved.type:
                resolved = resolved or fields["call"] == approval.call
            elif fields.get("call") in waiting:
                refused[fields["call"]] = fields["reason"]
    return Unanswered(calls, refused, approval, resolved)


def _approval_of(questions: Sequence[ApprovalRow], call: AskedCall) -> ApprovalRow | None:
    """Return the approval of a call that has not started, decided or still open."""
    of_call = [one for one in questions if number_of(one, call.id)]
    approval = of_call[-1] if of_call else None  # the others were for what is not there any more
    return None if approval is not None and approval.state == "pending" and is_over(approval) else approval


async def _end(store: Store, journal: EventWriter, row: RunRow, runs: RunManager, *, history: bool) -> None:
    """Open calls get an answer, messages a place, the log its terminal event.

    Without `history` the session's messages are another run's to add to; those of this one wait for the next turn.
    """
    if history:
        conversation = conversation_of(row, await store.messages(row.session), journal.put, journal)
        for call in await store.handed_calls(row.id):
            conversation.hand_over(call)  # the client has it, and may send its result
        conversation.settle(INTERRUPTED, await store.started_calls(row.id))
        untrusted = UNTRUSTED in json.loads(row.policy)
        for message in await store.inbox(row.id):
            conversation.append(replace(message_of(message), at=row.created, untrusted=untrusted))
        journal.put(InboxTaken(row.id))
    events: list[AgentEvent] = []
    for approval in await store.pending_of(row.id):
        if approval.state == "pending":
            state, by = ("expired", NO_APPROVER) if is_over(approval) else ("withdrawn", RUN_ENDED)
            journal.put(ApprovalDecided(row.id, approval.call, state, time.time(), by))
            events.append(ApprovalResolved(approval.call, state, by))
    events.append(RunFailed("interrupted", INTERRUPTION, retryable=True))
    first = await store.last_seq(row.id) + 1
    rows = [EventRow(row.id, seq, event.type, encode(event)) for seq, event in enumerate(events, start=first)]
    for change in (*rows, *runs.changes_with(row, rows)):
        journal.put(change)
    journal.put(RunEnded(row.id, "interrupted", time.time()))
    await journal.flush()
