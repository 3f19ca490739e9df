"""GET /events: all that a page shows, on one connection: how things are, and one session's runs as they go.

Browsers allow six connections to a server, and a page may have a dozen runs and jobs to watch.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing, suppress
from importlib.metadata import version
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from app.following import Asked, Followed, Following, Position
from app.messages import shown
from app.people import Principal
from app.side_by_side import side_by_side
from app.store import EventRow
from routes.approvals import waiting_for
from routes.errors import Refused
from routes.jobs import job_fields, seen
from routes.runs import run_fields
from routes.services import Services, asker, services_of
from routes.sse import PIECE, RETRY, sse_response
from tools.job_records import Job
from tools.rights import Role

BUSY_S, IDLE_S = 0.5, 2.0  # what rings no bell is looked at this often: with jobs under way, without
SOONEST_S = 0.1  # between two looks, however often the bell rings
MAX_PLACE = 80


async def page_events(request: Request) -> Response:
    """`state` at once and whenever it changes; with `?session=`, its runs behind `Last-Event-ID` (or `?after=`)."""
    services, principal = services_of(request), asker(request)
    session, after = request.query_params.get("session"), position(request)
    if session is not None:
        await services.runs.session(session, principal)
        if after is not None and (await services.runs.run(after.run, principal)).session != session:
            raise Refused(400, "invalid_cursor", f"Run {after.run} is not of session {session}.")
    with services.presence.place(principal) as place:
        return sse_response(place, _frames(services, principal, session, after))


def position(request: Request) -> Position | None:
    """`run_x:17` is behind event 17 of that run. Raises Refused."""
    given = request.headers.get("last-event-id") or request.query_params.get("after")
    if not given:
        return None
    run, _, seq = given.partition(":")
    if len(given) > MAX_PLACE or not (seq.isascii() and seq.isdigit()) or len(seq) > 15:
        message = f"Last-Event-ID (or ?after=) is {given[:40]!a}; send the `id:` of the last event you saw"
        raise Refused(400, "invalid_cursor", message)
    return Position(run, int(seq))


async def _frames(
    services: Services, principal: Principal, session: str | None, after: Position | None
) -> AsyncGenerator[bytes, None]:
    streams = [_states(services, principal)]
    if session is not None:
        streams.append(_session(services, principal, session, after))
    prefix = RETRY
    async with aclosing(side_by_side(streams)) as told:
        async for _, piece in told:
            yield prefix + piece
            prefix = b""


async def _session(
    services: Services, principal: Principal, session: str, after: Position | None
) -> AsyncGenerator[bytes, None]:
    following = Following(services.runs, services.store, services.runs.bells)
    async with aclosing(following.follow(session, principal, after)) as followed:
        async for one in followed:
            for piece in _pieces(one):
                yield piece


def _pieces(followed: Followed) -> Iterator[bytes]:
    if isinstance(followed, Asked):
        data = json.dumps({"type": "run.asked"} | asked_fields(followed))
        yield f"id: {followed.row.id}:0\nevent: run.asked\ndata: {data}\n\n".encode()
        return
    waiting, size = list[str](), 0
    for row in followed:
        waiting.append(_frame(row))
        size += len(waiting[-1])
        if size >= PIECE:
            yield "".join(waiting).encode()
            waiting, size = [], 0
    if waiting:
        yield "".join(waiting).encode()


def _frame(row: EventRow) -> str:
    return f"id: {row.run}:{row.seq}\nevent: {row.type}\ndata: {row.data}\n\n"


def asked_fields(asked: Asked) -> dict[str, Any]:
    """What a run was asked for with: `message` as GET /sessions/{id} has it."""
    message = shown(asked.message) if asked.message else None
    fields = {name: value for name, value in run_fields(asked.row).items() if name != "id"}
    return {"run": asked.row.id} | fields | {"message": message}


async def _states(services: Services, principal: Principal) -> AsyncGenerator[bytes, None]:
    """All of it first, then what has changed."""
    told: dict[str, Any] = {}
    with services.runs.bells.hearing(principal.name) as rung:
        while True:
            rung.clear()
            now = await state_of(services, principal)
            if news := {key: value for key, value in now.items() if told.get(key, ...) != value}:
                told |= news
                data = json.dumps({"type": "state"} | services.redactor.redact_value(news))
                yield f"event: state\ndata: {data}\n\n".encode()
            await asyncio.sleep(SOONEST_S)
            with suppress(TimeoutError):
                async with asyncio.timeout(BUSY_S if principal.name in services.jobs.at_work() else IDLE_S):
                    await rung.wait()


async def state_of(services: Services, principal: Principal) -> dict[str, Any]:
    """How things are for somebody: what runs, what waits for them, and what answers."""
    default = services.models.default
    state: dict[str, Any] = {
        "me": {"name": principal.name, "role": principal.role},
        "server": {
            "version": version("dragoman"),
            "model": default.provider.model,
            "endpoint": default.name,
            "embedded": services.models.endpoint.embedded,
            "sandbox": services.sandbox.level,
            "boxed": services.sandbox.boxed,  # commands stay in it, without network
        },
        "paused": services.switch.paused,
        "runs": [run_fields(row) for row in services.runs.of(principal.name)],
        "approvals": await waiting_for(services, principal),
        "jobs": [await _job(services, job) for job in services.jobs.listed(principal.name)],
    }
    if principal.role is Role.ADMIN:
        state["mcp"] = [
            {"name": one.name, "state": one.state, "tools": len(one.tools), "held": [held.tool for held in one.held]}
            for one in services.mcp.status()
        ]
    return state


async def _job(services: Services, job: Job) -> dict[str, Any]:
    """With its tail while it runs; without its age, which only the clock changes."""
    told = seen(await services.jobs.glance(job.id, job.principal)) if job.under_way else job_fields(job)
    return {name: value for name, value in told.items() if name != "elapsed_s"}
