"""Beginning the runs of schedules and triggers, with the current rights and the budget of their owners."""

from __future__ import annotations

import json

from msgspec import Struct
from msgspec.structs import replace

from app.core.rules import ApprovalMode
from app.policy.current_rights import principal_named
from app.policy.entitlements import Kind, check_entitled
from app.runs.composition.unattended import UnattendedRuns, unpinned_options
from app.runs.run_options import RunOptions
from app.storage.principals import Principal
from app.storage.runs import RunRow
from app.storage.schedules import HERE, ONE, ScheduleRow, TriggerRow
from app.transcript.run_request import NotFound, RunRequest, speaker_of


class ConversationGone(NotFound):
    """The conversation that a schedule answers in was deleted."""


KEPT = 20  # occurrences of each schedule and trigger


class Starts(Struct, frozen=True):
    """Starts runs for stored rows."""

    unattended: UnattendedRuns

    async def begin(self, origin: ScheduleRow | TriggerRow, turn: RunRequest) -> RunRow:
        """Begin a run in the session of its origin, or find the one that the same key has begun.

        Raises NotFound where its owner or what it needs is there no more, NotEntitled, BudgetSpent, SessionBusy,
        KeyReused, Paused, Stopping, StoreFailed.
        """
        store = self.unattended.factory.store
        principal = await principal_named(store, origin.principal, speaker_of(origin))
        self.check_owner(principal, Kind.TRIGGERS if isinstance(origin, TriggerRow) else Kind.SCHEDULES)
        session = origin.session if origin.place in (ONE, HERE) else None
        if session and await store.owner_of(session) != principal.name:  # it has been deleted
            if origin.place == HERE:
                raise ConversationGone(f"Its conversation {session} was deleted, so it is switched off.")
            session = None
        options = unpinned_options(origin.policy)
        if session and origin.place == HERE:
            options = await self._as_last(options, session)
            turn = replace(turn, when_busy="queue")
        options = await self._narrowed(principal, options, session)
        return await self.unattended.start(principal, options, replace(turn, session=session, budgeted=True))

    def check_owner(self, principal: Principal, kind: Kind) -> None:
        """Raises NotEntitled."""
        guests = kind is Kind.SCHEDULES and self.unattended.factory.settings.schedules_per_guest > 0
        check_entitled(principal, kind, guests=guests)

    async def _as_last(self, options: RunOptions, session: str) -> RunOptions:
        """Return the options with the profile and the model of the last run there, where they name none."""
        last = await self.unattended.factory.store.last_runs(session, None, 1)
        kept = json.loads(last[0].policy) if last else {}
        given = {name: getattr(options, name) or kept.get(name) for name in ("profile", "model", "time_zone")}
        return options.model_copy(update=given)

    async def check(self, principal: Principal, options: RunOptions) -> None:
        """Raises NotFound if no run with these options could begin now."""
        if options.permissions:
            known = {row.id for row in await self.unattended.factory.store.permissions(principal.name)}
            if missing := [one for one in options.permissions if one not in known]:
                raise NotFound(f"permissions: you have no {', '.join(map(ascii, missing[:5]))}; see GET /permissions")
        await self.unattended.check(principal, await self._narrowed(principal, options))

    async def _narrowed(self, principal: Principal, options: RunOptions, session: str | None = None) -> RunOptions:
        """Return the options with what a run without a person gets: reading tools unless it names some, no approvals.

        The names are stored with the run, so that it has the same tools after a restart. Raises NotFound.
        """
        narrowed: dict[str, object] = {}
        if options.approval is None:
            narrowed["approval"] = ApprovalMode.DENY
        if options.tools is None:
            narrowed["tools"] = await self.unattended.reading_tools(principal, options, session)
        return options.model_copy(update=narrowed)
