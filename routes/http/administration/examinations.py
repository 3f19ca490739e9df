"""Examinations of the models of endpoints, as `dragoman doctor model` makes them."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from contextlib import aclosing

import msgspec
from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response

from app.core.profile_spec import LONGEST_MODEL
from app.core.provider import Provider
from app.core.strict_model import StrictModel
from app.diagnosis.examination import CannotExamine, Progress, examine
from app.diagnosis.report import Report, markdown
from app.models.endpoints.registry import UnknownEndpoint
from routes.protocol.errors import Refused
from routes.protocol.requests import read_fields
from routes.protocol.route import Body, Route, tagged
from routes.protocol.sse import RETRY, EventStreamResponse, Last
from routes.services import Services, current_principal, services_of
from tools.base.pause_check import Paused

BUSY = "A model of {} is being examined: wait until that has ended."


class ExaminationRequest(StrictModel):
    """The body of POST /endpoints/{endpoint}/examination, which may be left out."""

    model: str | None = Field(default=None, min_length=1, max_length=LONGEST_MODEL)
    quick: bool = False


async def examine_endpoint(request: Request) -> Response:
    """Examine a model of an endpoint by short prompts, as `dragoman doctor model` does.

    Streams `progress` events, then a `report` or why there is `none`. It ends when the client leaves. See
    [doctor](doctor.md).
    """
    services, name = services_of(request), request.path_params["endpoint"]
    body = await read_fields(request, ExaminationRequest, empty=True)
    services.switch.check()
    endpoint = services.endpoints.get(name)
    if endpoint is None:
        raise UnknownEndpoint(name)
    if body.model and not endpoint.takes(body.model):
        raise Refused(422, "unknown_model", f"{name} has no model {body.model[:80]!a}: GET /endpoints lists them.")
    if name in services.examined:
        raise Refused(409, "examination_busy", BUSY.format(name))
    frames = _frames(services, name, endpoint.handle(body.model).provider, quick=body.quick)
    with services.presence.place(current_principal(request)) as place:
        return EventStreamResponse(place, frames)


async def _frames(services: Services, name: str, provider: Provider, *, quick: bool) -> AsyncGenerator[bytes, None]:
    if name in services.examined:  # since the request was let in
        yield Last(_event(services, CannotExamine(BUSY.format(name))))
        return
    services.examined.add(name)
    try:
        yield RETRY + b"\n"
        async with aclosing(examine(provider, quick=quick)) as steps:
            async for step in steps:
                services.switch.check()
                yield _event(services, step)
    except (CannotExamine, Paused) as reason:
        yield Last(_event(services, reason))
    finally:
        services.examined.discard(name)


def _event(services: Services, step: Progress | Report | CannotExamine | Paused) -> bytes:
    match step:
        case Progress():
            kind, fields = "progress", msgspec.to_builtins(step)
        case Report():
            kind, fields = "report", {"report": msgspec.to_builtins(step), "markdown": markdown(step)}
        case _:
            kind, fields = "none", {"message": str(step)}
    data = json.dumps(services.redactor.redact_value({"type": kind, **fields}))
    return f"event: {kind}\ndata: {data}\n\n".encode()


ROUTES = tagged(
    "Models",
    Route(
        "POST /endpoints/{endpoint}/examination",
        examine_endpoint,
        rights="admin",
        stream="examination",
        errors=(409,),
        body=Body(ExaminationRequest, {"quick": True}, required=False),
    ),
)
