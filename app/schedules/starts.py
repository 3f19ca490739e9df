"""Beginning the runs of schedules and triggers, with the current rights and the budget of their owners."""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from app.core.rules import ApprovalMode
from app.policy.current_rights import principal_named
from app.policy.entitlements import Kind, check_entitled
from app.runs.composition.unattended import UnattendedRuns, unpinned_options
from app.runs.run_options import RunOptions
from app.storage.principals import Principal
from app.storage.runs import RunRow
from app.storage.schedules import ScheduleRow, TriggerRow
from app.transcript.run_request import NotFound, RunRequest

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
        principal = await principal_named(store, origin.principal)
        check_entitled(principal, Kind.TRIGGERS if isinstance(origin, TriggerRow) else Kind.SCHEDULES)
        session = origin.session if origin.place == "one" else None
        if session and await store.owner_of(session) != principal.name:
            session = None  # it has been deleted
        options = await self._narrowed(principal, unpinned_options(origin.policy), session)
        return await self.unattended.start(principal, options, replace(turn, session=session, budgeted=True))

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
