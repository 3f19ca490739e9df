"""Rows of ann's in the database, for the table of all routes."""

from __future__ import annotations

import json
import time

from app.notifications import push_encryption
from app.storage.notices.notifications import DeliveryRow, TargetRow
from app.storage.people.prompts import PromptRow
from app.storage.people.sign_ins import SignInRow
from app.storage.schedules import ScheduleRow, TriggerRow
from tests.support.server.serving import Served


async def targets_of_ann(served: Served, run: str) -> dict[str, str]:
    """A webhook with a delivery, and a browser; nothing is sent to either, since they are on this machine."""
    keys = json.dumps({"p256dh": push_encryption.public_key(push_encryption.new_scalar()), "auth": "A" * 22})
    events, url = json.dumps(["run.ended"]), "https://127.0.0.1:9/"
    webhook = TargetRow("whk_" + "1" * 20, "ann", "webhook", "hook", url, events, False, 1, "{}", 1.0)
    browser = TargetRow("psh_" + "1" * 20, "ann", "push", "browser", url, events, False, 1, keys, 1.0)
    delivery = DeliveryRow("msg_" + "1" * 32, webhook.id, "ann", "run.ended", "", run, "answered", 1.0, "dead")
    await served.services.notifications.targets.put(webhook, delivery)
    await served.services.notifications.targets.put(browser)
    return {"webhook": webhook.id, "delivery": delivery.id, "subscription": browser.id}


async def schedules_of_ann(served: Served) -> dict[str, str]:
    """A schedule and a trigger, both switched off."""
    times = ("every", "1d", "UTC")
    schedule = ScheduleRow("sch_" + "1" * 20, "ann", "x", *times, "Go.", "{}", "new", "run", 0.0, False, 1.0)
    trigger = TriggerRow("trg_" + "1" * 20, "ann", "x", "bearer", "0" * 64, "Go.", "", "{}", "new", False, 1.0)
    await served.services.automation.scheduler.put(schedule, "made", "ann")
    await served.services.automation.triggers.put(trigger, "made", "ann")
    return {"schedule": schedule.id, "trigger": trigger.id}


async def kept_of_ann(served: Served) -> dict[str, str]:
    """A stored prompt, and a browser that stays signed in."""
    prompt = PromptRow("ann", "prompt-of-hers", "", "Hello", 1.0)
    sign_in = SignInRow("sgn_" + "1" * 16, "0" * 64, "0" * 64, "ann", "Firefox", 1.0, 1.0, time.time() + 3600)
    await served.services.store.write([prompt, sign_in])
    return {"prompt": prompt.name, "sign_in": sign_in.id}
