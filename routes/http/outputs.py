"""Calls and jobs: their whole output, in pieces, while they run and afterwards; and the end of one call alone."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from app.redaction.output_chunks import OutputPart
from app.runs.call_output import CallOutput
from app.runs.discipline.run_terminals import TerminalSize
from app.runs.job_output import JobOutput
from routes.protocol.errors import ASCIIResponse, Refused
from routes.protocol.numbers import query_number
from routes.protocol.requests import InputRequest, read_fields
from routes.services import current_principal, services_of

NO_TERMINAL = "This call has ended, or has no terminal: see the setting pty."


async def call_output(request: Request) -> Response:
    """A call's output from the character `?after=` on."""
    services, after = services_of(request), query_number(request, "after", 0)
    run = await services.runs.run(request.path_params["run"], current_principal(request))
    outputs = CallOutput(services.factory.outputs, services.store, services.redactor)
    return ASCIIResponse(_fields(await outputs.part(run, request.path_params["call"], after)))


async def cancel_call(request: Request) -> Response:
    """Answers when the processes of the call are gone; the run goes on. Harmless on a call that has ended."""
    services, call = services_of(request), request.path_params["call"]
    run = await services.runs.run(request.path_params["run"], current_principal(request))
    outputs = CallOutput(services.factory.outputs, services.store, services.redactor)
    return ASCIIResponse({"run": run.id, "call": call, "stopped": await outputs.stop(run, call)})


async def type_into_call(request: Request) -> Response:
    """Text and keys for the program that runs, in a terminal of its own."""
    services, call = services_of(request), request.path_params["call"]
    run = await services.runs.run(request.path_params["run"], current_principal(request))
    body = await read_fields(request, InputRequest, plain=True)  # its output is redacted
    outputs = CallOutput(services.factory.outputs, services.store, services.redactor)
    taken = await outputs.type_in(run, call, body.data)
    if taken is None:
        raise Refused(409, "no_terminal", NO_TERMINAL)
    if taken < len(body.data):
        message = f"The program has not read its earlier input yet: {taken} bytes were accepted. Send the rest later."
        raise Refused(409, "input_full", message, taken=taken)
    return ASCIIResponse({"run": run.id, "call": call, "bytes": taken})


async def resize_call(request: Request) -> Response:
    """The size of the window in which a person sees the terminal of a command that runs."""
    services, call = services_of(request), request.path_params["call"]
    run = await services.runs.run(request.path_params["run"], current_principal(request))
    size = await read_fields(request, TerminalSize)
    outputs = CallOutput(services.factory.outputs, services.store, services.redactor)
    if not await outputs.resize(run, call, size.window):
        raise Refused(409, "no_terminal", NO_TERMINAL)
    return ASCIIResponse({"run": run.id, "call": call, "columns": size.columns, "rows": size.rows})


async def job_output(request: Request) -> Response:
    """A job's output from the byte `?after=` on."""
    services, after = services_of(request), query_number(request, "after", 0)
    outputs = JobOutput(services.jobs, services.redactor)
    return ASCIIResponse(
        _fields(await outputs.part(request.path_params["job"], current_principal(request).name, after))
    )


def _fields(part: OutputPart) -> dict[str, Any]:
    where = {"from": part.start, "next": part.next, "characters": part.characters}
    return {"text": part.text} | where | {"lines": part.lines, "done": part.done}
