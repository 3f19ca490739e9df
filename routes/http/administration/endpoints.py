"""/endpoints: which models there are, where, and what is known of them; and what admins do about it."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec.structs import asdict
from pydantic import Field, field_validator
from starlette.requests import Request
from starlette.responses import Response

from app.core.endpoint_spec import MOST_KEYS, EndpointSpec
from app.models.endpoints.connection_test import check_connection
from app.models.endpoints.endpoint import Endpoint
from app.models.endpoints.key_sources import Keys
from app.models.endpoints.model_handle import ModelHandle
from app.models.endpoints.model_registry import Models
from app.models.endpoints.registry import check_endpoint
from app.models.http.failures import redact_url
from app.models.providers import provider_kind
from app.storage.principals import Principal
from routes.http.session_labels import known_labels
from routes.protocol.errors import ASCIIResponse, Refused
from routes.protocol.requests import read_fields
from routes.protocol.route import Body, Route, tagged
from routes.services import Services, current_principal, services_of
from tools.base.rights import Role

OF_THE_SERVER = {"key_env", "key_file"}
OURS = {"name", "keys", "test"}


class EndpointRequest(EndpointSpec):
    """The body of POST /endpoints. `keys` are the keys themselves; `test` only tries whether it would work."""

    name: str = Field(min_length=1, max_length=64)
    keys: list[Annotated[str, Field(max_length=8192)]] = Field(default_factory=list, max_length=MOST_KEYS)
    test: bool = False

    @field_validator(*OF_THE_SERVER)
    @classmethod
    def _kept_away(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        """Whoever has an admin's token must not learn what is in the server's environment and files."""
        if value:
            raise ValueError("is for the settings and `dragoman endpoint add` on the server; send `keys`")
        return value

    def spec(self) -> EndpointSpec:
        return EndpointSpec.model_validate(self.model_dump(exclude=OURS | OF_THE_SERVER))


async def list_endpoints(request: Request) -> Response:
    """Model endpoints.

    Their models, windows, capabilities and how each was learned; for admins also URL, keys, health, last error. Guests
    see names only. See [models](models.md).
    """
    services, principal = services_of(request), current_principal(request)
    models = services.models
    fields: dict[str, Any] = {"default": models.default.name, "aliases": dict(models.aliases)}
    if principal.role is not Role.GUEST:
        fields |= {"fallback": list(models.fallback), "utility": models.utility_model}
        fields |= {"fallbacks": {name: list(chain) for name, chain in models.fallbacks.items()}}
    if models.labels.names:
        fields["labels"] = list(models.labels.names)
    if principal.role is Role.ADMIN:
        for endpoint in models.endpoints.values():
            endpoint.refresh()
        if problems := models.labels.unmatched(models.endpoints):
            fields["label_problems"] = problems
    rows = [shown(endpoint, models, principal) for endpoint in models.endpoints.values()]
    return ASCIIResponse(fields | {"endpoints": rows})


async def add_endpoint(request: Request) -> Response:
    """Add an endpoint, or only test it.

    `keys` are the keys themselves; with `"test": true` it is only tested. One that was added so is changed. Answers at
    once; its models are listed in the background.
    """
    services, principal = services_of(request), current_principal(request)
    body = await read_fields(request, EndpointRequest, plain=True)
    known_labels(services.settings, body.labels or ())
    spec, keys = body.spec(), [key.strip() for key in body.keys]
    if body.test:
        services.switch.check()
        check_endpoint(body.name, spec, keys)
        services.redactor.add(*keys)
        trial = await check_connection(services.endpoints.factory, body.name, spec, Keys(tuple(keys)))
        return ASCIIResponse({"ok": not trial.problem, "models": trial.models, "problem": trial.problem or None})
    endpoint = await services.endpoints.add(body.name, spec, keys, principal.name)
    return ASCIIResponse(shown(endpoint, services.models, principal), 201)


async def delete_endpoint(request: Request) -> Response:
    """Remove an endpoint. Runs that are under way keep it until they end."""
    services, name = services_of(request), request.path_params["endpoint"]
    check_not_needed(services, name)
    await services.endpoints.remove(name, current_principal(request).name)
    return Response(status_code=204)


def check_not_needed(services: Services, name: str) -> None:
    """Raises Refused if the settings name a model of this endpoint."""
    if setting := services.models.needed_by(name):
        advice = f"The setting {setting} names a model of {name}: change that first, then restart the server."
        raise Refused(409, "endpoint_needed", advice)


def shown(endpoint: Endpoint, models: Models, principal: Principal) -> dict[str, Any]:
    """An endpoint's fields that the principal may see; `models` adds more about those that are in use."""
    if principal.role is Role.GUEST:
        return {"name": endpoint.name, "models": [{"name": name} for name in endpoint.models()]}
    used = {handle.provider.model: model_fields(handle, models) for handle in reversed(endpoint.handles())}
    names = dict.fromkeys((*endpoint.models(), *used))
    fields: dict[str, Any] = {
        "name": endpoint.name,
        "default": endpoint is models.endpoint,
        "kind": provider_kind(endpoint.spec.url, endpoint.spec.format).name,
        "models": [used.get(name, {"name": name}) for name in names],
    }
    if labels := models.labels.names:
        held = models.labels.withheld(labels, endpoint.name, endpoint.spec.labels)
        fields["labels"] = [label for label in labels if label not in held]
    if principal.role is not Role.ADMIN:
        return fields
    about = {"url": redact_url(endpoint.spec.url), "origin": endpoint.origin, "problem": endpoint.problem or None}
    state = {} if endpoint.usable else {"state": "unusable"}
    return fields | about | endpoint.server.status() | state


def model_fields(handle: ModelHandle, models: Models) -> dict[str, Any]:
    """The known abilities of a model, and where each is known from."""
    return {
        "name": handle.provider.model,
        "default": handle is models.default,
        "window": handle.counter.known_window,
        "abilities": [asdict(ability) for ability in handle.provider.abilities()],
    }


ROUTES = tagged(
    "Models",
    Route(
        "GET /endpoints",
        list_endpoints,
        rights="user",
        answer={"default": "text?", "aliases": "object", "endpoints": ["@Endpoint"]},
    ),
    Route(
        "POST /endpoints",
        add_endpoint,
        rights="admin",
        answer="@Endpoint",
        statuses=(200, 201),
        errors=(409,),
        body=Body(EndpointRequest, {"name": "local", "url": "http://127.0.0.1:8080/v1"}),
    ),
    Route("DELETE /endpoints/{endpoint}", delete_endpoint, rights="admin", errors=(409,)),
)
