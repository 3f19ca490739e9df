"""Sessions: conversations with their messages and runs."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from app.messages import shown
from app.spent import of_runs, sums
from app.store import SessionRow, SummaryRow
from routes.errors import ASCIIResponse
from routes.requests import SessionRequest, read_fields
from routes.runs import run_fields
from routes.services import asker, services_of

LISTED = 200  # newest sessions that one listing shows


def _fields(row: SessionRow) -> dict[str, Any]:
    return {"id": row.id, "title": row.title, "created": row.created, "disabled_tools": json.loads(row.disabled)}


async def list_sessions(request: Request) -> Response:
    rows = await services_of(request).store.sessions(asker(request).name, LISTED)
    return ASCIIResponse({"sessions": [_fields(row) for row in rows]})


async def show_session(request: Request) -> Response:
    services = services_of(request)
    row = await services.runs.session(request.path_params["session"], asker(request))
    messages = [shown(message) for message in await services.store.messages(row.id)]
    spent = await services.store.spent_by_runs(row.id)
    used = of_runs(spent)
    runs = [run_fields(run) | {"usage": used.get(run.id, sums(()))} for run in await services.store.runs(row.id)]
    summaries = [summary_fields(one) for one in await services.store.summaries(row.id)]
    told = {"messages": messages, "summaries": summaries, "runs": runs, "usage": sums(spent)}
    return ASCIIResponse(_fields(row) | told)


def summary_fields(row: SummaryRow) -> dict[str, Any]:
    """What the model is told in the place of the first `upto` messages; `before` and `after` are tokens."""
    return {name: getattr(row, name) for name in ("upto", "text", "before", "after", "created")}


async def change_session(request: Request) -> Response:
    """`{"disabled_tools": ["web_fetch", "mcp__*"]}`: from now on the session goes without them."""
    services = services_of(request)
    row = await services.runs.session(request.path_params["session"], asker(request))
    wish = await read_fields(request, SessionRequest, services.settings.max_message_bytes)
    await services.runs.disable_tools(row.id, wish.disabled_tools)
    return ASCIIResponse(_fields(replace(row, disabled=json.dumps(wish.disabled_tools))))


async def delete_session(request: Request) -> Response:
    """Stops what runs in it, background jobs included, and forgets its messages, runs and events."""
    services, principal, session = services_of(request), asker(request), request.path_params["session"]
    await services.runs.session(session, principal)
    await services.runs.delete_session(session, principal)
    await services.jobs.forget(principal.name, session)  # last: until it is stopped, a run may start another
    return Response(status_code=204)
