"""Turns of lanes whose answers are read again later: kept in the policy of their run's row, beside its options."""

from __future__ import annotations

import json
from typing import Any

from app.storage.runs import RunRow
from app.transcript.run_request import LANE
from routes.lanes.lane import LaneRequest, Turn


def keeping(policy: str, lane: str, request: LaneRequest) -> str:
    """The policy with the part of the request that its answers are made from, if it is kept."""
    if not request.store:
        return policy
    kept = {"name": lane, "model": request.model, "asks": request.asks, "echo": request.echo}
    options: dict[str, Any] = json.loads(policy)
    return json.dumps(options | {LANE: kept | {"background": request.background}})


def kept_turn(row: RunRow, lane: str, after: int = 0) -> Turn | None:
    """The turn of a run, or None if it was not started by this lane, or not kept."""
    kept = json.loads(row.policy).get(LANE)
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
