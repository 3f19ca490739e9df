"""The messages to targets: little content, and no secrets. They name what happened and where to look.

Events of other principals, for a webhook of an admin, have neither title nor link: admins cannot open these sessions.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from app.notifications.kinds import APPROVAL, BUDGET, CANARY, JOB, KINDS, RESPONSES, RUN, TARGET, TEST
from app.notifications.sender import iso_time
from app.redaction.redactor import Redactor
from app.storage.notices.notifications import DeliveryRow, TargetRow
from app.storage.store import Store
from app.transcript.titles import one_line

LONGEST_TITLE = 120
SUBJECTS = {RUN: "run", APPROVAL: "run", CANARY: "run", JOB: "job", BUDGET: "budget", TARGET: "webhook"}
SUBJECTS |= dict.fromkeys(RESPONSES, "run")
DETAILS = {RUN: "reason", JOB: "state", BUDGET: "used", TARGET: "name"}
TEST_TITLE = "This is a test."


class Messages:
    """`public_url` is where people reach this server, without a `/` at the end; links are relative without it."""

    def __init__(self, store: Store, redactor: Redactor, public_url: str = "") -> None:
        self._store = store
        self._redactor = redactor
        self._public_url = public_url

    async def full(self, row: DeliveryRow, target: TargetRow) -> Any:
        """Return what a program gets: `type`, `timestamp` and `data`. Raises StoreFailed."""
        if row.kind in RESPONSES:
            event = {"id": row.id.replace("msg_", "evt_"), "object": "event", "created_at": int(row.created)}
            return event | {"type": row.kind, "data": {"id": row.subject.replace("run_", "resp_")}}
        body = {"type": row.kind, "timestamp": iso_time(row.created), "data": await self._data(row, target)}
        return self._redactor.redact_value(body)

    async def short(self, row: DeliveryRow, target: TargetRow) -> Any:
        """Return what a person is shown: texts by `title`, `body`, `tag`, and the place. Raises StoreFailed."""
        data = await self._data(row, target)
        words = KINDS.get(row.kind, TEST_TITLE)
        detail = row.detail if row.kind in DETAILS else data.get("tool", "")
        shown = {
            "title": f"{words} ({detail})" if detail else words,
            "body": data.get("title", ""),
            "session": row.session,
            "run": data.get("run", ""),
            "call": data.get("call", ""),
            "tag": f"{row.kind}/{row.subject}",
            "link": data.get("link", ""),
        }
        return self._redactor.redact_value(shown)

    async def _data(self, row: DeliveryRow, target: TargetRow) -> Mapping[str, Any]:
        data: dict[str, Any] = {"principal": row.principal} if target.everyone else {}
        if row.kind == TEST:
            return data | {"title": TEST_TITLE}
        data[SUBJECTS[row.kind]] = row.subject
        place = row.session
        if row.kind == APPROVAL and row.detail:
            data["call"] = row.detail
            place = f"{row.session}/{row.subject}/call={row.detail}"
        if row.kind in DETAILS:
            data[DETAILS[row.kind]] = row.detail
        if row.session:
            data["session"] = row.session
        if row.session and row.principal == target.principal:
            data |= {"title": await self._title(row.session), "link": f"{self._public_url}/#{place}"}
        if data.get("title") and (call := await self._store.approval(row.subject, row.detail)):
            data["tool"] = one_line(call.name)[:LONGEST_TITLE]
        return data

    async def _title(self, session: str) -> str:
        if await self._store.session_labels([session]):
            return ""  # what is labelled goes only where a rule lets it
        row = await self._store.session(session)
        return one_line(row.title)[:LONGEST_TITLE] if row else ""
