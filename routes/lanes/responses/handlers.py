"""Responses again: GET, cancel, DELETE and the items of their input."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from routes.deletion import delete_conversation
from routes.lanes.catalogue import BY_NAME
from routes.lanes.responses.encoder import ResponseEncoder
from routes.lanes.responses.ids import response_id, stem_of
from routes.lanes.responses.input_items import listed
from routes.lanes.responses.kept import KeptResponse, KeptResponses
from routes.lanes.responses.response import NAME
from routes.lanes.serving import attendance_of, leaving
from routes.lanes.streams import lane_frames
from routes.protocol.errors import ASCIIResponse, Refused
from routes.protocol.numbers import query_number
from routes.protocol.route import Query, Route, tagged
from routes.protocol.sse import EventStreamResponse
from routes.services import current_principal, services_of

MOST_LISTED, LISTED = 100, 20


async def show_response(request: Request) -> Response:
    """A response as far as it has come."""
    kept, response = await _found(request)
    if request.query_params.get("stream", "false").lower() != "true":
        return ASCIIResponse(await kept.whole(response))
    services, attendance, run = services_of(request), attendance_of(request), response.row.id
    cursor = query_number(request, "starting_after", -1)
    with services.presence.place(current_principal(request)) as place:
        pages = services.runs.watch(run, 0)
        frames = lane_frames(pages, ResponseEncoder(response.turn, cursor), attendance.attending(run))
        lane_request = response.turn.request
        stays = lane_request.background or lane_request.asks
        on_leave = None if stays else leaving(services, attendance, BY_NAME[NAME], run)
        return EventStreamResponse(place, frames, on_leave=on_leave)


async def cancel_response(request: Request) -> Response:
    """Stop the run of a response. Answers with it when the run has stopped; harmless on a response that has ended."""
    kept, response = await _found(request)
    await services_of(request).runs.cancel(response.row.id)
    return ASCIIResponse(await kept.whole(response))


async def delete_response(request: Request) -> Response:
    """Delete a response. The log of its run goes, with the session if that has no other run."""
    _, response = await _found(request)
    services, row = services_of(request), response.row
    await services.runs.cancel(row.id)
    if len(await services.store.runs(row.session)) > 1:
        await services.store.replace_events(row.id, [])
    else:
        await delete_conversation(services, current_principal(request), row.session)
    deleted = response_id(row.id, response.turn.after)
    return ASCIIResponse({"id": deleted, "object": "response", "deleted": True})


async def list_input_items(request: Request) -> Response:
    """The items of its input."""
    _, response = await _found(request)
    turn, query = response.turn, request.query_params
    items = listed(turn.request.echo.get("input", ()), stem_of(turn.run, turn.after))
    if query.get("order", "desc") != "asc":
        items.reverse()
    if after := query.get("after"):
        ids = [item["id"] for item in items]
        if after not in ids:
            problem = f"after is {after[:80]!a}, which is no item of this response's input; send the id of one"
            raise Refused(400, "invalid_query", problem, param="after")
        items = items[ids.index(after) + 1 :]
    limit = query_number(request, "limit", LISTED, least=1, most=MOST_LISTED)
    shown = items[:limit]
    ends = {"first_id": shown[0]["id"], "last_id": shown[-1]["id"]} if shown else {"first_id": None, "last_id": None}
    return ASCIIResponse({"object": "list", "data": shown, **ends, "has_more": len(items) > limit})


async def _found(request: Request) -> tuple[KeptResponses, KeptResponse]:
    """Raises Refused."""
    kept = KeptResponses(services_of(request), current_principal(request))
    return kept, await kept.find(request.path_params["response"])


ROUTES = tagged(
    "Clients of other APIs",
    Route(
        "GET /v1/responses/{response}",
        show_response,
        rights="owner",
        answer={"id": "text", "output": ["object"]},
        query=(
            Query("stream", "true streams its events", "boolean"),
            Query("starting_after", "those behind this `sequence_number`", "integer"),
        ),
        stream="lane",
        foreign_errors=True,
    ),
    Route("DELETE /v1/responses/{response}", delete_response, rights="owner", answer="object", foreign_errors=True),
    Route(
        "POST /v1/responses/{response}/cancel", cancel_response, rights="owner", answer="object", foreign_errors=True
    ),
    Route(
        "GET /v1/responses/{response}/input_items",
        list_input_items,
        rights="owner",
        answer={"data": ["object"]},
        query=(
            Query("order", "asc or desc, which is the default"),
            Query("limit", "20 by default, 100 at most", "integer"),
            Query("after", "the id of the last item of the page before"),
        ),
        foreign_errors=True,
    ),
)
