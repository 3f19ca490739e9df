"""/served-models: model files of the server's machine, for admins.

Files are added from the folders of the setting `model_folders` only: an admin's token must not tell which other files
there are. What serves them is imported with the first request.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import BaseModel, ConfigDict, Field
from starlette.requests import Request
from starlette.responses import Response

from routes.protocol.errors import ASCIIResponse, Refused
from routes.protocol.requests import admins_only, read_fields
from routes.services import current_principal, services_of

if TYPE_CHECKING:
    from app.models.endpoints.served_models import ServedModels


class AddRequest(BaseModel, defer_build=True):
    """The body of POST /served-models."""

    model_config = ConfigDict(extra="forbid", strict=True)

    file: str = Field(min_length=1, max_length=4096)
    name: str | None = Field(default=None, min_length=1, max_length=64)
    context: int | None = Field(default=None, ge=512, le=1 << 22)
    slots: int = Field(default=1, ge=1, le=64)
    cache_type: Literal["f16", "q8_0", "q4_0"] = "f16"
    threads: int = Field(default=0, ge=0, le=512)
    at_start: bool = False
    force: bool = False
    serve: bool = False


class ServeRequest(BaseModel, defer_build=True):
    """The body of POST /served-models/{name}/serve, which may be left out."""

    model_config = ConfigDict(extra="forbid", strict=True)

    at_start: bool | None = None
    force: bool = False


async def list_served(request: Request) -> Response:
    return ASCIIResponse(await models_of(request).overview())


async def show_served(request: Request) -> Response:
    return ASCIIResponse(await models_of(request).details(request.path_params["name"]))


async def add_served(request: Request) -> Response:
    """Add a file, or add it again with other values."""
    models = models_of(request)
    services, by = services_of(request), current_principal(request).name
    body = await read_fields(request, AddRequest)
    from app.models.endpoints.served_models import wanted_of
    from app.models.serving.catalogue import check_folder

    file = check_folder(body.file, services.settings.model_folders)
    fields = body.model_dump(include={"name", "context", "slots", "cache_type", "threads", "at_start"})
    row = await models.add(file, wanted_of(fields | {"forced": body.force}), by)
    if body.serve:
        row = await models.serve(row.name, by)
    return ASCIIResponse(await models.details(row.name), 201)


async def serve_model(request: Request) -> Response:
    """Make an endpoint of a model, and start it in the background."""
    models, name = models_of(request), request.path_params["name"]
    body = await read_fields(request, ServeRequest, empty=True)
    services_of(request).switch.check()
    await models.serve(name, current_principal(request).name, at_start=body.at_start, forced=body.force)
    return ASCIIResponse(await models.details(name))


async def stop_model(request: Request) -> Response:
    """Remove the endpoint of a model; its process ends once no run uses it."""
    models, name = models_of(request), request.path_params["name"]
    check_not_needed(request, name)
    await models.stop(name, current_principal(request).name)
    return ASCIIResponse(await models.details(name))


async def delete_served(request: Request) -> Response:
    """Forget a model; its file stays."""
    models, name = models_of(request), request.path_params["name"]
    check_not_needed(request, name)
    await models.remove(name, current_principal(request).name)
    return Response(status_code=204)


def models_of(request: Request) -> ServedModels:
    """Return the models of the server, for admins. Raises Refused."""
    services = services_of(request)
    admins_only(current_principal(request))
    from app.models.endpoints.served_models import ServedModels

    return ServedModels(services.store, services.settings, services.endpoints)


def check_not_needed(request: Request, name: str) -> None:
    if setting := services_of(request).models.needed_by(name):
        advice = f"The setting {setting} names a model of {name}: change that first, then restart the server."
        raise Refused(409, "endpoint_needed", advice)
