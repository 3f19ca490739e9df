"""The outbox: deliveries made of events, as rows of the database, before anything is sent.

A row for an event of a run is written in the transaction of that event, so that a crash neither loses a delivery nor
invents one. What has no log (ends of jobs, budgets) is turned into rows again after a restart. In both cases the id of
a row is made of its target and its event: written twice, it is there once.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Sequence

from msgspec import Struct

from app.core.events import TERMINAL, ApprovalRequired, Notice
from app.core.settings_fields import DAY_S
from app.notifications.kinds import APPROVAL, BUDGET, CANARY, COMPLETED, ENDS, INCOMPLETE, JOB, RUN, TARGET
from app.notifications.targets import Targets
from app.policy.guards import CANARY as CANARY_NOTICE
from app.storage.changes import Change
from app.storage.notices.notifications import DeliveryRow
from app.storage.runs import EventRow, RunRow
from app.transcript.run_request import HELPER, LANE, mark_of
from tools.jobs.records import Job

LATE_S = DAY_S  # ends of jobs before that are history; their deliveries are kept for longer
LOOKED_AT = frozenset({ApprovalRequired.type, Notice.type}) | TERMINAL


class Event(Struct, frozen=True):
    """An event of a principal; `key` is the same whenever it is made of the same occurrence."""

    kind: str
    principal: str
    key: str
    session: str
    subject: str
    detail: str


class Outbox:
    """Turns events into changes. `written` is called with the ids of the targets that they are for."""

    def __init__(
        self,
        targets: Targets,
        percent: int,
        put: Callable[[Change], None],
        written: Callable[[str], None],
        now: Callable[[], float] = time.time,
    ) -> None:
        self._targets = targets
        self._percent = percent
        self._put = put
        self._written = written
        self._now = now
        self._short: set[str] = set()  # responses in the background whose answers were cut by a limit
        self._reported: set[tuple[str, str, str]] = set()  # budgets: principal, name, period

    def of_run(self, row: RunRow, events: Sequence[EventRow]) -> list[Change]:
        """Return the deliveries of events of a run, to be written with them."""
        if self._targets.are_none_active:
            return []
        seen = [event for event in events if event.type in LOOKED_AT]
        found = [made for event in seen for made in (_of_run(row, event), self._of_response(row, event))]
        return [change for event in found if event for change in self._deliveries(event)]

    def _of_response(self, row: RunRow, event: EventRow) -> Event | None:
        """The end of a response in the background."""
        kept = mark_of(row, LANE)
        if not kept or kept["name"] != "responses" or not kept["background"]:
            return None
        fields = json.loads(event.data)
        if event.type not in TERMINAL:
            self._short |= {row.id} if fields.get("code") in ("cut", "refusal") else set()
            return None
        kind = ENDS.get(fields.get("reason"), INCOMPLETE)
        kind = INCOMPLETE if kind == COMPLETED and row.id in self._short else kind
        self._short.discard(row.id)
        return Event(kind, principal=row.principal, key=row.id, session=row.session, subject=row.id, detail="")

    def job_ended(self, job: Job) -> None:
        """Put the deliveries of an ended job; also of one that had ended before."""
        if self._targets.are_none_active or job.ended is None or job.ended < self._now() - LATE_S:
            return
        event = Event(
            JOB, principal=job.principal, key=job.id, session=job.session, subject=job.id, detail=str(job.state)
        )
        self._put_all(self._deliveries(event, since=job.ended))

    def budget_used(self, principal: str, budget: str, period: str, used: float, limit: float) -> None:
        """Put the deliveries of a budget that is nearly spent, once in its period."""
        known = principal, budget, period
        if self._targets.are_none_active or not self._percent or known in self._reported:
            return
        if used * 100 >= limit * self._percent:
            self._reported.add(known)
            key = f"{principal}:{budget}:{period}"
            self._put_all(
                self._deliveries(
                    Event(BUDGET, principal=principal, key=key, session="", subject=budget, detail=f"{self._percent}%")
                )
            )

    def target_disabled(self, target: str, principal: str, name: str) -> None:
        """Put deliveries to the owner's other targets."""
        event = Event(
            TARGET, principal=principal, key=f"{target}:{self._now()}", session="", subject=target, detail=name
        )
        self._put_all(self._deliveries(event))

    def _put_all(self, changes: Sequence[Change]) -> None:
        for change in changes:
            self._put(change)

    def _deliveries(self, event: Event, since: float | None = None) -> list[Change]:
        rows = list[Change]()
        now = self._now()
        for target in self._targets.wanting(event.kind, event.principal):
            if (since is None or since >= target.created) and self._targets.take_place(target.id):
                number = delivery_id(target.id, f"{event.kind}:{event.key}")
                about = event.principal, event.kind, event.session, event.subject, event.detail
                rows.append(DeliveryRow(number, target.id, *about, now, due=now))
                self._written(target.id)
        return rows


def delivery_id(target: str, key: str) -> str:
    return f"msg_{hashlib.sha256(f'{target} {key}'.encode()).hexdigest()[:32]}"


def _of_run(row: RunRow, event: EventRow) -> Event | None:
    fields = json.loads(event.data)
    match event.type:
        case ApprovalRequired.type:
            kind, detail = APPROVAL, str(fields["call"])
        case Notice.type if fields["code"] == CANARY_NOTICE:
            kind, detail = CANARY, ""
        case Notice.type:
            return None
        case _ if HELPER in json.loads(row.policy):
            return None  # its end is a step of the run that it helps
        case _:
            kind, detail = RUN, str(fields.get("reason") or fields.get("code") or "")
    return Event(
        kind=kind,
        principal=row.principal,
        key=f"{row.id}:{event.seq}",
        session=row.session,
        subject=row.id,
        detail=detail,
    )
