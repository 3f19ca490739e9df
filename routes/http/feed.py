"""GET /events: all that a page shows, on one connection: how things are, and one session's runs as they go.

Browsers allow six connections to a server, and a page may have a dozen runs and jobs to watch.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import aclosing, suppress
from functools import partial
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from app.core.messages import shown
from app.runs.branching.tree import partings
from app.runs.merge_streams import merge_streams
from app.runs.run_manager import no_session
from app.runs.session_stream import Asked, Followed, Following, Position
from app.storage.changes import StoreFailed
from app.storage.principals import Principal
from app.storage.runs import EventRow
from app.transcript.run_request import NotFound, as_sent
from routes.http.dashboard_state import Changes, Row, Seen, state_of
from routes.http.runs import run_fields
from routes.protocol.errors import Refused
from routes.protocol.numbers import whole_number
from routes.protocol.route import RESUMES, Query, Route, tagged
from routes.protocol.sse import RETRY, EventStreamResponse, bad_cursor, pieces
from routes.services import Services, current_principal, services_of
from tools.base.tasks import wait_at_most

BUSY_S, IDLE_S = 0.5, 2.0  # polling of what sends no notification: with running jobs, without
SOONEST_S = 0.1  # least interval between two reads, however often it is notified
MAX_PLACE = 80
MOST_SESSIONS = 64  # each takes four tasks, and all their places the 8 kB that proxies allow for a line of a request
BEGINNING = ":0"  # the place of a session that has no run yet
END = b""  # what this connection was for is gone

_log = logging.getLogger(__name__)


async def page_events(request: Request) -> Response:
    """Everything that the page shows, on one connection.

    `state` at once and whenever it changes; with `session`, its runs too, and those of further ones that are named the
    same way. See [one connection](#one-connection-for-everything).
    """
    services, principal = services_of(request), current_principal(request)
    sessions = request.query_params.getlist("session")
    if len(sessions) > MOST_SESSIONS:
        most = f"{len(sessions)} sessions are named; one connection follows {MOST_SESSIONS} at most."
        raise Refused(400, "invalid_query", f"{most} Open another one for the rest.")
    after = positions(request, max(1, len(sessions)))
    streams = [_states(services, principal, request.app.state.seen)]
    alone = len(sessions) == 1
    following = Following(services.runs, services.store, services.runs.notifier)
    for place, session in enumerate(sessions):
        try:
            await _check(services, principal, session, after.get(place))
        except (NotFound, Refused) as refused:
            if alone:
                raise
            streams.append(_refused(session, place, refused))
            continue
        prefix, end = ("", END) if alone else (f"{place}/", _refused_frame(session, place, no_session(session)))
        streams.append(_session(following, session, after.get(place), prefix, end))
        if session not in sessions[:place]:  # what has no `id:` is for all its readers
            streams += [_waiting(following, session), _documents(services, session)]
            streams.append(_branches(services, principal, session))
    with services.presence.place(principal, page=True) as place_of_stream:
        return EventStreamResponse(place_of_stream, _frames(streams))


async def _check(services: Services, principal: Principal, session: str, after: Position | None) -> None:
    """Raises NotFound, Refused."""
    await services.runs.session(session, principal)
    run = await services.runs.run(after.run, principal) if after and after.run else None
    if run and not await services.store.holds_run(session, run):
        raise Refused(400, "invalid_cursor", f"Run {run.id} is not of session {session}.")


def positions(request: Request, count: int) -> dict[int, Position]:
    """The place of each of `count` sessions: `run_x:17` is behind event 17 of that run, `2/run_x:17` in the third.

    BEGINNING is before the first run.

    Raises Refused.
    """
    given = request.headers.get("last-event-id") or request.query_params.get("after")
    found: dict[int, Position] = {}
    for one in given.split(",") if given else ():
        place, slash, at = one.strip().rpartition("/")
        run, _, digits = at.partition(":")
        number = whole_number(place) if slash or count > 1 else 0
        seq = whole_number(digits)
        if len(one) > MAX_PLACE or seq is None or number is None or number >= count or (not run and at != BEGINNING):
            raise bad_cursor(one)
        found[number] = Position(run, seq, over=not run)
    return found


async def _frames(streams: Sequence[AsyncGenerator[bytes, None]]) -> AsyncGenerator[bytes, None]:
    prefix = RETRY
    async with aclosing(merge_streams(streams)) as changes:
        async for _, piece in changes:
            if piece is END:
                return
            yield prefix + piece
            prefix = b""


async def _session(
    following: Following, session: str, after: Position | None, place: str = "", end: bytes = END
) -> AsyncGenerator[bytes, None]:
    async with aclosing(following.follow(session, after)) as followed:
        async for one in followed:
            for piece in _pieces(one, place):
                yield piece
    if end is END or not following.notifier.closed:
        yield end


async def _refused(session: str, place: int, error: NotFound | Refused) -> AsyncGenerator[bytes, None]:
    yield _refused_frame(session, place, error)


def _refused_frame(session: str, place: int, error: NotFound | Refused) -> bytes:
    code = error.code if isinstance(error, Refused) else "not_found"
    data = {"type": "session.refused", "session": session, "place": place, "code": code, "message": str(error)}
    return f"event: session.refused\ndata: {json.dumps(data)}\n\n".encode()


async def _waiting(following: Following, session: str) -> AsyncGenerator[bytes, None]:
    """Without `id:`: who comes back goes on at the run under way."""
    async with aclosing(following.waiting(session)) as waiting:
        async for pending in waiting:
            yield _request_frame(pending).encode()


async def _documents(services: Services, session: str) -> AsyncGenerator[bytes, None]:
    """Name the session each time that a person has changed a document of it: no run has an event for that."""
    library, notifier = services.runs.documents, services.runs.notifier
    known = library.changes[session]
    with notifier.subscribed(session) as changed:
        while not notifier.closed:
            changed.clear()
            if library.changes[session] != known:
                known = library.changes[session]
                yield f"event: documents\ndata: {json.dumps({'type': 'documents', 'session': session})}\n\n".encode()
            await changed.wait()


async def _branches(services: Services, principal: Principal, session: str) -> AsyncGenerator[bytes, None]:
    """The turns at which the session has other branches, each time that there are others."""
    notifier, known = services.runs.notifier, list[dict[str, Any]]()
    with notifier.subscribed(principal.name) as changed:
        while not notifier.closed:
            changed.clear()
            with suppress(StoreFailed):  # it is looked at again with the next change
                found = await partings(services.store, session)
                if found != known:
                    data = {"type": "branches", "session": session, "branches": found}
                    yield f"event: branches\ndata: {json.dumps(data)}\n\n".encode()
                known = found
            await asyncio.sleep(SOONEST_S)
            await changed.wait()


def _pieces(followed: Followed, place: str) -> Iterator[bytes]:
    if isinstance(followed, Asked):
        yield f"id: {place}{followed.row.id}:0\n{_request_frame(followed)}".encode()
        return
    yield from pieces(map(partial(_frame, place), followed))


def _frame(place: str, row: EventRow) -> str:
    return f"id: {place}{row.run}:{row.seq}\nevent: {row.type}\ndata: {row.data}\n\n"


def _request_frame(pending: Asked) -> str:
    return f"event: run.asked\ndata: {json.dumps({'type': 'run.asked'} | asked_fields(pending))}\n\n"


def asked_fields(pending: Asked) -> dict[str, Any]:
    """The request of a run: `message` as GET /sessions/{id} has it."""
    message = shown(as_sent(pending.row, pending.message)) if pending.message else None
    fields = {name: value for name, value in run_fields(pending.row).items() if name != "id"}
    return {"run": pending.row.id} | fields | {"message": message}


async def _states(services: Services, principal: Principal, seen: Seen) -> AsyncGenerator[bytes, None]:
    """The whole state first, then its changes. Ends when a client without a token needs one."""
    changes, notifier, pending, revision = Changes(services.redactor), services.runs.notifier, list[Row](), 0
    with notifier.subscribed(principal.name) as changed:
        changed.set()
        while not notifier.closed and (principal.token or not services.presence.asks_for_tokens):
            more = True
            try:
                if changed.is_set():
                    changed.clear()
                    pending = await seen.approvals(services.store, principal.name)
                    revision = await services.store.list_revision(principal.name)
                now = await state_of(services, principal, pending, seen) | {"list": revision}
            except StoreFailed as failure:
                _log.warning("the state of what %s has is not known: %s", principal.name, failure)
                asyncio.get_running_loop().call_later(IDLE_S, changed.set)
                more = False
            while more:
                news, more = changes.news(now)
                if news:
                    yield f"event: state\ndata: {news}\n\n".encode()
            await asyncio.sleep(SOONEST_S)
            await wait_at_most(BUSY_S if principal.name in services.jobs.at_work() else IDLE_S, changed)
    if not notifier.closed:
        yield END


ROUTES = tagged(
    "Server",
    Route(
        "GET /events",
        page_events,
        rights="user",
        errors=(404,),
        query=(
            Query("session", "whose runs are streamed; repeated for up to 64 of them"),
            Query("after", "the `id:` of the last event, with `session`; of several the last of each, with commas"),
        ),
        headers=RESUMES,
        stream="page",
    ),
)
