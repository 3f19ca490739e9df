"""/served-models: model files of the server's machine, for admins.

Files are added from the folders of the setting `model_folders` only: an admin's token must not tell which other files
there are. What serves them is imported with the first request.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from msgspec import to_builtins
from pydantic import Field, model_validator
from starlette.requests import Request
from starlette.responses import Response

from app.core.strict_model import StrictModel
from routes.http.administration.endpoints import check_not_needed
from routes.protocol.errors import ASCIIResponse
from routes.protocol.requests import read_fields
from routes.protocol.route import Body, Route, tagged
from routes.services import current_principal, services_of

if TYPE_CHECKING:
    from app.models.endpoints.served_models import ServedModels


class AddRequest(StrictModel):
    """The body of POST /served-models: a file, or the source of a download."""

    file: str | None = Field(default=None, min_length=1, max_length=4096)
    source: str | None = Field(default=None, min_length=1, max_length=4096)
    name: str | None = Field(default=None, min_length=1, max_length=64)
    context: int | None = Field(default=None, ge=512, le=1 << 22)
    slots: int = Field(default=1, ge=1, le=64)
    cache_type: Literal["f16", "q8_0", "q4_0"] = "f16"
    threads: int = Field(default=0, ge=0, le=512)
    at_start: bool = False
    force: bool = False
    serve: bool = False

    @model_validator(mode="after")
    def _one_of_them(self) -> AddRequest:
        if (self.file is None) == (self.source is None):
            raise ValueError("give either file or source")
        return self


class ServeRequest(StrictModel):
    """The body of POST /served-models/{name}/serve, which may be left out."""

    at_start: bool | None = None
    force: bool = False


async def list_served(request: Request) -> Response:
    """Model files of this machine.

    [Those](serving-models.md) that were added, their state, memory, the files that could be added, the
    [downloads](serving-models.md#getting-a-model) and some models to begin with.
    """
    from app.models.serving.hub import SUGGESTIONS

    more = {"downloads": services_of(request).downloads.rows(), "suggestions": to_builtins(SUGGESTIONS)}
    return ASCIIResponse(await models_of(request).overview() | more)


async def show_served(request: Request) -> Response:
    """A model file. With the end of its log; while it is being downloaded, how far that is."""
    name = request.path_params["name"]
    return ASCIIResponse(services_of(request).downloads.find(name) or await models_of(request).details(name))


async def add_served(request: Request) -> Response:
    """Add a model file.

    From a folder of `model_folders`: `file`, `name`, `context`, `slots`, `cache_type`, `threads`, `at_start`, `force`,
    `serve`. Adding it again changes the values. With `source` in place of `file` (`hf:OWNER/REPO[:QUANT]` or the https
    URL of a GGUF file) it is [downloaded](serving-models.md#getting-a-model) first, in the background.
    """
    models = models_of(request)
    services, by = services_of(request), current_principal(request).name
    body = await read_fields(request, AddRequest)
    from app.models.endpoints.served_models import wanted_of
    from app.models.serving.catalogue import check_folder

    fields = body.model_dump(include={"name", "context", "slots", "cache_type", "threads", "at_start"})
    wanted = wanted_of(fields | {"forced": body.force})
    if body.source is not None:
        begun = await services.downloads.start(body.source, wanted, by, serve=body.serve)
        services.runs.notifier.wake(by)
        return ASCIIResponse(begun, 202)
    file = check_folder(body.file or "", services.settings.model_folders)
    row = await models.add(file, wanted, by)
    if body.serve:
        row = await models.serve(row.name, by)
    return ASCIIResponse(await models.details(row.name), 201)


async def serve_model(request: Request) -> Response:
    """Make an endpoint of a model file. It is started in the background."""
    models, name = models_of(request), request.path_params["name"]
    body = await read_fields(request, ServeRequest, empty=True)
    services_of(request).switch.check()
    await models.serve(name, current_principal(request).name, at_start=body.at_start, forced=body.force)
    return ASCIIResponse(await models.details(name))


async def stop_model(request: Request) -> Response:
    """Stop serving it. The endpoint is removed; the process ends once no run uses it."""
    models, name = models_of(request), request.path_params["name"]
    check_not_needed(services_of(request), name)
    await models.stop(name, current_principal(request).name)
    return ASCIIResponse(await models.details(name))


async def delete_served(request: Request) -> Response:
    """Forget a model file, or cancel its download. The file itself stays, unless it was downloaded."""
    models, name = models_of(request), request.path_params["name"]
    if services_of(request).downloads.find(name):
        await services_of(request).downloads.cancel(name, current_principal(request).name)
        services_of(request).runs.notifier.wake(current_principal(request).name)
        return Response(status_code=204)
    check_not_needed(services_of(request), name)
    await models.remove(name, current_principal(request).name)
    return Response(status_code=204)


def models_of(request: Request) -> ServedModels:
    """Return the models of the server."""
    services = services_of(request)
    from app.models.endpoints.served_models import ServedModels

    return ServedModels(services.store, services.settings, services.endpoints)


ROUTES = tagged(
    "Models",
    Route("GET /served-models", list_served, rights="admin", answer="@ServedModels"),
    Route(
        "POST /served-models",
        add_served,
        rights="admin",
        answer="object",
        statuses=(200, 201, 202),
        errors=(409,),
        body=Body(AddRequest, {"file": "small.gguf"}),
    ),
    Route("GET /served-models/{name}", show_served, rights="admin", answer="object"),
    Route(
        "POST /served-models/{name}/serve",
        serve_model,
        rights="admin",
        answer="object",
        statuses=(200, 202),
        errors=(409,),
        body=Body(ServeRequest, {"at_start": True}, required=False),
    ),
    Route("POST /served-models/{name}/stop", stop_model, rights="admin", answer="object", errors=(409,)),
    Route("DELETE /served-models/{name}", delete_served, rights="admin", errors=(409,)),
)
