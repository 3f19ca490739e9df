"""Turns of lanes whose answers are read again later: kept in the policy of their run's row, beside its options."""

from __future__ import annotations

import json
from typing import Any

from app.runs.recording.parts import LANE as RECORDED
from app.storage.runs import RunRow
from app.transcript.run_request import LANE, mark_of
from routes.lanes.lane import LaneRequest, Turn


def keeping(policy: str, lane: str, request: LaneRequest) -> str:
    """The policy with the part of the request that its answers are made from, if these can be read again."""
    if not (request.store or request.echo.get("message")):
        return policy
    kept = {"name": lane, "model": request.model, "asks": request.asks, "echo": request.echo}
    return _with(policy, {LANE: kept | {"background": request.background}})


def recorded(policy: str, lane: str, request: LaneRequest) -> str:
    """The policy of a run that is recorded, with the part of the request that its frames are made from."""
    part = {"name": lane, "model": request.model, "asks": request.asks, "echo": request.echo}
    return _with(policy, {RECORDED: part})


def _with(policy: str, more: dict[str, Any]) -> str:
    """The policy with a further field. It is not read for that: it may hold a megabyte of a client's tools."""
    return json.dumps(more) if policy == "{}" else f"{policy[:-1]}, {json.dumps(more)[1:]}"


def recorded_turn(part: dict[str, Any], run: str, session: str, created: float) -> Turn:
    """The turn of a recorded run, of that part of its policy."""
    request = LaneRequest(model=part["model"], messages=[], asks=part["asks"], echo=part["echo"])
    return Turn(run=run, session=session, created=int(created), model=part["model"] or "", request=request)


def kept_turn(row: RunRow, lane: str, after: int = 0) -> Turn | None:
    """The turn of a run, or None if it was not started by this lane, or not kept."""
    kept = mark_of(row, LANE)
    if kept is None or kept["name"] != lane:
        return None
    request = LaneRequest(
        model=kept["model"],
        messages=[],
        asks=kept["asks"],
        store=True,
        background=kept["background"],
        echo=kept["echo"],
    )
    return Turn(
        run=row.id,
        session=row.session,
        created=int(row.created),
        model=kept["model"] or "",
        request=request,
        after=after,
    )
