"""The count of a request's tokens: https://platform.claude.com/docs/en/api/messages-count-tokens."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from app.context.relay_prompt import relay_opening
from app.core.provider import ProviderFailed
from routes.lanes.anthropic_messages.request import read_request
from routes.lanes.body import read_lane_request
from routes.lanes.models import model_choice
from routes.lanes.sessions import LaneSessions
from routes.protocol.errors import ASCIIResponse, Refused
from routes.protocol.route import Body, Route, tagged
from routes.services import current_principal, services_of
from tools.tool import NO_TOOLS

LANE = "messages"


async def count_tokens(request: Request) -> Response:
    """The tokens of such a request.

    As a relay would send it, counted by the model's server or tokenizer if it can, else estimated. What an agent adds
    for itself is not included.
    """
    services, principal = services_of(request), current_principal(request)
    lane_request = (await read_lane_request(request, read_request)).request
    labels = frozenset(await LaneSessions.of(services, principal, LANE).labels_of(lane_request))
    route = services.models.route(model_choice(lane_request.model).model, principal.name, labels)
    try:
        counter = route.counter
    except ProviderFailed as forbidden:
        raise Refused(403, forbidden.code, forbidden.message) from None
    await counter.window()  # finds out the model's abilities, on which it depends how tools are offered
    tools = services.factory.client_tools.joined(NO_TOOLS, lane_request.tools)
    messages = [*relay_opening(route.call_form, tools, lane_request.parameters), *lane_request.messages]
    native = tools if route.native_tools else NO_TOOLS
    await counter.prepare(messages, native)
    tokens = sum(map(counter.measure, messages)) + counter.described(native)
    return ASCIIResponse({"input_tokens": tokens})


ROUTES = tagged(
    "Clients of other APIs",
    Route(
        "POST /v1/messages/count_tokens",
        count_tokens,
        rights="user",
        answer={"input_tokens": "integer"},
        errors=(404,),
        body=Body(
            {"model": "text", "messages": [{"role": "text"}]},
            {"model": "dragoman/agent", "messages": [{"role": "user", "content": "Hello"}]},
        ),
        foreign_errors=True,
    ),
)
