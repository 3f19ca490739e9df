"""The run of a chat once more, for a page that was loaded again while it was answered."""

from __future__ import annotations

from functools import partial

from starlette.requests import Request
from starlette.responses import Response

from routes.lanes.lane import LaneRequest, Turn
from routes.lanes.models import AGENT
from routes.lanes.serving import attendance_of
from routes.lanes.sessions import LaneSessions
from routes.lanes.streams import lane_frames
from routes.lanes.ui_message_stream.stream import HEADERS, UIStreamEncoder
from routes.protocol.route import Route, tagged
from routes.protocol.sse import EventStreamResponse
from routes.services import current_principal, services_of

LANE = "ui_message_stream"
NONE_ACTIVE = 204  # as the SDK expects it


async def resume_chat(request: Request) -> Response:
    """The chat's run that is under way.

    From its beginning; 204 if there is none (`useChat` with `resume`). One that waits for a decision goes on with the
    decision.
    """
    services, principal = services_of(request), current_principal(request)
    lane_request = LaneRequest(model=None, messages=[], stream=True, thread=request.path_params["chat"])
    run = await LaneSessions.of(services, principal, LANE).named_run(lane_request)
    if run is None or not await services.runs.is_active(run.id) or services.runs.approvals.is_waiting(run.id):
        return Response(status_code=NONE_ACTIVE)
    attendance = attendance_of(request)
    encoder = UIStreamEncoder(Turn(run.id, run.session, int(run.created), AGENT, lane_request))
    with services.presence.place(principal) as place:
        frames = lane_frames(services.runs.watch(run.id, 0), encoder, attendance.attending(run.id))
        leave = partial(attendance.leave, services.runs, run.id)
        named = {"X-Run-Id": run.id, "X-Session-Id": run.session}
        return EventStreamResponse(place, frames, named | HEADERS, leave)


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
