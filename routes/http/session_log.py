"""GET /sessions/{id}/log: requests and events of its last runs, for a page to draw at once."""

from __future__ import annotations

import json
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import Response

from app.budget.usage_report import sums
from app.core.profile_spec import modes_in
from app.log.log_compaction import joined_rows
from app.redaction.redactor import Redactor
from app.runs.session_stream import Asked
from app.storage.store import Store
from app.transcript.run_request import MAX_LINE, is_of_app
from routes.http.branching.branches import log_fields
from routes.http.feed import BEGINNING, asked_fields
from routes.protocol.errors import Refused
from routes.protocol.numbers import query_number
from routes.protocol.redaction_middleware import REDACTED
from routes.protocol.route import Query, Route, tagged
from routes.services import current_principal, services_of

USUAL, MOST = 20, 100  # runs
MOST_BARE = 5_000  # without their events
ROOM = 2_000_000  # characters of events: with more, earlier runs are left to be asked for
MOST_OF_RUN = 8_000_000  # characters of one run's events: the rest of its log is left to the streams
FIRST_PAGE, PAGE = 64, 2_048  # events read and joined at a time: other requests wait no longer
PAGE_SIZE = 524_288  # characters that a page should not exceed by much


class Log(Struct):
    """The beginning of a run's events, in as few rows as they can be drawn from."""

    texts: list[str] = field(default_factory=list)
    size: int = 0
    last_seq: int = 0


async def session_log(request: Request) -> Response:
    """The last runs of a session with their events.

    For drawing at once: runs oldest first, each with its request and its events so far. See [one
    connection](#one-connection-for-everything).
    """
    services, principal = services_of(request), current_principal(request)
    session = await services.runs.session(request.path_params["session"], principal)
    before, bare = request.query_params.get("before"), request.query_params.get("events") == "false"
    most = query_number(request, "runs", USUAL, least=1, most=MOST_BARE if bare else MOST)
    if before and not await services.store.holds_run(session.id, await services.runs.run(before, principal)):
        raise Refused(400, "invalid_query", f"before: run {before[:40]!a} is not of session {session.id}")
    rows = await services.store.last_runs(session.id, before, max(most, MAX_LINE) + 1, apps=False)
    rows = [row for row in rows if not (bare and is_of_app(row))]
    under_way = [place for place, row in enumerate(rows) if row.ended is None]  # newest first
    first = max(under_way, default=None) if before is None else None
    runs_json, size, cursor = list[str](), 0, None if rows or before else BEGINNING
    for place, row in enumerate(rows[: max(most, 0 if first is None else first + 1)]):
        log = Log()
        # What is behind the run under way comes when that one has ended.
        if not bare and (first is None or place >= first):
            log = await _log(services.store, row.id, services.redactor)
            size += log.size
            if before is None:
                cursor = cursor or f"{row.id}:{log.last_seq}"
        if runs_json and size > ROOM and place != first:
            break
        asked = Asked(replace(row, session=session.id), await services.store.request_of(session.id, row.id))
        fields = services.redactor.redact_value(asked_fields(asked))
        runs_json.append(f'{json.dumps(fields)[:-1]}, "events": [{", ".join(log.texts)}]}}')
        size += len(runs_json[-1]) if bare else 0
    head: dict[str, Any] = {
        "session": session.id,
        "title": session.title,
        "modes": modes_in(session.options),
        "cursor": cursor,
        "earlier": len(runs_json) < len(rows),
    }
    head |= await log_fields(services, session.id)
    if before is None:
        head["usage"] = sums(await services.store.spent_by_runs(session.id))
    body = f'{json.dumps(services.redactor.redact_value(head))[:-1]}, "runs": [{", ".join(reversed(runs_json))}]}}'
    setattr(request.state, REDACTED, True)
    return Response(body, media_type="application/json")


async def _log(store: Store, run: str, redactor: Redactor) -> Log:
    """Up to what is durable now, or to the limit. Raises StoreFailed."""
    log, limit = Log(), FIRST_PAGE
    while log.size < MOST_OF_RUN:
        rows = await store.events(run, log.last_seq, limit)
        for row in joined_rows(rows):
            log.texts.append(redactor.redact_json(f'{{"seq": {row.seq}, {row.data[1:]}'))
            log.size += len(row.data)
        if rows:
            log.last_seq = rows[-1].seq
        if len(rows) < limit:
            break
        large = sum(len(row.data) for row in rows) * 2 > PAGE_SIZE
        limit = max(1, limit // 2) if large else min(PAGE, limit * 2)
    return log


ROUTES = tagged(
    "Sessions",
    Route(
        "GET /sessions/{session}/log",
        session_log,
        rights="owner",
        answer="@SessionLog",
        query=(
            Query("runs", "the number of runs, 20 by default, 100 at most", "integer"),
            Query("before", "a run: the page before it"),
            Query("events", "`false`: only the requests, of up to 5,000 runs"),
        ),
    ),
)
