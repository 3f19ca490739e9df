"""Reading from the store where a run was when its server ended."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence

from msgspec import convert

from app.core.document_events import DocumentFinished, DocumentStarted
from app.core.events import (
    ApprovalRequired,
    ApprovalResolved,
    Notice,
    ReasoningDelta,
    RoundStarted,
    RunStarted,
    TextDelta,
    TextReclassified,
    ToolDelta,
    ToolFinished,
    ToolProgress,
    ToolRejected,
    ToolTask,
    Usage,
)
from app.core.messages import AskedCall, unanswered
from app.policy.reapproval import number_of
from app.runs.agent import Agent
from app.runs.delegation.shared_limits import SharedLimits
from app.runs.recovery.history import begins_in
from app.runs.recovery.left_off import CRASHED, RESUMED, STOPPED_BEFORE, SUSPENDED, WAITED, LeftOff
from app.runs.tool_executor import Unanswered
from app.storage.approvals import ApprovalRow
from app.storage.runs import ALL, EventRow, InboxRow, RunRow
from app.storage.store import Store
from app.transcript.run_request import CARRIES, LABELS, UNASKED, UNTRUSTED, RunRequest
from app.transcript.run_totals import logged, totals_of
from app.transcript.timings import seconds_of
from tools.base.access import RemoteTask
from tools.toolbox import Refuse

OPEN = "pending"


async def left_off(store: Store, row: RunRow, agent: Agent, time_limit_s: float) -> LeftOff | None:
    """Return where a run was; None if its request is lost, because not all of it was stored before its turn.

    Raises StoreFailed.
    """
    events, messages = await store.events(row.id, 0, ALL), await store.messages(row.session)
    inbox, questions = await store.inbox(row.id), await store.pending_of(row.id)
    begins = await begins_in(store, row, messages)
    is_announced = any(one.type == RunStarted.type for one in events)
    last_seq = events[-1].seq if events else 0
    policy = json.loads(row.policy)
    has_begun = is_announced or (begins < len(messages) and messages[begins].at == row.created)
    words = _words(events, row, questions)
    if not has_begun:
        turn = None if CARRIES in policy else _request(row, inbox)
        return LeftOff(inbox, last_seq, time_limit_s, words, turn) if turn else None
    rounds = [at for at, one in enumerate(events) if one.type == RoundStarted.type]
    since = events[rounds[-1] + 1 :] if rounds else []
    replies = [at for at in range(begins, len(messages)) if messages[at].role == "assistant"]
    is_kept = bool(replies) and len(replies) >= len(rounds)
    reply = messages[replies[-1]] if is_kept else None
    pending = list(unanswered(messages[begins:]))
    ran = await store.started_calls(row.id)
    tasks = tasks_in(events)
    followed = {call.id for call in pending if call.id in tasks and _may_run(agent, call)}
    unknown = [call for call in pending if call.id in ran - followed and not repeats(agent, call)]
    calls = [call for call in pending if call not in unknown]
    approval = _approval_of(questions, calls)
    shown, characters = ("", 0) if is_kept else _written(since)
    dropped = {} if is_kept else _dropped(since, pending)
    return LeftOff(
        inbox,
        last_seq,
        max(1.0, time_limit_s - _used_s(row, events, questions)),
        words,
        is_announced=is_announced,
        begins=begins,
        totals=totals_of(events, calls),
        before=totals_of(events[: rounds[-1]] if rounds else events, ()),
        reply=reply,
        calls=unanswered_calls(calls, approval, events),
        unknown=unknown,
        started={call.id for call in calls if call.id in ran},
        tasks=tasks,
        handed=await store.handed_calls(row.id),
        asked=bool(rounds) and not is_kept,
        half=shown,
        characters=0 if any(one.type == Usage.type for one in since) else characters,
        dropped=dropped,
        drafts=drafts_in(events),
        questions=[one for one in questions if one.state == OPEN and one is not approval],
    )


def enter(agent: Agent, left: LeftOff, events: Sequence[EventRow]) -> None:
    """Let a new agent go on with what its run has used and has been allowed."""
    if isinstance(limits := agent.discipline.limits, SharedLimits):
        limits.family.take_up(events)
    agent.scope.totals = left.totals
    if left.totals.has_accepted_plan:
        agent.scope.gate.act()


def repeats(agent: Agent, call: AskedCall) -> bool:
    """Return True if a call that was started may be made again: all that it does is read."""
    name, _ = agent.toolbox.normalise_call(call.name, call.arguments)
    tool = agent.toolbox.tool(name)
    return tool is not None and tool.may_repeat


def _may_run(agent: Agent, call: AskedCall) -> bool:
    name, arguments = agent.toolbox.normalise_call(call.name, call.arguments)
    return not isinstance(agent.toolbox.decide(name, arguments), Refuse)


def tasks_in(events: Sequence[EventRow]) -> dict[str, RemoteTask]:
    """Return the tasks of MCP servers that calls have become and that have no result, by the calls."""
    tasks = dict[str, RemoteTask]()
    for kind, fields in logged(events, (ToolTask.type, ToolFinished.type)):
        if kind == ToolTask.type:
            tasks[fields["call"]] = convert(fields, RemoteTask)
        else:
            tasks.pop(fields["call"], None)
    return tasks


def waited_s(rows: Sequence[ApprovalRow]) -> float:
    """Return the seconds a run has waited for a person; they do not count as its time."""
    return sum(max(0.0, (row.decided or time.time()) - row.created) for row in rows)


def _used_s(row: RunRow, events: Sequence[EventRow], questions: Sequence[ApprovalRow]) -> float:
    """Return the run's time so far: that of its requests and calls. The time without a server is nobody's."""
    seconds = 0.0
    running = dict[str, float]()
    for kind, fields in logged(events, (Usage.type, ToolProgress.type, ToolFinished.type)):
        match kind:
            case Usage.type:
                seconds += seconds_of(fields.get("timing") or {}, fields["completion_tokens"])
            case ToolProgress.type:
                running[fields["call"]] = fields["elapsed_s"]
            case ToolFinished.type:
                running.pop(fields["call"], None)
                seconds += fields["duration_s"]
    since_start = time.time() - row.created - waited_s(questions)
    return max(0.0, min(since_start, seconds + sum(running.values())))


def _words(events: Sequence[EventRow], row: RunRow, questions: Sequence[ApprovalRow]) -> str:
    """Return the words of the notice that the run goes on."""
    if any(one.state == OPEN for one in questions):
        return WAITED
    last = events[-1] if events else None
    step = next((one.type for one in reversed(events) if one.type != Notice.type), "")
    if step in (ApprovalRequired.type, ApprovalResolved.type):
        return WAITED  # a person has decided, and nothing was done yet: a decision is not lost with its server
    suspended = last is not None and last.type == Notice.type and json.loads(last.data)["code"] == SUSPENDED
    return STOPPED_BEFORE if suspended or row.state == "queued" else CRASHED


def crashes(events: Sequence[EventRow]) -> int:
    """Return how often a run has gone on after the death of its server."""
    notices = logged(events, (Notice.type,))
    return sum((one["code"], one["message"]) == (RESUMED, CRASHED) for _, one in notices)


def _request(row: RunRow, inbox: Sequence[InboxRow]) -> RunRequest | None:
    """Return the request of a run whose turn has not come; None if it is not there."""
    if not inbox:
        return None
    policy = json.loads(row.policy)
    return RunRequest(
        inbox[0].text or " ",
        row.session,
        asked=UNASKED not in policy,
        untrusted=UNTRUSTED in policy,
        labels=policy.get(LABELS, ()),
    )


def _approval_of(questions: Sequence[ApprovalRow], calls: Sequence[AskedCall]) -> ApprovalRow | None:
    """Return the approval of the first call that has one, decided or still open."""
    for call in calls:
        if of_call := [one for one in questions if number_of(one, call.id)]:
            return of_call[-1]  # the others were for what is not there any more
    return None


def unanswered_calls(
    calls: Sequence[AskedCall], approval: ApprovalRow | None, events: Sequence[EventRow]
) -> Unanswered:
    """Read from the log which calls could not be parsed and whether the decision was logged."""
    refused = dict[str, str]()
    resolved = False
    waiting = {call.id for call in calls}
    for kind, fields in logged(events, (ToolRejected.type, ApprovalResolved.type)):
        if kind == ApprovalResolved.type:
            resolved = resolved or (approval is not None and fields["call"] == approval.call)
        elif fields.get("call") in waiting:
            refused[fields["call"]] = fields["reason"]
    return Unanswered(calls, refused, approval, resolved)


def _written(events: Sequence[EventRow]) -> tuple[str, int]:
    """Return the text of a reply that the log shows, and how much the model had written at least."""
    text, characters = "", 0
    written = (TextDelta.type, ReasoningDelta.type, ToolDelta.type, TextReclassified.type)
    for kind, fields in logged(events, written):
        if kind == TextReclassified.type:
            text = text[: max(0, len(text) - fields["characters"])]
            continue
        characters += len(fields["text"])
        if kind == TextDelta.type:
            text += fields["text"]
    return text, characters


def _dropped(events: Sequence[EventRow], known: Sequence[AskedCall]) -> dict[str, str | None]:
    """Return the calls that a reply was writing, with their names."""
    calls = dict[str, str | None]()
    for kind, fields in logged(events, (ToolDelta.type, ToolRejected.type)):
        if kind == ToolRejected.type:
            calls.pop(fields.get("call", ""), None)
        else:
            calls.setdefault(fields["call"], fields.get("name"))
    return {call: name for call, name in calls.items() if all(call != one.id for one in known)}


def drafts_in(events: Sequence[EventRow]) -> dict[str, str]:
    drafts = dict[str, str]()
    for kind, fields in logged(events, (DocumentStarted.type, DocumentFinished.type)):
        drafts.pop(fields["call"], None)
        if kind == DocumentStarted.type:
            drafts[fields["call"]] = fields["document"]
    return drafts
