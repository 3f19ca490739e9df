"""Operations on schedules, triggers, webhooks and Web Push."""

from __future__ import annotations

from app.schedules.requests import ScheduleRequest, TriggerRequest
from routes.http.notifications.push import SubscriptionChange, SubscriptionRequest
from routes.http.notifications.webhooks import WebhookChange, WebhookRequest
from routes.openapi.operation import Operation, rows

EVENTS = {"events": "object"}
WITH_SECRET = {"id": "text", "secret": "text"}
OF_SCHEDULES = rows(
    "Schedules and triggers",
    Operation("GET /schedules", "Your schedules", {"schedules": ["@Schedule"]}),
    Operation(
        "POST /schedules",
        "Add a schedule",
        "@Schedule",
        ScheduleRequest,
        "not guests",
        ok=(201,),
        errors=(403, 409),
        example={"name": "News", "message": "What is new?", "cron": "30 7 * * MON-FRI", "time_zone": "Europe/Berlin"},
    ),
    Operation("GET /schedules/{schedule}", "A schedule", "@Schedule", rights="owner"),
    Operation(
        "PATCH /schedules/{schedule}",
        "Change fields of a schedule",
        "@Schedule",
        ScheduleRequest,
        "owner",
        errors=(403, 409),
        partial=True,
        example={"enabled": False},
    ),
    Operation("DELETE /schedules/{schedule}", "Delete a schedule", rights="owner", ok=(204,)),
    Operation(
        "POST /schedules/{schedule}/run",
        "Begin a run of a schedule now",
        "@Begun",
        rights="owner",
        ok=(202,),
        errors=(403, 409),
    ),
    Operation("GET /triggers", "Your triggers", {"triggers": ["@Trigger"]}),
    Operation(
        *(
            "POST /triggers",
            "Add a trigger; only this answer has its secret",
            WITH_SECRET,
            TriggerRequest,
            "not guests",
        ),
        ok=(201,),
        errors=(403, 409),
        example={"name": "Build", "message": "Look at the failed build."},
    ),
    Operation("GET /triggers/{trigger}", "A trigger", "@Trigger", rights="owner"),
    Operation(
        "PATCH /triggers/{trigger}",
        "Change fields of a trigger",
        "@Trigger",
        TriggerRequest,
        "owner",
        errors=(403, 409),
        partial=True,
        example={"enabled": False},
    ),
    Operation("DELETE /triggers/{trigger}", "Delete a trigger", rights="owner", ok=(204,)),
    Operation("POST /triggers/{trigger}/secret", "Replace the secret", WITH_SECRET, rights="owner"),
    Operation(
        "POST /triggers/{trigger}",
        "A delivery, proven with the trigger's signature or secret",
        "@Begun",
        "object",
        rights="open",
        ok=(200, 202),
        errors=(401, 403, 404, 409),
        example={"build": 17, "result": "failed"},
    ),
)
OF_NOTIFICATIONS = rows(
    "Notifications",
    Operation("GET /webhooks", "Your webhooks", {"webhooks": ["@Webhook"], **EVENTS}),
    Operation(
        "POST /webhooks",
        "Add a webhook; only this answer has its secret",
        WITH_SECRET,
        WebhookRequest,
        "not guests",
        (201,),
        (403, 409),
        example={"url": "https://hooks.example.com/dragoman", "events": ["run.ended"]},
    ),
    Operation("GET /webhooks/{webhook}", "A webhook", "@Webhook", rights="owner"),
    Operation(
        "PATCH /webhooks/{webhook}",
        "Change a webhook",
        "@Webhook",
        WebhookChange,
        "owner",
        errors=(403, 409),
        example={"enabled": True},
    ),
    Operation("DELETE /webhooks/{webhook}", "Delete a webhook with its deliveries", rights="owner", ok=(204,)),
    Operation("POST /webhooks/{webhook}/secret", "Replace the secret", WITH_SECRET, rights="owner"),
    Operation("POST /webhooks/{webhook}/test", "Send a test now", "@Trial", rights="owner", errors=(409,)),
    Operation(
        "GET /webhooks/{webhook}/deliveries",
        "The last 50 deliveries",
        {"deliveries": ["@Delivery"]},
        rights="owner",
    ),
    Operation(
        "POST /webhooks/{webhook}/deliveries/{delivery}/retry",
        "Try a delivery again",
        "@Delivery",
        rights="owner",
        ok=(202,),
        errors=(409,),
    ),
    Operation(
        "GET /push", "Your browsers with Web Push", {"key": "text", "subscriptions": ["@Subscription"], **EVENTS}
    ),
    Operation(
        "POST /push",
        "Add a browser",
        "@Subscription",
        SubscriptionRequest,
        ok=(200, 201),
        errors=(409,),
        example={
            "endpoint": "https://push.example.com/send/1",
            "keys": {
                "p256dh": "BCVxsr7N_eNgVRqvHtD0zTZsEc6-VV-JvLexhqUzORcxaOzi6-AYWXvTBHm4bjyPjs7Vd8pZGH6SRpkNtoIAiw4",
                "auth": "BTBZMqHH6r4Tts7J_aSIgg",
            },
        },
    ),
    Operation(
        "PATCH /push/{subscription}",
        "Change what a browser is notified of",
        "@Subscription",
        SubscriptionChange,
        rights="owner",
        example={"events": ["run.ended"]},
    ),
    Operation("DELETE /push/{subscription}", "Remove a browser", rights="owner", ok=(204,)),
    Operation("POST /push/{subscription}/test", "Send a test now", "@Trial", rights="owner", errors=(409,)),
)
OPERATIONS = (*OF_SCHEDULES, *OF_NOTIFICATIONS)
