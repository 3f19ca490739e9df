"""Rows of ann's in the database, for the table of all routes."""

from __future__ import annotations

import json
import time
from contextlib import aclosing

from app.memory.memories import Source
from app.notifications import push_encryption
from app.storage.approvals import GrantRow
from app.storage.documents import DocumentRow, VersionRow
from app.storage.library.folders import FolderRow
from app.storage.library.shares import ShareRow
from app.storage.notices.notifications import DeliveryRow, TargetRow
from app.storage.people.permissions import PermissionRow
from app.storage.people.prompts import PromptRow
from app.storage.people.sign_ins import SignInRow
from app.storage.profiles import ProfileRow
from app.storage.schedules import ScheduleRow, TriggerRow
from routes.access.token_text import fingerprint
from tests.support.models.pictures import CAT, hashed, image_part, text_part
from tests.support.server.background_jobs import job_of
from tests.support.server.serving import Served, until


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
    """A stored prompt, a browser that stays signed in, and a standing permission."""
    prompt = PromptRow("ann", "prompt-of-hers", "", "Hello", 1.0)
    sign_in = SignInRow("sgn_" + "1" * 16, "0" * 64, "0" * 64, "ann", "Firefox", 1.0, 1.0, time.time() + 3600)
    given = PermissionRow("prm_" + "1" * 20, "ann", "write_file", "{}", 1.0, "ann", "run_1", "call_1")
    await served.services.store.write([prompt, sign_in, given])
    return {"prompt": prompt.name, "sign_in": sign_in.id, "permission": given.id}


async def things_of_ann(served: Served) -> dict[str, str]:
    """A background job that runs, and a call that waits for her."""
    _, job = await job_of(served)
    async with aclosing(served.turn(message=[text_part("x"), image_part(CAT)], approval="ask")) as turn:
        started = await until(turn, "run.started")
        question = await until(turn, "approval.required")
    grant = GrantRow("grt_" + "1" * 20, started["session"], "ann", "write_file", 1.0, "ann", "0" * 64)
    document = DocumentRow("doc_" + "1" * 20, started["session"], "Notes", "plain", 1, 1, 1.0, 1.0)
    version = VersionRow(document.id, 1, "model", started["run"], question["call"], 1.0, "Milk")
    profile = ProfileRow("ann", "profile_of_hers", "{}", "ann", 1.0)
    parts = '{"tool_results": true, "attachments": false}'
    token = "dgm_" + "1" * 43
    shown = json.dumps({"runs": [], "earlier": False, "files": [hashed(CAT)]})
    share = ShareRow("shr_" + "1" * 20, fingerprint(token), started["session"], "ann", 1.0, 1.0, None, "", parts, shown)
    folder = FolderRow("fld_" + "1" * 20, "ann", "Travels of hers", 1.0)
    await served.services.store.write([grant, document, version, profile, folder, share])
    named = {
        "document": document.id,
        "folder": folder.id,
        "share": share.id,
        "token": token,
        "number": "7" * 12,
        "profile": profile.name,
    }
    kept, _ = await served.services.factory.memories.remember("ann", "Likes milk", "fact", Source())
    named |= {"memory": kept.id}
    named |= {"change": "chg_" + "1" * 20}
    named |= {"name": "carl", "action": "reconnect", "endpoint": "hosted", "path": "icon.svg"}
    ids = {"session": started["session"], "run": started["run"], "call": question["call"], "sha256": hashed(CAT)}
    named |= await targets_of_ann(served, started["run"]) | await schedules_of_ann(served)
    named |= await kept_of_ann(served)
    return {"job": job, "grant": grant.id, **ids, **named}
