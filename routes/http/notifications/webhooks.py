"""/webhooks: those of a principal, what was delivered to them, and tests."""

from __future__ import annotations

import json
import time
from collections.abc import Collection
from typing import Annotated, Any

from pydantic import AfterValidator, Field
from starlette.requests import Request
from starlette.responses import Response

from app.core.strict_model import StrictModel
from app.models.http.failures import redact_url
from app.notifications.channel import WEBHOOKS
from app.notifications.channels import CHANNELS
from app.notifications.kinds import KINDS
from app.notifications.sender import LONGEST_URL
from app.policy.entitlements import Kind, check_entitled
from app.storage.notices.notifications import ACTIVE, DISABLED, WEBHOOK, DeliveryRow, TargetRow
from app.transcript.titles import one_line
from routes.protocol.errors import ASCIIResponse, Refused
from routes.protocol.redaction_middleware import SHOWN_ONCE
from routes.protocol.requests import read_fields
from routes.protocol.route import Body, Route, tagged
from routes.services import current_principal, services_of

URLS = {row.kind: row.words for row in CHANNELS.values() if row.family is WEBHOOKS}  # channels with an address


def _one_of(known: Collection[str], what: str) -> AfterValidator:
    def chosen(kind: str) -> str:
        if kind not in known:
            raise ValueError(f"is not {what}; choose from {', '.join(known)}")
        return kind

    return AfterValidator(chosen)


Event = Annotated[str, _one_of(KINDS, "an event that webhooks can receive")]
Kinds = Annotated[list[Event], Field(max_length=len(KINDS))]
Name = Annotated[str, Field(max_length=64), AfterValidator(one_line)]
Url = Annotated[str, Field(min_length=1, max_length=LONGEST_URL)]


class WebhookRequest(StrictModel):
    """The body of POST /webhooks. No `events` are all of them; `everyone`: the events of all principals.

    `channel` is what the address is sent: signed JSON, or a text for people. `decides`: with links that decide.
    """

    url: Url
    name: Name = ""
    events: Kinds = Field(default_factory=list)
    everyone: bool = False
    channel: Annotated[str, _one_of(URLS, "a channel of this server")] = WEBHOOK
    decides: bool = False


class WebhookChange(StrictModel):
    """The body of PATCH /webhooks/{id}."""

    url: Url | None = None
    name: Name | None = None
    events: Annotated[Kinds, Field(min_length=1)] | None = None
    enabled: bool | None = None
    decides: bool | None = None


def target_fields(row: TargetRow) -> dict[str, Any]:
    return {
        "id": row.id,
        "name": row.name,
        "url": redact_url(row.url),
        "events": json.loads(row.events),
        "state": row.state,
        "reason": row.reason or None,
        "failing_since": row.failing,
        "created": row.created,
    }


def webhook_fields(request: Request, row: TargetRow) -> dict[str, Any]:
    targets = services_of(request).notifications.targets
    counts = {"pending": targets.pending.get(row.id, 0), "dropped": targets.dropped.get(row.id, 0)}
    chosen = {"channel": row.kind, "everyone": row.everyone, "decides": row.decides}
    return target_fields(row) | chosen | counts


async def send_test(request: Request, row: TargetRow) -> Response:
    began = time.monotonic()
    attempt = await services_of(request).notifications.test(row)
    took = {"duration_s": round(time.monotonic() - began, 3)}
    outcome = {"delivered": attempt.ok, "status": attempt.status, "error": attempt.error or None}
    return ASCIIResponse(outcome | took)


def delivery_fields(row: DeliveryRow) -> dict[str, Any]:
    """A delivery as its listing shows it; `due` is the time of the next attempt."""
    fields: dict[str, Any] = {"id": row.id, "type": row.kind, "subject": row.subject, "session": row.session or None}
    about = {"created": row.created, "state": row.state, "attempts": row.attempts, "status": row.status}
    times = {"due": None if row.finished else row.due, "finished": row.finished}
    return fields | {"detail": row.detail or None} | about | {"error": row.error or None} | times


async def list_webhooks(request: Request) -> Response:
    """Your webhooks.

    Oldest first, and the `events` and `channels` that there are; `decides` says whether they can have [links that
    decide](notifications.md#links-that-decide). See [notifications](notifications.md).
    """
    there = services_of(request).notifications
    rows = [webhook_fields(request, row) for row in there.targets.of(current_principal(request).name, WEBHOOKS)]
    return ASCIIResponse({"webhooks": rows, "events": KINDS, "channels": URLS, "decides": there.links.are_on})


async def add_webhook(request: Request) -> Response:
    """Add a webhook; only this answer has its secret. `everyone`: the events of all principals, for admins.

    `channel` says what the address gets: see [notifications](notifications.md#other-channels). Only signed ones have a
    secret.
    """
    notifications, principal = services_of(request).notifications, current_principal(request)
    check_entitled(principal, Kind.WEBHOOKS)
    body = await read_fields(request, WebhookRequest, plain=True)
    row = await notifications.add_webhook(
        principal,
        body.url,
        body.name,
        body.events,
        everyone=body.everyone,
        channel=body.channel,
        decides=body.decides,
    )
    return _with_secret(request, row, 201)


async def show_webhook(request: Request) -> Response:
    """A webhook.

    `url` without query, `events`, `state` (`active` or `disabled`), `reason`, `failing_since`, `pending`, `dropped`.
    """
    return ASCIIResponse(webhook_fields(request, _own(request)))


async def change_webhook(request: Request) -> Response:
    """Change a webhook.

    `url`, `name`, `events`, `decides`, or `enabled`, which switches it on again after it was disabled.
    """
    row, principal = _own(request), current_principal(request)
    body = await read_fields(request, WebhookChange, plain=True)
    given = {name: getattr(body, name) for name in ("url", "name", "decides") if getattr(body, name) is not None}
    if body.events is not None:
        given["events"] = json.dumps(body.events)
    if body.enabled is not False:  # it may be switched off in any case
        check_entitled(principal, Kind.WEBHOOKS)
    if body.enabled is not None:
        given["state"] = ACTIVE if body.enabled else DISABLED
        given["reason"] = "" if body.enabled else f"Switched off by {principal.name}."
    if not given:
        raise Refused(422, "invalid_request", "send url, name, events, enabled, decides or several of them")
    changed = await services_of(request).notifications.change(row, principal, given)
    return ASCIIResponse(webhook_fields(request, changed))


async def delete_webhook(request: Request) -> Response:
    """Delete a webhook with its deliveries. Also those that wait."""
    await services_of(request).notifications.remove(_own(request), current_principal(request))
    return Response(status_code=204)


async def new_secret(request: Request) -> Response:
    """Replace the secret. The new one is in this answer only."""
    row = await services_of(request).notifications.new_secret(_own(request), current_principal(request))
    return _with_secret(request, row, 200)


async def test_webhook(request: Request) -> Response:
    """Send a test now. Once; the answer has `delivered`, `status`, `error` and `duration_s`."""
    return await send_test(request, _own(request))


async def list_deliveries(request: Request) -> Response:
    """The last 50 deliveries.

    Newest first: `id`, `type`, `subject`, `state` (`pending`, `delivered` or `dead`), `attempts`, `status`, `error`,
    `due`.
    """
    rows = await services_of(request).notifications.deliveries(_own(request))
    return ASCIIResponse({"deliveries": [delivery_fields(row) for row in rows]})


async def retry_delivery(request: Request) -> Response:
    """Try a delivery again. Its attempts begin anew, with the same id."""
    row = await services_of(request).notifications.retry(_own(request), request.path_params["delivery"])
    return ASCIIResponse(delivery_fields(row), 202)


def _own(request: Request) -> TargetRow:
    notifications = services_of(request).notifications
    return notifications.own(request.path_params["webhook"], WEBHOOKS, current_principal(request))


def _with_secret(request: Request, row: TargetRow, status: int) -> Response:
    setattr(request.state, SHOWN_ONCE, True)
    signs = CHANNELS[row.kind].signs
    secret = {"secret": services_of(request).notifications.secret(row) if signs else None}
    return ASCIIResponse(secret | webhook_fields(request, row), status)


WITH_SECRET = {"id": "text", "secret": "text?"}
ROUTES = tagged(
    "Notifications",
    Route(
        "GET /webhooks",
        list_webhooks,
        rights="user",
        answer={"webhooks": ["@Webhook"], "events": "object", "channels": "object", "decides": "boolean"},
    ),
    Route(
        "POST /webhooks",
        add_webhook,
        rights="not guests",
        answer=WITH_SECRET,
        statuses=(201,),
        errors=(409,),
        body=Body(WebhookRequest, {"url": "https://hooks.example.com/dragoman", "events": ["run.ended"]}),
    ),
    Route("GET /webhooks/{webhook}", show_webhook, rights="owner", answer="@Webhook"),
    Route(
        "PATCH /webhooks/{webhook}",
        change_webhook,
        rights="owner",
        answer="@Webhook",
        errors=(409,),
        body=Body(WebhookChange, {"enabled": True}),
    ),
    Route("DELETE /webhooks/{webhook}", delete_webhook, rights="owner"),
    Route("POST /webhooks/{webhook}/secret", new_secret, rights="owner", answer=WITH_SECRET),
    Route("POST /webhooks/{webhook}/test", test_webhook, rights="owner", answer="@Trial", errors=(409,)),
    Route("GET /webhooks/{webhook}/deliveries", list_deliveries, rights="owner", answer={"deliveries": ["@Delivery"]}),
    Route(
        "POST /webhooks/{webhook}/deliveries/{delivery}/retry",
        retry_delivery,
        rights="owner",
        answer="@Delivery",
        statuses=(202,),
        errors=(409,),
    ),
)
