"""Stored sessions as their decisions are tried again on: messages, runs, and the facts that are not stored with them.

Earlier versions stored decisions without the facts that they rested on, which are inferred here. A recorded run has the
rights and the tools that it began with; else the rights are those of now. Untrusted text, plans, labels and grants are
those of the moment, but a grant that was withdrawn since is not known any more.
"""

from __future__ import annotations

import json
from typing import Any, Self

from msgspec import Struct, field
from msgspec.structs import replace

from app.config.settings import Settings
from app.core import events
from app.core.messages import AskedCall, Message
from app.core.rules import ApprovalMode
from app.policy.call_rows import PROVENANCE_ROW
from app.policy.current_rights import principal_named
from app.policy.decision_facts import Facts, OtherTool
from app.policy.grants import Grant, grant_of
from app.policy.guards import CANARY, JUDGE, SCREEN
from app.runs.recording import parts
from app.runs.recording.world import principal_part
from app.runs.run_options import RunOptions
from app.storage.audit import AuditRow
from app.storage.labels import SessionLabel
from app.storage.runs import RunRow
from app.storage.store import Store
from app.transcript.run_request import NotFound
from tools.builtin.submit_plan import NAME as SUBMIT_PLAN
from tools.sandbox.bubblewrap import Bubblewrap

FIRST = 16  # events in which a run has begun
NO_PRINCIPAL = "their principal has no token any more, and its role was not stored"


class Untried(Exception):
    """A call cannot be tried. The message is the reason, of many calls."""


class RunBegin(Struct, frozen=True):
    """The beginning of a run: its recorded world, if there is one, and the limits that its log states."""

    world: parts.Begin | None
    limits: dict[str, Any]
    started: set[str]  # the calls whose tools were run


class PastSession(Struct):
    """One session. `calls` are the model's, by their ids, `results` the positions of their results."""

    id: str
    messages: list[Message]
    runs: dict[str, RunRow]
    calls: dict[str, AskedCall]
    results: dict[str, int]
    _begins: dict[str, RunBegin] = field(default_factory=dict)
    _grants: list[Grant] | None = None
    _labels: list[SessionLabel] | None = None

    @classmethod
    async def read(cls, store: Store, session: str) -> Self:
        """Raises StoreFailed."""
        messages = await store.messages(session)
        return cls(
            session,
            messages,
            {row.id: row for row in await store.runs(session)},
            {call.id: call for message in messages for call in message.calls},
            {message.call: at for at, message in enumerate(messages) if message.call},
        )

    def before(self, call: str) -> list[Message]:
        """Return the messages that preceded the result of a call: all that its decision could know of."""
        return self.messages[: self.results.get(call, len(self.messages))]

    async def grants(self, store: Store, row: AuditRow) -> list[Grant]:
        """Return the grants that held at a decision, unless they were withdrawn since. Raises StoreFailed."""
        if self._grants is None:
            self._grants = [grant_of(one) for one in await store.grants(self.id)]
        held = (one for one in self._grants if one.created < row.at and (one.expires is None or row.at < one.expires))
        return [replace(one, expires=None) for one in held]

    async def inferred(self, store: Store, settings: Settings, row: AuditRow, options: RunOptions) -> Facts:
        """Return the facts of a decision that was stored without them. Raises Untried, StoreFailed, ValueError."""
        begin = await self._begin(store, row.run or "")
        world, limits = begin.world, begin.limits
        rights = world.principal if world else await _rights_now(store, row.principal)
        before = self.before(row.call or "")
        if self._labels is None:
            self._labels = await store.session_labels([self.id])
        labels = [one for one in self._labels if one.at <= row.at]
        mode = ApprovalMode(limits.get("approval") or options.approval or settings.mode_of(rights.role))
        boxed = limits.get("sandbox") == Bubblewrap.level and not settings.sandbox_network
        tainted = any(one.untrusted for one in before)
        accepted = any(one.name == SUBMIT_PLAN and one.call in begin.started for one in before)
        part = next((one for one in world.tools if one.name == row.action), None) if world else None
        return Facts(
            role=rights.role,
            tools=tuple(rights.tools),
            off=tuple(rights.disabled),
            workspace=world.workspace if world else str(settings.workspace),
            mode=mode,
            when_absent=options.when_absent,
            boxed=world.boxed if world else boxed,
            networked=world.networked if world else settings.sandbox_network,
            tainted=settings.taint and tainted,
            planning=options.plans and not accepted,
            disabled=tuple(world.disabled) if world else (),
            labels=tuple(sorted({one.label for one in labels})),
            labelled=max((one.at for one in labels), default=0.0),
            harmless=row.decision == "allow",
            objection=row.by if row.by in (CANARY, SCREEN, JUDGE) else "",
            hook=(row.decision, row.by) if row.by.startswith("hook") else None,
            quoted=row.by == PROVENANCE_ROW.name,
            handed=row.action in {one.name for one in options.client_tools or ()},
            through=part.through if part else "",
            other=_other_tool(part),
        )

    async def _begin(self, store: Store, run: str) -> RunBegin:
        if run not in self._begins:
            rows = [one for one in await store.recording(run) if one.kind == parts.BEGIN]
            world = parts.unpacked(rows[0], parts.Begin) if rows else None
            logged = await store.events(run, 0, FIRST)
            started: dict[str, Any] = next(
                (json.loads(one.data) for one in logged if one.type == events.RunStarted.type), {}
            )
            self._begins[run] = RunBegin(world, started.get("limits", {}), await store.started_calls(run))
        return self._begins[run]


async def _rights_now(store: Store, name: str) -> parts.PrincipalPart:
    try:
        return principal_part(await principal_named(store, name))
    except NotFound:
        raise Untried(NO_PRINCIPAL) from None


def _other_tool(part: parts.ToolPart | None) -> OtherTool | None:
    if part is None:
        return None
    server, tool = part.origin or ("", "")
    return OtherTool(
        part.role, part.risk, part.approval, part.confined, untrusted=part.untrusted, server=server, tool=tool
    )
