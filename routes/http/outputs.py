"""Calls and jobs: their whole output, in pieces, while they run and afterwards; and the end of one call alone."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from app.redaction.output_chunks import OutputPart
from app.runs.call_output import CallOutput
from app.runs.discipline.run_terminals import TerminalSize
from app.runs.job_output import JobOutput
from app.storage.runs import RunRow
from routes.protocol.errors import ASCIIResponse, Refused
from routes.protocol.numbers import query_number
from routes.protocol.requests import InputRequest, read_fields
from routes.protocol.route import Body, Query, Route, tagged
from routes.services import current_principal, services_of

NO_TERMINAL = "This call has ended, or has no terminal: see the setting pty."


async def call_output(request: Request) -> Response:
    """The output of a call, in pages. During the run and afterwards. See [whole outputs](#whole-outputs)."""
    after = query_number(request, "after", 0)
    outputs, run, call = await _call(request)
    return ASCIIResponse(_fields(await outputs.part(run, call, after)))


async def cancel_call(request: Request) -> Response:
    """Stop one running call.

    Answers when its whole process tree is gone. The run goes on: the model receives what the call had printed, and that
    the person stopped it. Audited as `stop`. Harmless on a call that has ended (`"stopped": false`).
    """
    outputs, run, call = await _call(request)
    return ASCIIResponse({"run": run.id, "call": call, "stopped": await outputs.stop(run, call)})


async def type_into_call(request: Request) -> Response:
    r"""Type into the terminal of a running command.

    At most 1,000 characters and 32 keys for its [terminal](tools.md#terminals): `enter`, `tab`, `escape`, `backspace`,
    `up`, `down`, `left`, `right`, `ctrl-c`, `ctrl-d`, `ctrl-z`, `ctrl-\`. What is typed is not kept, but for what the
    program echoes; the audit has its length.
    """
    outputs, run, call = await _call(request)
    body = await read_fields(request, InputRequest, plain=True)  # its output is redacted
    taken = await outputs.type_in(run, call, body.data)
    if taken is None:
        raise Refused(409, "no_terminal", NO_TERMINAL)
    if taken < len(body.data):
        message = f"The program has not read its earlier input yet: {taken} bytes were accepted. Send the rest later."
        raise Refused(409, "input_full", message, taken=taken)
    return ASCIIResponse({"run": run.id, "call": call, "bytes": taken})


async def resize_call(request: Request) -> Response:
    """Resize the terminal of a running command.

    The size of the window in which the [terminal](tools.md#terminals) is seen, 20 to 400 columns and 5 to 200 rows. The
    program is signalled (SIGWINCH).
    """
    outputs, run, call = await _call(request)
    size = await read_fields(request, TerminalSize)
    if not await outputs.resize(run, call, size.window):
        raise Refused(409, "no_terminal", NO_TERMINAL)
    return ASCIIResponse({"run": run.id, "call": call, "columns": size.columns, "rows": size.rows})


async def job_output(request: Request) -> Response:
    """The output of a job, in pages. See [whole outputs](#whole-outputs)."""
    services, after = services_of(request), query_number(request, "after", 0)
    outputs = JobOutput(services.jobs, services.redactor)
    return ASCIIResponse(
        _fields(await outputs.part(request.path_params["job"], current_principal(request).name, after))
    )


async def _call(request: Request) -> tuple[CallOutput, RunRow, str]:
    """The outputs of calls, the run that the request names, and the id of its call. Raises NotFound."""
    services = services_of(request)
    run = await services.runs.run(request.path_params["run"], current_principal(request))
    return CallOutput(services.factory.outputs, services.store, services.redactor), run, request.path_params["call"]


def _fields(part: OutputPart) -> dict[str, Any]:
    where = {"from": part.start, "next": part.next, "characters": part.characters}
    missing = {"missing_lines": part.missing} if part.missing else {}
    return {"text": part.text} | where | {"lines": part.lines, "done": part.done} | missing


AFTER = Query("after", "`next` of the answer before, 0 for the beginning", "integer")
ROUTES = (
    *tagged(
        "Runs",
        Route("GET /runs/{run}/calls/{call}/output", call_output, rights="owner", answer="@Output", query=(AFTER,)),
        Route(
            "POST /runs/{run}/calls/{call}/input",
            type_into_call,
            rights="owner",
            answer="object",
            errors=(409,),
            body=Body(InputRequest, {"text": "yes", "keys": ["enter"]}),
        ),
        Route(
            "POST /runs/{run}/calls/{call}/terminal",
            resize_call,
            rights="owner",
            answer={"run": "text", "call": "text", "columns": "integer", "rows": "integer"},
            errors=(409,),
            body=Body(TerminalSize, {"columns": 100, "rows": 30}),
        ),
        Route(
            "POST /runs/{run}/calls/{call}/cancel",
            cancel_call,
            rights="owner",
            answer={"run": "text", "call": "text", "stopped": "boolean"},
        ),
    ),
    *tagged(
        "Jobs",
        Route("GET /jobs/{job}/output", job_output, rights="owner", answer="@Output", query=(AFTER,)),
    ),
)
