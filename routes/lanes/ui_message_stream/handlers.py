"""The run of a chat once more, for a page that was loaded again, or lost its connection, while it was answered.

The SDK begins the message anew with the first chunk, so it gets all of it: a message that went on in a second run,
after results of the page's own tools, is joined from the logs of both.
"""

from __future__ import annotations

import json
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing

from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import Response

from app.core.events import ToolHanded
from app.core.messages import Message
from app.storage.principals import Principal
from app.storage.runs import ALL, EventRow, RunRow
from routes.lanes.attendance import RequestKey
from routes.lanes.catalogue import BY_NAME
from routes.lanes.event_text import fields_of
from routes.lanes.kept_turns import kept_turn
from routes.lanes.lane import LaneRequest, Turn
from routes.lanes.models import AGENT
from routes.lanes.serving import attendance_of, leaving
from routes.lanes.sessions import LaneSessions
from routes.lanes.streams import lane_frames
from routes.lanes.ui_message_stream.stream import HEADERS, EarlierEncoder, UIStreamEncoder
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
    services, principal, chat = services_of(request), current_principal(request), request.path_params["chat"]
    run = await _last_run(request, services, principal, chat)
    if run is None:
        return Response(status_code=NONE_ACTIVE)
    turn = kept_turn(run, LANE) or Turn(run.id, run.session, int(run.created), AGENT, REQUEST)
    turn = replace(turn, request=replace(turn.request, asks=True), decided=await last_decided(services, principal, run))
    before = await _runs_before(services, turn)
    if not before and turn.request.echo.get("message") not in (None, run.id):
        return Response(status_code=NONE_ACTIVE)  # the page has more of the message than the logs
    attendance = attendance_of(request)
    with services.presence.place(principal) as place:
        encoder = UIStreamEncoder(turn, joined=bool(before))
        frames = lane_frames(services.runs.watch(run.id, 0), encoder, attendance.attending(run.id))
        named = {"X-Run-Id": run.id, "X-Session-Id": run.session}
        on_leave = leaving(services, attendance, BY_NAME[LANE], run.id)
        return EventStreamResponse(place, _behind(services, turn, before, frames), named | HEADERS, on_leave)


async def _last_run(request: Request, services: Services, principal: Principal, chat: str) -> RunRow | None:
    attendance, relay = attendance_of(request), RequestKey(principal.keeper, LANE, b"").named(chat)
    run = await LaneSessions.of(services, principal, LANE).named_run(replace(REQUEST, thread=chat))
    if run and run.ended is not None and run.ended < time.time() - attendance.return_s:
        run = None
    return await attendance.join(services.runs, relay, principal) or run


async def _runs_before(services: Services, turn: Turn) -> Sequence[RunRow]:
    """Return the runs in front of this one that its message began with."""
    runs = await services.store.runs(turn.session)
    ids = [run.id for run in runs]
    first = turn.request.echo.get("message")
    return runs[ids.index(first) : ids.index(turn.run)] if first in ids else ()


async def _behind(
    services: Services, turn: Turn, runs: Sequence[RunRow], frames: AsyncGenerator[bytes, None]
) -> AsyncGenerator[bytes, None]:
    """The frames of a run, behind those of the runs that its message began with."""
    async with aclosing(frames):
        if runs:
            results = {one.call: one for one in await services.store.messages(turn.session) if one.role == "tool"}
        for at, run in enumerate(runs):
            encoder = EarlierEncoder(replace(turn, run=run.id, decided=ALL), joined=at > 0)
            rows = await services.store.events(run.id, 0, ALL)
            yield "".join([encoder.frames(row) + _result(row, results) for row in rows]).encode()
        async for piece in frames:
            yield piece


def _result(row: EventRow, results: Mapping[str | None, Message]) -> str:
    """Return the chunk with the page's own result of a call that was handed over to it."""
    call = fields_of(row)["call"] if row.type == ToolHanded.type else None
    if call not in results:
        return ""
    text = results[call].text
    try:
        output = json.loads(text)
    except (ValueError, RecursionError):
        output = text
    chunk = {"type": "tool-output-available", "toolCallId": call, "output": output, "providerExecuted": True}
    return f"data: {json.dumps(chunk)}\n\n"


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
