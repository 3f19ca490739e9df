"""GET /sessions/{id}/log: what its last runs were asked for and what came of it, to be drawn at once."""

from __future__ import annotations

import json

from starlette.requests import Request
from starlette.responses import Response

from app.following import Asked, Following
from app.log_parts import joined_rows
from app.spent import sums
from app.store import ALL
from routes.errors import Refused
from routes.feed import asked_fields
from routes.services import asker, services_of

USUAL, MOST = 20, 100  # runs
ROOM = 2_000_000  # characters of events: one run at least is told whole


async def session_log(request: Request) -> Response:
    """Runs oldest first, each with its events so far; `cursor` is where GET /events goes on, `?before=` pages back;
    `usage` is of the whole session."""
    services, principal = services_of(request), asker(request)
    session = await services.runs.session(request.path_params["session"], principal)
    rows = await services.store.runs(session.id)
    before, most = request.query_params.get("before"), _count(request)
    if before is not None:
        rows = rows[: next((place for place, row in enumerate(rows) if row.id == before), 0)]
    following = Following(services.runs, services.store, services.runs.bells)
    told, size, cursor = list[str](), 0, None
    for row in reversed(rows[-most:]):
        events = joined_rows(await services.store.events(row.id, 0, ALL))
        size += sum(len(event.data) for event in events)
        if told and size > ROOM:
            break
        cursor = cursor or f"{row.id}:{events[-1].seq if events else 0}"
        told.append(_run(await following.asked(row), [f'{{"seq": {event.seq}, {event.data[1:]}' for event in events]))
    more = len(told) < len(rows)
    about = {"session": session.id, "title": session.title, "cursor": cursor, "earlier": more}
    head = json.dumps(about | {"usage": sums(await services.store.spent_by_runs(session.id))})
    body = f'{head[:-1]}, "runs": [{", ".join(reversed(told))}]}}'
    return Response(body, media_type="application/json")


def _run(asked: Asked, events: list[str]) -> str:
    return f'{json.dumps(asked_fields(asked))[:-1]}, "events": [{", ".join(events)}]}}'


def _count(request: Request) -> int:
    given = request.query_params.get("runs", str(USUAL))
    if not given.isascii() or not given.isdigit() or not 1 <= int(given[:9]) <= MOST:
        raise Refused(400, "invalid_query", f"runs is {given[:20]!a}; send a number from 1 to {MOST}")
    return int(given)
