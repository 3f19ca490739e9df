"""/triggers: webhooks that begin runs. Deliveries prove themselves with the trigger's secret, not with a token."""

from __future__ import annotations

import time
from collections.abc import Mapping
from secrets import token_hex
from typing import Any

from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import Response

from app.policy.entitlements import Kind
from app.schedules.requests import TriggerRequest, changed_fields, occurrence_fields, trigger_fields
from app.schedules.signatures import WrongSignature
from app.schedules.triggers import DeliveryRefused
from app.storage.principals import Principal
from app.storage.schedules import TriggerRow
from app.transcript.run_request import is_open_to
from routes.access.rate_limits import client_network
from routes.access.request_rates import DELIVERIES, WRONG_DELIVERIES
from routes.http.automation.schedules import MOST_BYTES, check_room, check_run
from routes.protocol.errors import ASCIIResponse, Refused, TooSoon
from routes.protocol.json_body import read_object
from routes.protocol.raw_body import BodyLimits, read_body
from routes.protocol.redaction_middleware import SHOWN_ONCE
from routes.protocol.requests import checked as checked_body
from routes.protocol.requests import read_changes, read_fields
from routes.protocol.route import Body, Route, tagged
from routes.services import Services, current_principal, services_of

MOST_DELIVERED = 256 * 1024  # bytes of a delivery
TOO_LONG = f"A delivery may have at most {MOST_DELIVERED:,} bytes. Send less."
PER_MINUTE = 60  # deliveries of a trigger
WRONG_PER_MINUTE = 10  # signatures, from one client
UNPROVEN = (
    "The delivery's signature or secret is not valid for this trigger, or its timestamp is too old. "
    "Send X-Hub-Signature-256, webhook-signature with webhook-id and webhook-timestamp, or "
    "Authorization: Bearer, as the trigger's scheme says."
)


async def list_triggers(request: Request) -> Response:
    """Your triggers. Oldest first, each with its last deliveries. See [triggers](schedules.md#triggers)."""
    services = services_of(request)
    principal = current_principal(request)
    rows = [row for row in await services.store.triggers(principal.name) if is_open_to(row, principal)]
    return ASCIIResponse({"triggers": [await _shown(services, row) for row in rows]})


async def show_trigger(request: Request) -> Response:
    """A trigger."""
    return ASCIIResponse(await _shown(services_of(request), await _trigger(request)))


async def add_trigger(request: Request) -> Response:
    """Add a trigger; only this answer has its secret."""
    services, principal = services_of(request), current_principal(request)
    triggers = services.automation.triggers
    check_room(services, principal, 0, Kind.TRIGGERS)
    body = await read_fields(request, TriggerRequest, MOST_BYTES)
    async with triggers.changing:
        check_room(services, principal, len(await services.store.triggers(principal.name)), Kind.TRIGGERS)
        await check_run(services, principal, body, Kind.TRIGGERS)
        secret = triggers.secret(body.scheme)
        row = _row(principal, body, f"trg_{token_hex(10)}", secret.stored, time.time())
        await triggers.put(row, "made", principal.name)
    setattr(request.state, SHOWN_ONCE, True)
    return ASCIIResponse({"secret": secret.text} | await _shown(services, row), 201)


async def change_trigger(request: Request) -> Response:
    """Change fields of a trigger.

    Fields that are left out stay as they are. The scheme cannot be changed, because its secret would not fit.
    """
    services = services_of(request)
    await _trigger(request)
    changes = await read_changes(request, TriggerRequest, MOST_BYTES)  # may take a minute
    async with services.automation.triggers.changing:
        changed = await _changed(services, current_principal(request), await _trigger(request), changes)
        await services.automation.triggers.put(changed, "changed", current_principal(request).name)
    return ASCIIResponse(await _shown(services, changed))


async def _changed(services: Services, principal: Principal, row: TriggerRow, changes: Mapping[str, Any]) -> TriggerRow:
    """Raises Refused."""
    body = checked_body(TriggerRequest, changed_fields(trigger_fields(row), changes))
    if body.scheme != row.scheme:
        raise Refused(422, "invalid_request", "scheme: cannot be changed; add another trigger")
    if changes.keys() <= {"enabled", "name"}:  # so that one that cannot run can be switched off
        return replace(row, enabled=body.enabled, name=body.name)
    await check_run(services, principal, body, Kind.TRIGGERS)
    return replace(_row(principal, body, row.id, row.secret, row.created), session=row.session)


async def renew_secret(request: Request) -> Response:
    """Replace the secret. The new one is in this answer only; the one before is not valid any more."""
    services = services_of(request)
    async with services.automation.triggers.changing:
        row = await _trigger(request)
        secret = services.automation.triggers.secret(row.scheme)
        changed = replace(row, secret=secret.stored)
        await services.automation.triggers.put(changed, "secret renewed", current_principal(request).name)
    setattr(request.state, SHOWN_ONCE, True)
    return ASCIIResponse({"secret": secret.text} | await _shown(services, changed))


async def delete_trigger(request: Request) -> Response:
    """Delete a trigger. The runs that it began, and their sessions, are kept."""
    triggers = services_of(request).automation.triggers
    async with triggers.changing:
        await triggers.remove(await _trigger(request), current_principal(request).name)
    return Response(status_code=204)


async def deliver(request: Request) -> Response:
    """A delivery, proven with the trigger's signature or secret.

    A JSON object, with a [signature or secret](schedules.md#deliveries) instead of a token; 202 with `run`, the same
    one if the delivery comes again.
    """
    services, trigger, now = services_of(request), request.path_params["trigger"], time.time()
    client = client_network(request.client.host if request.client else None)
    limits = BodyLimits(MOST_DELIVERED, MOST_DELIVERED, MOST_DELIVERED, TOO_LONG)
    try:
        await services.automation.triggers.check_known(trigger)  # a stranger's bodies are not to be held
        raw = await read_body(request, limits)
        delivery = await services.automation.triggers.verified(trigger, dict(request.headers), raw)
    except WrongSignature:
        tries, reset = await services.rates.count(WRONG_DELIVERIES, client, now)
        if tries > WRONG_PER_MINUTE:
            message = f"{tries - 1} unauthenticated deliveries came from {client} within a minute. Try again later."
            raise TooSoon("too_many_wrong_tokens", message, reset) from None
        raise Refused(401, "unauthorized", UNPROVEN) from None
    times, reset = await services.rates.count(DELIVERIES, trigger, now)
    if times > PER_MINUTE:
        raise TooSoon(
            "too_many_requests", f"A trigger takes {PER_MINUTE} deliveries per minute. Try again later.", reset
        )
    body = services.redactor.redact_value(read_object(raw, "event"))
    try:
        run = await services.automation.triggers.begin(delivery, body)
    except DeliveryRefused as refused:
        if refused.reset is not None:
            raise TooSoon("run_refused", str(refused), refused.reset) from None
        raise Refused(409, "run_refused", str(refused)) from None
    return ASCIIResponse({"run": run}, 202)


def _row(principal: Principal, body: TriggerRequest, name: str, secret: str, made: float) -> TriggerRow:
    return TriggerRow(
        id=name,
        principal=principal.name,
        name=body.name,
        scheme=body.scheme,
        secret=secret,
        text=body.message,
        template=body.template,
        policy=body.options.policy(),
        place=body.session,
        enabled=body.enabled,
        created=made,
    )


async def _trigger(request: Request) -> TriggerRow:
    """Raises NotFound."""
    return await services_of(request).automation.triggers.get(
        request.path_params["trigger"], current_principal(request).name
    )


async def _shown(services: Services, row: TriggerRow) -> dict[str, Any]:
    last = [occurrence_fields(one) for one in await services.store.occurrences(row.id)]
    path = {"path": f"/triggers/{row.id}"}
    return {"id": row.id} | trigger_fields(row) | path | {"created": row.created, "last": last}


WITH_SECRET = {"id": "text", "secret": "text"}
ROUTES = tagged(
    "Schedules and triggers",
    Route("GET /triggers", list_triggers, rights="user", answer={"triggers": ["@Trigger"]}),
    Route(
        "POST /triggers",
        add_trigger,
        rights="not guests",
        answer=WITH_SECRET,
        statuses=(201,),
        errors=(409,),
        body=Body(TriggerRequest, {"name": "Build", "message": "Look at the failed build."}),
    ),
    Route(
        "POST /triggers/{trigger}",
        deliver,
        rights="open",
        answer={"run": "text"},
        statuses=(202,),
        errors=(401, 403, 409),
        body=Body("object", {"build": 17, "result": "failed"}),
    ),
    Route("GET /triggers/{trigger}", show_trigger, rights="owner", answer="@Trigger"),
    Route(
        "PATCH /triggers/{trigger}",
        change_trigger,
        rights="owner",
        answer="@Trigger",
        errors=(409,),
        body=Body(TriggerRequest, {"enabled": False}, partial=True),
    ),
    Route("DELETE /triggers/{trigger}", delete_trigger, rights="owner"),
    Route("POST /triggers/{trigger}/secret", renew_secret, rights="owner", answer=WITH_SECRET),
)
