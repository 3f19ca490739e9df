"""The run of a chat once more, for a page that was loaded again, or lost its connection, while it was answered.

The SDK begins the message anew with it: one that went on in a second run, after results of the page's own tools, is
joined from the logs of both.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from contextlib import aclosing

from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import Response

from app.core.events import TERMINAL, ApprovalRequired, ToolFinished, ToolHanded, ToolStarted
from app.storage.runs import ALL
from routes.lanes.attendance import RequestKey
from routes.lanes.catalogue import BY_NAME
from routes.lanes.event_text import fields_of
from routes.lanes.kept_turns import kept_turn
from routes.lanes.lane import LaneRequest, Turn
from routes.lanes.models import AGENT
from routes.lanes.serving import attendance_of, leaving
from routes.lanes.sessions import LaneSessions
from routes.lanes.streams import Pages, lane_frames
from routes.lanes.ui_message_stream.stream import HEADERS, UIStreamEncoder
from routes.lanes.verdicts import last_decided
from routes.protocol.route import Route, tagged
from routes.protocol.sse import EventStreamResponse
from routes.services import Services, current_principal, services_of

LANE = "ui_message_stream"
NONE_ACTIVE = 204  # as the SDK expects it
REQUEST = LaneRequest(model=None, messages=[])


async def resume_chat(request: Request) -> Response:
    """The chat's run that is under way, or has ended within the last five minutes.

    From its beginning, up to a question that waits; 204 if there is none (`useChat` with `resume`).
    """
    services, principal, attendance = services_of(request), current_principal(request), attendance_of(request)
    named = replace(REQUEST, thread=request.path_params["chat"])
    found = await LaneSessions.of(services, principal, LANE).named_run(named)
    if found and found.ended is not None and found.ended < time.time() - attendance.return_s:
        found = None
    relay = RequestKey(principal.keeper, LANE, b"").named(named.thread or "")
    run = await attendance.join(services.runs, relay, principal) or found
    if run is None:
        return Response(status_code=NONE_ACTIVE)
    turn = kept_turn(run, LANE) or Turn(run.id, run.session, int(run.created), AGENT, REQUEST)
    turn = replace(turn, request=replace(turn.request, asks=True), decided=await last_decided(services, principal, run))
    first, before = turn.request.echo.get("message") or run.id, list[str]()
    if first != run.id:
        runs = [one.id for one in await services.store.runs(run.session)]
        if first not in runs:
            return Response(status_code=NONE_ACTIVE)  # the page has more of the message than the logs
        before = runs[runs.index(first) : runs.index(run.id)]
    with services.presence.place(principal) as place:
        pages, attended, lane = _joined(services, turn, before), attendance.attending(run.id), BY_NAME[LANE]
        frames = lane_frames(pages, UIStreamEncoder(turn), attended, lane.parting)
        on_leave = leaving(services, attendance, lane, run.id)
        return EventStreamResponse(place, frames, {"X-Run-Id": run.id, "X-Session-Id": run.session} | HEADERS, on_leave)


async def _joined(services: Services, turn: Turn, before: Sequence[str]) -> Pages:
    """The events of a run, behind those of the runs that its message began with, whose calls have their results."""
    results = {one.call: one.text for one in (await services.store.messages(turn.session) if before else ())}
    for row in [row for run in before for row in await services.store.events(run, 0, ALL)]:
        fields = fields_of(row)
        if row.type == ToolHanded.type and fields["call"] in results:  # lest the page makes it once more
            data = json.dumps(fields | {"ok": True, "text": results[fields["call"]]})
            yield [replace(row, type=kind, data=data) for kind in (ToolStarted.type, ToolFinished.type)]
        elif row.type not in TERMINAL | {ApprovalRequired.type}:
            yield [row]
    async with aclosing(services.runs.watch(turn.run, 0)) as pages:
        async for rows in pages:
            yield rows


ROUTES = tagged(
    "Clients of other APIs",
    Route(
        "GET /ui-message-stream/{chat:path}/stream",
        resume_chat,
        rights="user",
        statuses=(200, NONE_ACTIVE),
        stream="lane",
        foreign_errors=True,
    ),
)
