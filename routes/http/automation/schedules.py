"""/schedules: messages that begin runs at their times."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from secrets import token_hex
from typing import Any

from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import Response

from app.policy.entitlements import Kind
from app.schedules.requests import RunPart, ScheduleRequest, changed_fields, occurrence_fields, schedule_fields
from app.schedules.scheduler import no_schedule, timetable
from app.schedules.times import ONCE, UnfitTime, checked
from app.schedules.words import absolute, in_words
from app.storage.principals import Principal
from app.storage.schedules import HERE, NEW, ScheduleRow
from app.storage.schedules import ONE as ONE_SESSION
from app.transcript.run_request import SPEAKER, NotFound, is_open_to, speaker_of
from routes.http.session_labels import label_fields
from routes.protocol.errors import ASCIIResponse, Refused
from routes.protocol.requests import checked as checked_body
from routes.protocol.requests import read_changes, read_fields
from routes.protocol.route import Body, Route, tagged
from routes.services import Services, current_principal, services_of
from tools.base.rights import Role

MOST_BYTES = 256 * 1024
MAX = "max_schedules"
TEMPORARY = "session: a temporary conversation is deleted once it is over. Name another one, or send new."
SETTINGS = {Role.ADMIN: MAX, Role.USER: "schedules_per_user", Role.GUEST: "schedules_per_guest"}


async def list_schedules(request: Request) -> Response:
    """Your schedules.

    Oldest first: the [fields](schedules.md#fields), `next` (with jitter), and the `last` times with `outcome`, `reason`
    and the run's `state` and `ended`.
    """
    services, principal = services_of(request), current_principal(request)
    rows = [row for row in services.automation.scheduler.of(principal.name) if is_open_to(row, principal)]
    return ASCIIResponse({"schedules": [await _shown(services, row) for row in rows]})


async def show_schedule(request: Request) -> Response:
    """A schedule."""
    return ASCIIResponse(await _shown(services_of(request), _schedule(request)))


async def add_schedule(request: Request) -> Response:
    """Add a schedule. See [its fields](schedules.md#fields). Guests may unless `schedules_per_guest` is 0."""
    services, principal = services_of(request), current_principal(request)
    scheduler = services.automation.scheduler
    check_room(services, principal, 0, Kind.SCHEDULES)
    body = await read_fields(request, ScheduleRequest, MOST_BYTES)
    async with scheduler.changing:
        check_room(services, principal, len(scheduler.of(principal.name)), Kind.SCHEDULES)
        row = await _row(services, principal, body, f"sch_{token_hex(10)}", time.time())
        if principal.is_linked:
            row = spoken(row, principal.member)
        row = await scheduler.put(row, "made", principal.keeper)
    return ASCIIResponse(await _shown(services, row), 201)


async def change_schedule(request: Request) -> Response:
    """Change fields of a schedule. Fields that are left out stay as they are; new times begin from now."""
    services, principal = services_of(request), current_principal(request)
    _schedule(request)
    changes = await read_changes(request, ScheduleRequest, MOST_BYTES)  # may take a minute
    async with services.automation.scheduler.changing:
        row = await _changed(services, principal, _schedule(request), changes)
        # Raises UnfitTime once its time zone has left the machine.
        row = await services.automation.scheduler.put(row, "changed", principal.name)
    return ASCIIResponse(await _shown(services, row))


async def _changed(
    services: Services, principal: Principal, row: ScheduleRow, changes: Mapping[str, Any]
) -> ScheduleRow:
    """Raises Refused."""
    body = checked_body(ScheduleRequest, changed_fields(schedule_fields(row), changes))
    retimed = (body.kind, body.expression) != (row.kind, row.expression)
    if changes.keys() <= {"enabled", "name"}:  # without a check: a schedule that cannot run can be switched off
        return replace(row, enabled=body.enabled, name=body.name, reckoned=None)
    changed = await _row(services, principal, body, row.id, time.time() if retimed else row.created)
    return spoken(changed, member) if (member := speaker_of(row)) else changed


async def delete_schedule(request: Request) -> Response:
    """Delete a schedule. The runs that it began, and their sessions, are kept."""
    scheduler = services_of(request).automation.scheduler
    async with scheduler.changing:
        await scheduler.remove(_schedule(request), current_principal(request).name)
    return Response(status_code=204)


async def run_schedule(request: Request) -> Response:
    """Begin a run of a schedule now. 409 if the last one is under way. The schedule's times stay as they are."""
    services, row = services_of(request), _schedule(request)
    check_switched_on(services)
    try:
        run = await services.automation.scheduler.run_now(row.id, row.principal)
    except NotFound as reason:
        raise Refused(409, "run_refused", str(reason)) from None
    return ASCIIResponse({"run": run.id, "session": run.session, "state": run.state}, 202)


def check_room(services: Services, principal: Principal, there: int, kind: Kind) -> None:
    """Raises NotEntitled, Refused if the principal may add none."""
    services.automation.starts.check_owner(principal, kind)
    check_switched_on(services)
    settings = (SETTINGS[principal.role] if kind is Kind.SCHEDULES else MAX, MAX)
    most, setting = min((getattr(services.settings, name), name) for name in settings)
    if there >= most:
        advice = f"Remove one, or raise DRAGOMAN_{setting.upper()}."
        raise Refused(409, "too_many_schedules", f"You have {there} {kind}, the maximum. {advice}")


def check_switched_on(services: Services) -> None:
    """Raises Refused."""
    if not services.settings.max_schedules:
        message = "Schedules and triggers are switched off here. Set DRAGOMAN_MAX_SCHEDULES above 0."
        raise Refused(403, "schedules_off", message)


async def check_run(services: Services, principal: Principal, body: RunPart, kind: Kind) -> None:
    """Raises NotEntitled, Refused if the runs that it describes could not begin."""
    services.automation.starts.check_owner(principal, kind)
    try:
        await services.automation.starts.check(principal, body.options)
    except NotFound as unfit:
        raise Refused(422, "invalid_request", str(unfit)) from None


async def _row(services: Services, principal: Principal, body: ScheduleRequest, name: str, made: float) -> ScheduleRow:
    """Raises UnfitTime, Refused."""
    zone = body.time_zone or services.settings.time_zone or "UTC"
    now = time.time()
    expression = absolute(body.expression, zone, now) if body.kind == ONCE else body.expression.strip()
    shortest = 0.0 if principal.role is Role.ADMIN else float(services.settings.shortest_interval_s)
    checked(body.kind, expression, zone, body.jitter_s, now, shortest_s=shortest)
    here = body.session not in (NEW, ONE_SESSION)
    if here and (await services.runs.session(body.session, principal)).temporary:
        raise Refused(422, "invalid_request", TEMPORARY)
    await check_run(services, principal, body, Kind.SCHEDULES)
    return ScheduleRow(
        id=name,
        principal=principal.name,
        name=body.name,
        kind=body.kind,
        expression=expression,
        zone=zone,
        text=body.message,
        policy=body.options.policy(),
        place=HERE if here else body.session,
        session=body.session if here else None,
        missed=body.missed,
        jitter_s=body.jitter_s,
        enabled=body.enabled,
        created=made,
        reckoned=now,
    )


def _schedule(request: Request) -> ScheduleRow:
    """Raises NotFound."""
    schedule, principal = request.path_params["schedule"], current_principal(request)
    row = services_of(request).automation.scheduler.get(schedule, principal.name)
    if not is_open_to(row, principal):
        raise no_schedule(schedule)
    return row


def spoken(row: ScheduleRow, member: str) -> ScheduleRow:
    """Return a schedule whose runs have no more rights than this member of a bot, who speaks for its owner."""
    return replace(row, policy=json.dumps(json.loads(row.policy) | {SPEAKER: member}))


async def _shown(services: Services, row: ScheduleRow) -> dict[str, Any]:
    last = [occurrence_fields(one) for one in await services.store.occurrences(row.id)]
    labels = (await label_fields(services, [row.session])).get(row.session, {}) if row.session else {}
    return schedule_summary(services, row) | {"last": last} | labels


def schedule_summary(services: Services, row: ScheduleRow) -> dict[str, Any]:
    """A schedule without its last times; `words` are its times as a person reads them."""
    table = timetable(row)
    try:
        words = in_words(table, time.time())
    except UnfitTime as unfit:  # its time zone has left the machine
        words = str(unfit)
    times = {"created": row.created, "next": services.automation.scheduler.fires_at(row), "words": words}
    return {"id": row.id} | schedule_fields(row) | times


def reminders_of(services: Services, principal: str) -> list[dict[str, Any]]:
    """The schedules that will answer in conversations, as the page shows them there."""
    scheduler, wanted = services.automation.scheduler, ("name", "session", "cron", "every", "time_zone")
    rows = [(row, scheduler.fires_at(row)) for row in scheduler.of(principal) if row.place == HERE]
    shown = [({"id": row.id, "next": at}, schedule_fields(row)) for row, at in rows if at is not None]
    return [known | {name: fields[name] for name in wanted} for known, fields in shown]


ROUTES = tagged(
    "Schedules and triggers",
    Route("GET /schedules", list_schedules, rights="user", answer={"schedules": ["@Schedule"]}),
    Route(
        "POST /schedules",
        add_schedule,
        rights="user",
        answer="@Schedule",
        statuses=(201,),
        errors=(409,),
        body=Body(
            ScheduleRequest,
            {"name": "News", "message": "What is new?", "cron": "30 7 * * MON-FRI", "time_zone": "Europe/Berlin"},
        ),
    ),
    Route("GET /schedules/{schedule}", show_schedule, rights="owner", answer="@Schedule"),
    Route(
        "PATCH /schedules/{schedule}",
        change_schedule,
        rights="owner",
        answer="@Schedule",
        errors=(409,),
        body=Body(ScheduleRequest, {"enabled": False}, partial=True),
    ),
    Route("DELETE /schedules/{schedule}", delete_schedule, rights="owner"),
    Route(
        "POST /schedules/{schedule}/run", run_schedule, rights="owner", answer="@Begun", statuses=(202,), errors=(409,)
    ),
)
