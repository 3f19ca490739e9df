"""/push: the browsers of a principal that get notifications through their push service."""

from __future__ import annotations

import json
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response

from app.core.strict_model import StrictModel
from app.notifications.channel import BROWSERS
from app.notifications.kinds import KINDS
from app.notifications.web_push import push_key
from app.storage.notices.notifications import TargetRow
from routes.http.notifications.webhooks import Kinds, Name, Url, send_test, target_fields
from routes.protocol.errors import ASCIIResponse
from routes.protocol.requests import read_fields
from routes.protocol.route import Body, Route, tagged
from routes.services import current_principal, services_of

Key = Annotated[str, Field(min_length=1, max_length=256, pattern=r"^[A-Za-z0-9_=-]+$")]


class PushKeys(StrictModel):
    """The public keys of a browser."""

    p256dh: Key
    auth: Key


class SubscriptionRequest(StrictModel):
    """The body of POST /push: what `PushSubscription.toJSON()` returns, with a name and the events."""

    endpoint: Url
    keys: PushKeys
    name: Name = ""
    events: Kinds = Field(default_factory=list)


class SubscriptionChange(StrictModel):
    """The body of PATCH /push/{id}."""

    events: Annotated[Kinds, Field(min_length=1)]


def subscription_fields(row: TargetRow) -> dict[str, object]:
    """A subscription without the path of its address: its path is what allows sending to the browser's push service."""
    return target_fields(row) | {"url": urlsplit(row.url)._replace(path="", query="", fragment="").geturl()}


async def list_subscriptions(request: Request) -> Response:
    """Your browsers with Web Push.

    With the `key` that a browser [subscribes](notifications.md#web-push) with, and the `events` that there are.
    """
    notifications = services_of(request).notifications
    rows = [subscription_fields(row) for row in notifications.targets.of(current_principal(request).name, BROWSERS)]
    return ASCIIResponse({"key": push_key(notifications.keys), "subscriptions": rows, "events": KINDS})


async def subscribe(request: Request) -> Response:
    """Add a browser.

    The body is what its `PushSubscription` says, with a `name` and `events`. What is known of a browser is renewed.
    """
    body = await read_fields(request, SubscriptionRequest, plain=True)
    row = await services_of(request).notifications.subscribe(
        current_principal(request),
        body.endpoint,
        p256dh=body.keys.p256dh,
        auth=body.keys.auth,
        name=body.name,
        events=body.events,
    )
    return ASCIIResponse(subscription_fields(row), 201)


async def change_subscription(request: Request) -> Response:
    """Change what a browser is notified of."""
    row = _own(request)
    body = await read_fields(request, SubscriptionChange)
    given = {"events": json.dumps(body.events)}
    changed = await services_of(request).notifications.change(row, current_principal(request), given)
    return ASCIIResponse(subscription_fields(changed))


async def unsubscribe(request: Request) -> Response:
    """Remove a browser."""
    await services_of(request).notifications.remove(_own(request), current_principal(request))
    return Response(status_code=204)


async def test_subscription(request: Request) -> Response:
    """Send a test now. Once, as for a webhook: the answer has what the push service says."""
    return await send_test(request, _own(request))


def _own(request: Request) -> TargetRow:
    notifications = services_of(request).notifications
    return notifications.own(request.path_params["subscription"], BROWSERS, current_principal(request))


ROUTES = tagged(
    "Notifications",
    Route(
        "GET /push",
        list_subscriptions,
        rights="user",
        answer={"key": "text", "subscriptions": ["@Subscription"], "events": "object"},
    ),
    Route(
        "POST /push",
        subscribe,
        rights="user",
        answer="@Subscription",
        statuses=(200, 201),
        errors=(409,),
        body=Body(
            SubscriptionRequest,
            {
                "endpoint": "https://push.example.com/send/1",
                "keys": {
                    "p256dh": "BCVxsr7N_eNgVRqvHtD0zTZsEc6-VV-JvLexhqUzORcxaOzi6-AYWXvTBHm4bjyPjs7Vd8pZGH6SRpkNtoIAiw4",
                    "auth": "BTBZMqHH6r4Tts7J_aSIgg",
                },
            },
        ),
    ),
    Route(
        "PATCH /push/{subscription}",
        change_subscription,
        rights="owner",
        answer="@Subscription",
        body=Body(SubscriptionChange, {"events": ["run.ended"]}),
    ),
    Route("DELETE /push/{subscription}", unsubscribe, rights="owner"),
    Route("POST /push/{subscription}/test", test_subscription, rights="owner", answer="@Trial", errors=(409,)),
)
