"""GET /v1/models, in OpenAI's form, and in Anthropic's for its clients: first models that are relayed, then agents."""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response

from app.models.endpoints.model_names import Endpoints, find_model, unknown_model_message
from routes.lanes.error_shapes import ANTHROPIC_VERSION
from routes.lanes.models import AGENT, AGENTS
from routes.protocol.errors import ASCIIResponse, Refused
from routes.protocol.route import Route, tagged
from routes.services import services_of

OWNER = "dragoman"
CREATED = int(time.time())  # no server says since when it has a model, but clients require a time


class ListedModel(Struct, frozen=True):
    """`owner` is the endpoint that serves the model."""

    id: str
    owner: str = OWNER

    def openai(self) -> dict[str, Any]:
        return {"id": self.id, "object": "model", "created": CREATED, "owned_by": self.owner}

    def anthropic(self) -> dict[str, Any]:
        at = datetime.fromtimestamp(CREATED, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        return {"type": "model", "id": self.id, "display_name": self.id, "created_at": at}


def listed_models(aliases: Mapping[str, str], endpoints: Endpoints) -> list[ListedModel]:
    """Aliases, models by their own names and by their endpoints', and the agent with each."""
    owners = dict.fromkeys(aliases, OWNER)
    for endpoint in endpoints.values():
        for model in endpoint.models() or (endpoint.name,):
            owners.setdefault(model, endpoint.name)
    short = list(owners)
    for endpoint in endpoints.values():
        owners |= {f"{endpoint.name}/{model}": endpoint.name for model in endpoint.models()}
    relayed = [ListedModel(name, owner) for name, owner in owners.items()]
    return [*relayed, ListedModel(AGENT), *(ListedModel(f"{AGENTS}{name}") for name in short)]


def found_model(name: str, aliases: Mapping[str, str], endpoints: Endpoints) -> ListedModel:
    """The model of that name, listed or not. Raises Refused."""
    found = find_model(name.removeprefix(AGENTS), aliases, endpoints)
    if name == AGENT or (found and name.startswith(AGENTS)):
        return ListedModel(name)
    if not found:
        message = unknown_model_message(name.removeprefix(AGENTS), aliases, endpoints)
        raise Refused(404, "unknown_model", f"model: {message}")
    return ListedModel(name, OWNER if name in aliases else found[0].name)


async def list_models(request: Request) -> Response:
    """The names that `model` may have.

    In OpenAI's form, or in Anthropic's with the header `anthropic-version`: aliases, models, `endpoint/model`, then
    `dragoman/agent` and `dragoman/MODEL`.
    """
    models = services_of(request).models
    listed = listed_models(models.aliases, models.endpoints)
    if ANTHROPIC_VERSION not in request.headers:
        return ASCIIResponse({"object": "list", "data": [one.openai() for one in listed]})
    ends = {"first_id": listed[0].id, "last_id": listed[-1].id}  # there is the agent at least
    return ASCIIResponse({"data": [one.anthropic() for one in listed], "has_more": False} | ends)


async def show_model(request: Request) -> Response:
    """One of them."""
    models = services_of(request).models
    found = found_model(request.path_params["model"], models.aliases, models.endpoints)
    return ASCIIResponse(found.anthropic() if ANTHROPIC_VERSION in request.headers else found.openai())


ROUTES = tagged(
    "Clients of other APIs",
    Route("GET /v1/models", list_models, rights="user", answer={"data": ["object"]}, foreign_errors=True),
    Route("GET /v1/models/{model:path}", show_model, rights="user", answer={"id": "text"}, foreign_errors=True),
)
