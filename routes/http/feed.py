"""GET /events: all that a page shows, on one connection: how things are, and one session's runs as they go.

Browsers allow six connections to a server, and a page may have a dozen runs and jobs to watch.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import aclosing, suppress
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from app.core.messages import shown
from app.runs.branching.tree import partings
from app.runs.merge_streams import merge_streams
from app.runs.session_stream import Asked, Followed, Following, Position
from app.storage.changes import StoreFailed
from app.storage.principals import Principal
from app.storage.runs import EventRow
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
END = b""  # what this connection was for is gone

_log = logging.getLogger(__name__)


async def page_events(request: Request) -> Response:
    """Everything that the page shows, on one connection.

    `state` at once and whenever it changes; with `session`, its runs too. See [one
    connection](#one-connection-for-everything).
    """
    services, principal = services_of(request), current_principal(request)
    session, after = request.query_params.get("session"), position(request)
    streams = [_states(services, principal, request.app.state.seen)]
    if session is not None:
        await services.runs.session(session, principal)
        if after and not await services.store.holds_run(session, await services.runs.run(after.run, principal)):
            raise Refused(400, "invalid_cursor", f"Run {after.run} is not of session {session}.")
        following = Following(services.runs, services.store, services.runs.notifier)
        streams += [_session(following, session, after), _waiting(following, session), _documents(services, session)]
        streams.append(_branches(services, principal, session))
    with services.presence.place(principal, page=True) as place:
        return EventStreamResponse(place, _frames(streams))


def position(request: Request) -> Position | None:
    """`run_x:17` is behind event 17 of that run. Raises Refused."""
    given = request.headers.get("last-event-id") or request.query_params.get("after")
    if not given:
        return None
    run, _, digits = given.partition(":")
    if len(given) > MAX_PLACE or (seq := whole_number(digits)) is None:
        raise bad_cursor(given)
    return Position(run, seq)


async def _frames(streams: Sequence[AsyncGenerator[bytes, None]]) -> AsyncGenerator[bytes, None]:
    prefix = RETRY
    async with aclosing(merge_streams(streams)) as changes:
        async for _, piece in changes:
            if piece is END:
                return
            yield prefix + piece
            prefix = b""


async def _session(following: Following, session: str, after: Position | None) -> AsyncGenerator[bytes, None]:
    async with aclosing(following.follow(session, after)) as followed:
        async for one in followed:
            for piece in _pieces(one):
                yield piece
    yield END


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


def _pieces(followed: Followed) -> Iterator[bytes]:
    if isinstance(followed, Asked):
        yield f"id: {followed.row.id}:0\n{_request_frame(followed)}".encode()
        return
    yield from pieces(followed, _frame)


def _frame(row: EventRow) -> str:
    return f"id: {row.run}:{row.seq}\nevent: {row.type}\ndata: {row.data}\n\n"


def _request_frame(pending: Asked) -> str:
    return f"event: run.asked\ndata: {json.dumps({'type': 'run.asked'} | asked_fields(pending))}\n\n"


def asked_fields(pending: Asked) -> dict[str, Any]:
    """The request of a run: `message` as GET /sessions/{id} has it."""
    message = shown(pending.message) if pending.message else None
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
            Query("session", "whose runs are streamed"),
            Query("after", "the `id:` of the last event, with `session`"),
        ),
        headers=RESUMES,
        stream="page",
    ),
)
