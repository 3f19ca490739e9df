"""The state that a page shows: runs, approvals, jobs, models. Sent whole first, then its changes."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib.metadata import version
from typing import Any
from weakref import WeakValueDictionary

from msgspec import Struct, field

from app.redaction.redactor import Redactor
from app.storage.principals import Principal
from app.storage.store import Store
from routes.http.approvals import with_path
from routes.http.automation.schedules import reminders_of
from routes.http.jobs import job_fields, seen
from routes.http.runs import run_fields
from routes.services import Services
from tools.base.rights import Role
from tools.jobs.manager import Jobs
from tools.jobs.records import Job, JobsFailed, NoSuchJob

VERSION = version("dragoman")
LOOK_S = 0.4  # the output of a job that runs is looked at this often, however many pages show it
ROOM = 262_144  # characters of rows sent at once, if one is not longer
Row = dict[str, Any]
# Lists that may be long, and the key of their rows: a row that was sent before is sent as its key alone.
KEYS: Mapping[str, Sequence[str]] = {"approvals": ("run", "call"), "jobs": ("id",)}


class Seen(Struct):
    """State read once for all pages of a server: calls that wait, and outputs of jobs."""

    _calls: dict[str, dict[tuple[str, str], Row]] = field(default_factory=dict)  # by principal
    _jobs: dict[str, dict[str, tuple[float, Job, Row]]] = field(default_factory=dict)
    _looking: WeakValueDictionary[str, asyncio.Lock] = field(default_factory=WeakValueDictionary)  # by principal

    async def approvals(self, store: Store, principal: str) -> list[Row]:
        """Oldest first. What is asked for stays as it is while it waits, and may be long. Raises StoreFailed."""
        known, now = self._calls.get(principal, {}), dict[tuple[str, str], Row]()
        for key in await store.pending_calls(principal):
            if key in known:
                now[key] = known[key]
            elif row := await store.approval(*key):
                now[key] = await with_path(store, row)
        _put(self._calls, principal, now)
        return list(now.values())

    async def jobs(self, jobs: Jobs, principal: str) -> list[Row]:
        """Oldest first, each with its last lines; without its age, which only the clock changes."""
        async with self._looking.setdefault(principal, asyncio.Lock()):  # those that come meanwhile get the same
            known, now = self._jobs.get(principal, {}), dict[str, tuple[float, Job, Row]]()
            try:
                there = await jobs.all_of(principal)
            except JobsFailed:  # the database is away: as they were
                return [row for _, _, row in known.values()]
            for job in there:
                at, before, row = known.get(job.id, (0.0, None, Row()))
                if before != job or (job.under_way and time.monotonic() - at > LOOK_S):
                    at, row = time.monotonic(), await _job_row(jobs, job)
                now[job.id] = at, job, row
            _put(self._jobs, principal, now)
        return [row for _, _, row in now.values()]


def _put(kept: dict[str, Any], principal: str, now: dict[Any, Any]) -> None:
    if now:
        kept[principal] = now
    else:
        kept.pop(principal, None)


async def _job_row(jobs: Jobs, job: Job) -> Row:
    fields = job_fields(job)
    with suppress(NoSuchJob, JobsFailed):  # forgotten meanwhile; or its files cannot be read: then without its output
        fields = seen(await jobs.glance(job.id, job.principal))
    return {name: value for name, value in fields.items() if name != "elapsed_s"}


async def state_of(services: Services, principal: Principal, approvals: Sequence[Row], seen_before: Seen) -> Row:
    """`approvals` as `Seen` has them: read only after a notification."""
    default, now = services.models.default, time.time()
    state: Row = {
        "me": {"name": principal.name, "role": principal.role, "approval": services.settings.mode_of(principal.role)},
        "server": {
            "version": VERSION,
            "model": default.provider.model,
            "endpoint": services.models.endpoint.name,
            "embedded": services.models.endpoint.embedded,
            "sandbox": services.factory.sandbox.level,
            "boxed": services.factory.sandbox.boxed,  # commands stay in it, without network
            "networked": services.factory.sandbox.networked,  # all that is open to each is the public network
        },
        "paused": services.switch.paused,
        "runs": [run_fields(row) for row in await services.runs.of(principal.name)],
        "approvals": [row for row in approvals if row["expires_at"] is None or now < row["expires_at"]],
        "reminders": reminders_of(services, principal.name),
        "jobs": await seen_before.jobs(services.jobs, principal.name),
    }
    if principal.role is Role.ADMIN:
        state["downloads"] = services.downloads.rows()
        state["mcp"] = [
            {"name": one.name, "state": one.state, "tools": len(one.tools), "held": [held.tool for held in one.held]}
            for one in services.mcp.status()
        ]
    return state


class Changes:
    """The state that one stream has sent, and the changes since."""

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        self._sent: Row = {}
        self._rows: dict[str, dict[tuple[Any, ...], Row]] = {name: {} for name in KEYS}

    def news(self, now: Row) -> tuple[str, bool]:
        """The changes of `now` since the last call, as JSON, empty if none; and whether more are left for the next."""
        parts, more = ['"type": "state"'], False
        for name, value in now.items():
            if name in self._sent and self._sent[name] == value:
                continue
            if name in KEYS:
                text, left = self._list(name, value)
                more = more or left
            else:
                self._sent[name] = value
                text = json.dumps(self._redactor.redact_value(value))
            parts.append(f'"{name}": {text}')
        return (f"{{{', '.join(parts)}}}" if len(parts) > 1 else ""), more

    def _list(self, name: str, rows: Sequence[Row]) -> tuple[str, bool]:
        sent, size = self._rows[name], 0
        kept, texts = dict[tuple[Any, ...], Row](), list[str]()
        for row in rows:
            known_by = {key: row[key] for key in KEYS[name]}
            key = tuple(known_by.values())
            if sent.get(key) == row:
                text = json.dumps(known_by)
            elif size > ROOM:
                break
            else:
                text = json.dumps(self._redactor.redact_value(row))
                size += len(text)
            kept[key] = row
            texts.append(text)
        self._rows[name], self._sent[name] = kept, list(kept.values())
        return f"[{', '.join(texts)}]", len(kept) < len(rows)
