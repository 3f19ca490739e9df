"""Runs: their state, their events again, and a way to stop them."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from app.store import RunRow
from routes.errors import ASCIIResponse
from routes.requests import cursor
from routes.services import asker, services_of
from routes.sse import event_stream


def run_fields(row: RunRow) -> dict[str, Any]:
    """A run as JSON: its owner is the asker, so the name is left out."""
    return {name: value for name, value in asdict(row).items() if name != "principal"}


async def run_state(request: Request) -> Response:
    row = await services_of(request).runs.run(request.path_params["run"], asker(request))
    return ASCIIResponse(run_fields(row))


async def run_events(request: Request) -> Response:
    """The events behind `Last-Event-ID` (or `?after=`), and those still to come."""
    services = services_of(request)
    row = await services.runs.run(request.path_params["run"], asker(request))
    return event_stream(services.runs, row, cursor(request))


async def cancel_run(request: Request) -> Response:
    """Answers when the model request is closed and the tool's processes are gone; harmless on a run that has ended."""
    services = services_of(request)
    row = await services.runs.run(request.path_params["run"], asker(request))
    await services.runs.cancel(row.id)
    row = await services.runs.run(row.id, asker(request))
    return ASCIIResponse(run_fields(row))
