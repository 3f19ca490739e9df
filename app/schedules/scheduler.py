"""The scheduler: begins runs at the times of schedules, at most once each, and records what became of each time.

One timer waits for the nearest time; without schedules there is none. It waits a minute at most, so that it notices a
clock that is set, or a machine that slept. A time that is handled moves its schedule to the next one in the transaction
that creates the run: after a kill either both are there, or neither, and then the time is a missed one.

    due --- paused, stopping, store failed ---> stays due (as while the owner has the most active runs)
     |---- later than LATE_S, missed: skip ---> missed
     |---- last run still under way ----------> skipped
     |---- owner, tools or budget gone -------> refused
     |---- its conversation deleted ----------> refused, and switched off
     +---- else ------------------------------> started
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from secrets import token_hex

from msgspec import Struct
from msgspec.structs import replace

from app.budget.kinds import BudgetSpent
from app.config.folders import FolderUnusable
from app.core.events import Notice
from app.core.settings_fields import DAY_S
from app.schedules.starts import KEPT, ConversationGone, Starts
from app.schedules.times import MOST_COUNTED, Timetable, UnfitTime, jitter
from app.schedules.words import reminder_message
from app.storage.audit import AuditRow
from app.storage.changes import Change, StoreFailed
from app.storage.runs import RunRow
from app.storage.schedules import (
    HERE,
    MISSED,
    ONE,
    REFUSED,
    SKIPPED,
    STARTED,
    OccurrenceRow,
    OccurrencesTrimmed,
    ScheduleMoved,
    ScheduleRemoved,
    ScheduleRow,
)
from app.transcript.run_request import IdempotencyKey, NotFound, RunRequest, SessionBusy, Stopping, speaker_of
from tools.base.pause_check import Paused

LATE_S = 90.0  # from which on a time counts as missed
MOST_WAIT_S = 60.0
RETRY_S = 60.0  # until what stayed due is tried again
STORE_RETRY_S = 5.0  # until the store is: a database restarts in seconds
BY = "schedule"
UNDER_WAY = "Run {run} of the time before is still under way."
UNLINKED = "{member}, who has set it, is not linked any more, so it is switched off."
LATE = "It was due at {due}, when the server was off, paused or busy."
SEVERAL = " {count} times were missed, of which this is the first."
NOT_ALL = " At least {count} times were missed, of which this is the first."

_log = logging.getLogger(__name__)


class Due(Struct, frozen=True):
    """One time of a schedule that has come; `at` is None for a run that a person wants now."""

    row: ScheduleRow
    now: float
    at: float | None
    following: float | None
    late: str = ""

    @property
    def occurrence(self) -> str:
        return f"now {token_hex(8)}" if self.at is None else f"{self.at:.6f}"

    def moved(self, run: RunRow | None = None) -> ScheduleRow:
        """The schedule once this time has been handled."""
        session = run.session if run and self.row.place == ONE else self.row.session
        reckoned = self.row.reckoned if self.at is None else self.now
        return replace(
            self.row, next=self.following, reckoned=reckoned, session=session, run=run.id if run else self.row.run
        )


class Scheduler:
    """The schedules of one server. Call `wake()` whenever it may go on."""

    def __init__(self, starts: Starts, clock: Callable[[], float] = time.time) -> None:
        self._starts = starts
        self._factory = starts.unattended.factory
        self._clock = clock
        self._rows: dict[str, ScheduleRow] = {}
        self._not_before: dict[str, float] = {}  # of those that stay due
        self._refusals: dict[str, str] = {}  # the reason that the audit has, for each schedule
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None
        peers = self._factory.runs.peers
        self.lock = peers.changing("", self.read, kind="schedules")  # held while a time or a change is handled
        # To be held from when a schedule is read until its change is written.
        self.changing = peers.changing("schedules", self.read)
        self._rests = True

    async def begin(self) -> None:
        """Read the schedules; what was due while the server was off begins now. Raises StoreFailed."""
        self._rests = False
        await self.load()

    async def load(self) -> None:
        """Read the schedules. Raises StoreFailed."""
        await self.read()
        self.wake()

    async def read(self) -> None:
        self._rows = {row.id: row for row in await self._factory.store.schedules()}

    async def rest(self) -> None:
        self._rests = True
        if self._timer:
            self._timer.cancel()
            self._timer = None
        if self._task:
            await asyncio.wait([self._task])

    def of(self, principal: str) -> list[ScheduleRow]:
        """Oldest first."""
        return [row for row in self._rows.values() if row.principal == principal]

    def get(self, schedule: str, principal: str) -> ScheduleRow:
        """Raises NotFound."""
        row = self._rows.get(schedule)
        if row is None or row.principal != principal:
            raise no_schedule(schedule)
        return row

    def fires_at(self, row: ScheduleRow) -> float | None:
        """Return when a schedule begins its next run, jitter included; None if it begins none."""
        if not row.enabled or row.next is None or not self._factory.settings.max_schedules:
            return None
        return row.next + jitter(row.id, row.next, row.jitter_s)

    async def put(self, row: ScheduleRow, decision: str, by: str) -> ScheduleRow:
        """Store a schedule that was made or changed; one with new times waits for the next of them from now on.

        If `reckoned` says when its times were checked, it is from then on: one that has come meanwhile is due. One
        whose times are those that it had goes on with them: what was due and held up still is.
        """
        async with self.lock:
            known = self._rows.get(row.id)
            now = self._clock()
            since = now if row.reckoned is None else min(row.reckoned, now)
            if known:  # a run may have begun meanwhile
                kept = known.session if known.place == row.place else None
                row = replace(row, session=row.session if row.place == HERE else kept, run=known.run)
                if known.reckoned is not None and timetable(known) == timetable(row):
                    handled = min(known.reckoned, now)
                    since = handled if known.enabled else max(since, handled)
            row = replace(row, next=timetable(row).after(since) if row.enabled else None, reckoned=since)
            await self._factory.store.write([row, self._audit(row, decision, row.name, by)])
            self._keep(row)
        return row

    async def remove(self, row: ScheduleRow, by: str) -> None:
        async with self.lock:
            gone = [ScheduleRemoved(row.id), OccurrencesTrimmed(row.id, 0)]
            await self._factory.store.write([*gone, self._audit(row, "removed", row.name, by)])
            self._rows.pop(row.id, None)
            self._refusals.pop(row.id, None)
            self._not_before.pop(row.id, None)
            self._news(row)

    def in_conversation(self, session: str, principal: str) -> list[ScheduleRow]:
        """Return those that answer in a conversation, oldest first."""
        return [row for row in self.of(principal) if row.place == HERE and row.session == session]

    async def remove_with(self, session: str, principal: str) -> None:
        """Remove those that answer in a conversation, which is being deleted. Raises StoreFailed."""
        async with self.changing:
            for row in self.in_conversation(session, principal):
                await self.remove(row, principal)

    async def end_of(self, member: str) -> None:
        """Switch off those that a member of a bot has set for its account. Raises StoreFailed."""
        async with self.changing, self.lock:
            now = self._clock()
            for row in [one for one in self._rows.values() if one.enabled and speaker_of(one) == member]:
                await self._record(Due(row, now, now, None), REFUSED, UNLINKED.format(member=member), ends=True)

    async def run_now(self, schedule: str, principal: str) -> RunRow:
        """Begin a run beside the schedule's times.

        Raises SessionBusy if its last run is under way, NotFound, BudgetSpent, Paused, Stopping, StoreFailed.
        """
        async with self.lock:
            row = self.get(schedule, principal)
            if row.run and await self._factory.runs.is_active(row.run):
                raise SessionBusy(row.run)
            return await self._begin(Due(row, self._clock(), None, row.next))

    def wake(self) -> None:
        """Look at the times now: the first of them may have changed, or the server is not paused any more."""
        if not self._rests and self._rows and self._task is None:
            self._task = asyncio.create_task(self._look_once(), name="schedules")

    async def look(self) -> None:
        """Handle all times that have come. Raises Paused, Stopping, StoreFailed: then they stay due."""
        async with self.lock:
            self._factory.switch.check()
            for row in list(self._rows.values()):
                try:
                    await self._look_at(row)
                except UnfitTime as unfit:  # its time zone has left the machine; the others go on
                    now = self._clock()
                    await self._record(Due(row, now, row.next or now, None), REFUSED, str(unfit))

    async def _look_at(self, row: ScheduleRow) -> None:
        row = self._reckoned(row)
        now = self._clock()
        fires_at = self.fires_at(row)
        if fires_at is not None and max(fires_at, self._not_before.get(row.id, 0.0)) <= now:
            await self._handle(self._due(row, fires_at, now))

    def delay_s(self) -> float | None:
        """Return how long the timer waits, None for no timer: nothing begins while the server is paused."""
        rows = self._rows.values()
        times = [max(at, self._not_before.get(row.id, 0.0)) for row in rows if (at := self.fires_at(row)) is not None]
        if not times or self._factory.switch.paused:
            return None
        return min(MOST_WAIT_S, max(0.0, min(times) - self._clock()))

    async def _look_once(self) -> None:
        least_s = STORE_RETRY_S
        try:
            await self.look()
            least_s = 0.0
        except (Paused, Stopping):
            least_s = 0.0
        except StoreFailed as failure:
            _log.warning("schedules wait, because the store failed: %s", failure)
        finally:
            self._task = None
            self._arm(least_s)

    def _arm(self, least_s: float = 0.0) -> None:
        if self._timer:
            self._timer.cancel()
            self._timer = None
        delay = self.delay_s()
        if delay is not None and not self._rests:
            self._timer = asyncio.get_running_loop().call_later(max(delay, least_s), self.wake)

    def _reckoned(self, row: ScheduleRow) -> ScheduleRow:
        """Return the schedule with its next time; anew if the clock was far ahead when that was reckoned."""
        now = self._clock()
        if row.next is None or row.reckoned is None or row.reckoned <= now + DAY_S:
            return row
        row = replace(row, next=timetable(row).after(now), reckoned=now)
        self._rows[row.id] = row
        return row

    def _due(self, row: ScheduleRow, fires_at: float, now: float) -> Due:
        assert row.next is not None
        table = timetable(row)
        late = ""
        if now - fires_at > LATE_S:
            late = LATE.format(due=f"{datetime.fromtimestamp(row.next, UTC):%Y-%m-%d %H:%M} UTC")
            if (count := table.missed(row.next, now)) > 1:
                late += (NOT_ALL if count == MOST_COUNTED else SEVERAL).format(count=count)
        return Due(row, now, row.next, table.after(max(now, row.next)), late)

    async def _handle(self, due: Due) -> None:
        row = due.row
        if due.late and row.missed == "skip":
            await self._record(due, MISSED, due.late)
        elif row.run and await self._factory.runs.is_active(row.run):
            await self._record(due, SKIPPED, UNDER_WAY.format(run=row.run))
        else:
            try:
                await self._begin(due)
            except SessionBusy as busy:
                await self._record(due, SKIPPED, f"Its session is busy with run {busy.run}.")
            except BudgetSpent as spent:
                if spent.budget == "runs":  # others of the same minute, perhaps
                    self._not_before[row.id] = due.now + RETRY_S
                else:
                    await self._record(due, REFUSED, str(spent))
            except ConversationGone as gone:
                await self._record(due, REFUSED, str(gone), ends=True)
            except (NotFound, FolderUnusable) as reason:
                await self._record(due, REFUSED, str(reason))

    async def _begin(self, due: Due) -> RunRow:
        """Begin the run of a time, recorded in the transaction that creates it."""
        row, occurrence = due.row, due.occurrence
        begun: list[str] = []

        def beside(run: RunRow) -> Sequence[Change]:
            begun.append(run.id)
            reached = OccurrenceRow(
                row.id, occurrence, at=due.now, outcome=STARTED, reason=due.late, due=due.at, run=run.id
            )
            return [_step(due.moved(run)), reached, OccurrencesTrimmed(row.id, KEPT)]

        key = IdempotencyKey(f"schedule\n{row.id}\n{occurrence}", "")  # no request can have it: theirs are printable
        notice = Notice("schedule_late", due.late) if due.late else None
        text = reminder_message(row, due.now, due.late) if row.place == HERE else row.text
        run = await self._starts.begin(row, RunRequest(text, key=key, notice=notice, beside=beside))
        moved = due.moved(run)
        if run.id not in begun:  # the clock was set back: this time has had its run
            await self._factory.store.write([_step(moved)])
        self._refusals.pop(row.id, None)
        self._keep(moved)
        return run

    async def _record(self, due: Due, outcome: str, reason: str, *, ends: bool = False) -> None:
        """Record a time that began no run; if the schedule `ends`, none will. Raises StoreFailed."""
        row = due.row
        moved = replace(due.moved(), enabled=False, next=None) if ends else due.moved()
        reached = OccurrenceRow(row.id, due.occurrence, at=due.now, outcome=outcome, reason=reason, due=due.at)
        changes: list[Change] = [moved if ends else _step(moved), reached, OccurrencesTrimmed(row.id, KEPT)]
        if outcome == REFUSED and self._refusals.get(row.id) != reason:  # not the same at each time
            changes.append(self._audit(row, REFUSED, reason, BY))
            self._refusals[row.id] = reason
        await self._factory.store.write(changes)
        _log.info("schedule %s began no run: %s", row.id, reason)
        self._keep(moved)

    def _keep(self, row: ScheduleRow) -> None:
        self._rows[row.id] = row
        self._not_before.pop(row.id, None)
        self._news(row)

    def _news(self, row: ScheduleRow) -> None:
        self._factory.runs.notifier.notify(row.principal)
        if self._task is None:
            self._arm()

    def _audit(self, row: ScheduleRow, decision: str, why: str, by: str) -> AuditRow:
        return AuditRow(self._clock(), row.principal, BY, decision, why=why, by=by)


def no_schedule(schedule: str) -> NotFound:
    return NotFound(f"There is no schedule {schedule[:80]!r}. GET /schedules lists yours.")


def timetable(row: ScheduleRow) -> Timetable:
    return Timetable(row.kind, row.expression, row.zone, row.created)


def _step(row: ScheduleRow) -> ScheduleMoved:
    return ScheduleMoved(row.id, row.next, row.reckoned, row.session, row.run)
