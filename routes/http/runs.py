"""Runs: their state, their events again, and a way to stop them."""

from __future__ import annotations

import json
from typing import Any

from msgspec.structs import asdict
from starlette.requests import Request
from starlette.responses import Response

from app.budget.usage_report import sums
from app.profiles.pinned import NOTHING
from app.runs.run_options import pinned_in
from app.storage.runs import RunRow
from routes.protocol.errors import ASCIIResponse
from routes.protocol.message_parts import MessageRequest, file_limits
from routes.protocol.requests import read_message
from routes.protocol.route import RESUMES, Body, Query, Route, tagged
from routes.protocol.sse import cursor, event_stream
from routes.services import current_principal, services_of


def run_fields(row: RunRow) -> dict[str, Any]:
    """A run as JSON: its owner is the asker, so the name is left out."""
    return {name: value for name, value in asdict(row).items() if name not in ("principal", "policy")}


async def run_state(request: Request) -> Response:
    """State and usage of a run.

    With `profiles` and the `options` that these or the session have set, with their values and layers.
    """
    services = services_of(request)
    row = await services.runs.run(request.path_params["run"], current_principal(request))
    spent = [one for one in await services.store.spent_by_runs(row.session) if one.run == row.id]
    return ASCIIResponse(run_fields(row) | {"usage": sums(spent)} | profile_fields(row))


def profile_fields(row: RunRow) -> dict[str, Any]:
    """The profiles of a run, and the options that they or the session have set, as they were when it began."""
    policy = json.loads(row.policy)
    pinned = pinned_in(policy) or NOTHING
    options = [{"option": name, "value": policy.get(name), "from": one} for name, one in pinned.sources.items()]
    return {"profiles": [one.shown for one in pinned.profiles], "options": options}


async def run_events(request: Request) -> Response:
    """The events of a run after a cursor, then those still to come.

    204 if nothing is left. See [resuming](#disconnecting-and-resuming).
    """
    services = services_of(request)
    row = await services.runs.run(request.path_params["run"], current_principal(request))
    after = cursor(request)
    if row.ended is not None and after >= await services.store.last_seq(row.id):
        return Response(status_code=204)  # a browser's EventSource would come back for ever
    with services.presence.place(current_principal(request)) as place:
        return event_stream(place, services.runs, row, after)


async def cancel_run(request: Request) -> Response:
    """Cancel a run with all of its processes.

    Answers when the model request is closed and the tool's whole process tree is gone. Harmless on a run that has
    ended.
    """
    services = services_of(request)
    row = await services.runs.run(request.path_params["run"], current_principal(request))
    await services.runs.cancel(row.id)
    row = await services.runs.run(row.id, current_principal(request))
    return ASCIIResponse(run_fields(row))


async def steer_run(request: Request) -> Response:
    """Add a message to a running run.

    It is read after the current round: 202 once it is stored, 409 if the run has ended, is a relay or
    makes one call, 429 if 64 messages are waiting.
    """
    services = services_of(request)
    row = await services.runs.run(request.path_params["run"], current_principal(request))
    settings = services.settings
    body = await read_message(request, MessageRequest, settings.max_message_bytes, file_limits(settings))
    await services.runs.steer(row.id, body.text, body.files)
    return ASCIIResponse({"run": row.id, "accepted": True}, 202)


ROUTES = tagged(
    "Runs",
    Route("GET /runs/{run}", run_state, rights="owner", answer="@Run"),
    Route(
        "GET /runs/{run}/events",
        run_events,
        rights="owner",
        statuses=(200, 204),
        query=(Query("after", "the `id:` of the last event that was received; the header Last-Event-ID comes first"),),
        headers=RESUMES,
        stream="run",
    ),
    Route("POST /runs/{run}/cancel", cancel_run, rights="owner", answer="@Run"),
    Route(
        "POST /runs/{run}/messages",
        steer_run,
        rights="owner",
        answer={"run": "text", "accepted": "boolean"},
        statuses=(202,),
        errors=(409,),
        body=Body(MessageRequest, {"message": "Also say how long it took."}),
    ),
)
