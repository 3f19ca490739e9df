"""Approvals that a client shows: its stream ends with the question, and its next request brings the decision."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from msgspec import Struct

from app.core.events import ApprovalRequired
from app.policy.approvals import AlreadyDecided, ApprovalExpired
from app.policy.doors import Door
from app.policy.stored_grants import Review
from app.storage.approvals import ApprovalRow
from app.storage.principals import Principal
from app.storage.runs import RunRow
from routes.lanes.event_text import fields_of
from routes.lanes.lane import LaneRequest, Verdict
from routes.lanes.sessions import LaneSessions
from routes.protocol.errors import Refused
from routes.services import Services

PAGE = 512  # events of a log read at a time
LONGEST_NOTE = 2000  # characters


class Resumed(Struct, frozen=True):
    """A run that goes on, and the number of the event behind which its client has not seen it; as in a `Turn`."""

    row: RunRow
    after: int = 0
    decided: int | None = None


async def resumed_run(
    services: Services, principal: Principal, sessions: LaneSessions, request: LaneRequest, *, door: Door
) -> Resumed:
    """Decide what waits for the request's verdicts. Raises Refused, and what `RunManager.decide` raises."""
    waiting = await services.store.approvals(principal.name)
    pending = {row.call: row for row in waiting if request.previous in (None, row.run)}  # of the run that it names
    decided = list[ApprovalRow]()
    for verdict in request.verdicts:
        if row := pending.get(verdict.call):
            await services.runs.run(row.run, principal)  # raises NotFound where it is not for this member to decide
            await _decide(services, principal, row, verdict, door)
            decided.append(row)
        else:  # a call of the conversation's run may have been decided meanwhile
            run = await sessions.named_run(request)
            if run and (row := await services.store.approval(run.id, verdict.call)):
                decided.append(row)
    if not decided:
        calls = ", ".join(verdict.call[:40] for verdict in request.verdicts[:5])
        raise Refused(400, "no_approval", f"No call waits for a decision under {calls!a}. Send a message instead.")
    resumed = await services.runs.run(decided[-1].run, principal)
    if request.received and not any(verdict.call in pending for verdict in request.verdicts):
        return Resumed(resumed, decided=await last_decided(services, principal, resumed))
    return Resumed(resumed, await _question_position(services, resumed.id, [row.call for row in decided]))


async def last_decided(services: Services, principal: Principal, run: RunRow) -> int:
    """Return the sequence number of the last question of a run that is in front of those that wait."""
    asked = await _questions(services, run.id)
    waiting = {row.call for row in await services.store.approvals(principal.name) if row.run == run.id}
    return next((seq - 1 for seq, call in asked if call in waiting), asked[-1][0] if asked else 0)


async def _decide(services: Services, principal: Principal, row: ApprovalRow, verdict: Verdict, door: Door) -> None:
    note = verdict.note[:LONGEST_NOTE] if verdict.note else None
    decision: Literal["approve", "deny"] = "approve" if verdict.approved else "deny"
    try:
        await services.runs.decide(
            row.run, row.call, principal, Review(decision, arguments=verdict.arguments, note=note, door=door)
        )
    except (AlreadyDecided, ApprovalExpired):
        return  # by another door, in this moment: that outcome stands, and the client sees it in the stream


async def _question_position(services: Services, run: str, calls: Sequence[str]) -> int:
    """Return the sequence number of the last approval request for one of these calls."""
    return max((seq for seq, call in await _questions(services, run) if call in calls), default=0)


async def _questions(services: Services, run: str) -> list[tuple[int, str]]:
    """Return the sequence numbers of a run's questions, with their calls."""
    found, after = list[tuple[int, str]](), 0
    while rows := await services.store.events(run, after, PAGE):
        found += [(row.seq, fields_of(row)["call"]) for row in rows if row.type == ApprovalRequired.type]
        after = rows[-1].seq
    return found
