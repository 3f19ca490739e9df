"""The scheduler, on a clock that the test moves: each time begins one run, or is recorded with its reason."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from app.core.provider import Finished, TextChunk
from app.models.scripted import Line, Pause, Scripted
from app.policy.current_rights import principal_named
from app.runs.composition.unattended import UnattendedRuns
from app.runs.run_options import RunOptions
from app.schedules.scheduler import MOST_WAIT_S, STORE_RETRY_S, Scheduler
from app.schedules.starts import KEPT, Starts
from app.storage.changes import Change, StoreFailed
from app.storage.runs import RunRow
from app.storage.schedules import OccurrenceOfRun, OccurrenceRow, ScheduleMoved, ScheduleRow
from app.storage.sqlite.store import SQLiteStore
from app.storage.tokens import TokenRevoked, TokenRow
from app.transcript.run_request import NotFound, ParentRun, RunRequest, SessionBusy, sender_of
from routes.deletion import delete_conversation
from routes.services import Services, open_services
from tests.support.server.serving import chosen, settings_in
from tools.base.pause_check import Paused

pytestmark = pytest.mark.anyio
LIMIT_S = 30
DAY = 86_400.0
NOON = 1_774_008_000.0  # 2026-03-20 12:00 UTC
DAILY = ScheduleRow(
    "sch_1", "local", "noon", "cron", "0 12 * * *", "UTC", "What is new?", "{}", "new", "run", 0.0, True, NOON
)


class Clock:
    def __init__(self) -> None:
        self.now = NOON

    def __call__(self) -> float:
        return self.now


class Recording(SQLiteStore):
    """A store that can refuse the transactions with an occurrence, and remembers those that it has written."""

    refuses = False
    kept: list[list[Change]]

    async def write(self, changes: Sequence[Change]) -> None:
        if self.refuses and any(isinstance(one, OccurrenceRow) for one in changes):
            raise StoreFailed("The disk is full.")
        await super().write(changes)
        self.kept.append(list(changes))


@dataclass
class Timed:
    """A server, and a scheduler of it whose clock the test moves."""

    services: Services
    store: Recording
    scheduler: Scheduler
    clock: Clock = field(default_factory=Clock)

    async def add(self, row: ScheduleRow = DAILY, **changes: Any) -> ScheduleRow:
        return await self.scheduler.put(replace(row, **changes), "made", row.principal)

    async def at(self, now: float) -> list[OccurrenceOfRun]:
        """The occurrences of the schedule after a look at this time, newest first; no run is under way then."""
        self.clock.now = now
        await self.scheduler.look()
        for row in (*await self.services.runs.of("local"), *await self.services.runs.of("ann")):
            await self.services.runs.ended(row.id)
        return await self.store.occurrences(DAILY.id)

    async def run(self, occurrence: OccurrenceOfRun) -> RunRow:
        row = await self.store.run(occurrence.run or "")
        assert row
        return row


@asynccontextmanager
async def timed(folder: Path, provider: Scripted | None = None, **flags: object) -> AsyncGenerator[Timed, None]:
    provider = provider or Scripted([["Nothing."]] * 30)

    async def open_recording(path: Path) -> Recording:
        store = await Recording.open(path)
        store.kept = []
        return store

    async with asyncio.timeout(LIMIT_S):
        async with open_services(settings_in(folder, **flags), partial(chosen, provider), open_recording) as services:
            clock, store = Clock(), services.store
            assert isinstance(store, Recording)
            scheduler = Scheduler(Starts(UnattendedRuns(services.factory)), clock)
            try:
                yield Timed(services, store, scheduler, clock)
            finally:
                await scheduler.rest()


async def test_a_time_begins_one_run_with_reading_tools_and_no_approvals(tmp_path: Path) -> None:
    async with timed(tmp_path, memory=True, helpers=True, session_tools=True) as one:
        row = await one.add()
        assert row.next == NOON + DAY
        assert await one.at(NOON + DAY - 1) == []
        [done] = await one.at(NOON + DAY)
        assert (done.outcome, done.reason, done.due, done.state) == ("started", "", NOON + DAY, "answered")
        policy = json.loads((await one.run(done)).policy)
        assert policy["unasked"] is True and policy["approval"] == "deny"
        assert {"read_file", "list_files"} <= set(policy["tools"])
        assert not {"bash", "write_file", "remember", "delegate", "send_to_session"} & set(policy["tools"])
        assert [message.text for message in await one.store.messages((await one.run(done)).session)] == [
            "What is new?",
            "Nothing.",
        ]
        assert await one.at(NOON + DAY + 1) == [done], "not twice"
        [second, first] = await one.at(NOON + 2 * DAY)
        assert first == done and (await one.run(second)).session != (await one.run(first)).session


async def test_a_time_is_handled_in_the_transaction_that_creates_its_run(tmp_path: Path) -> None:
    async with timed(tmp_path) as one:
        await one.add()
        one.store.refuses = True
        one.clock.now = NOON + DAY
        with pytest.raises(StoreFailed):
            await one.scheduler.look()
        assert await one.store.occurrences(DAILY.id) == [] and await one.store.unfinished_runs() == []
        [stored] = await one.store.schedules()
        assert stored.next == NOON + DAY, "still due"
        one.store.refuses = False
        [done] = await one.at(NOON + DAY + 60)
        [together] = [changes for changes in one.store.kept if any(isinstance(x, OccurrenceRow) for x in changes)]
        assert {RunRow, OccurrenceRow, ScheduleMoved} <= {type(change) for change in together}
        assert [change.id for change in together if isinstance(change, RunRow)] == [done.run]
        again = Scheduler(Starts(UnattendedRuns(one.services.factory)), one.clock)  # as after a kill
        await again.begin()
        await again.look()
        await again.rest()
        assert len(await one.store.occurrences(DAILY.id)) == 1


async def test_missed_times_begin_one_run_or_none_as_the_schedule_says(tmp_path: Path) -> None:
    async with timed(tmp_path) as one:
        await one.add()
        [late] = await one.at(NOON + 3 * DAY + 3600)
        assert late.outcome == "started" and late.due == NOON + DAY
        assert "due at 2026-03-21 12:00 UTC" in late.reason and "3 times were missed" in late.reason
        notices = [
            json.loads(row.data) for row in await one.store.events(late.run or "", 0, 100) if row.type == "notice"
        ]
        assert [(notice["code"], notice["message"]) for notice in notices] == [("schedule_late", late.reason)]
        assert one.scheduler.get(DAILY.id, "local").next == NOON + 4 * DAY
        await one.add(missed="skip")
        [missed, _] = await one.at(NOON + 5 * DAY + 3600)
        assert (missed.outcome, missed.run) == ("missed", None) and "2 times were missed" in missed.reason
        [on_time, *_] = await one.at(NOON + 6 * DAY + 60)
        assert on_time.outcome == "started", "a minute late is not missed"


async def test_a_run_that_is_under_way_is_not_joined_by_another(tmp_path: Path) -> None:
    go_on = asyncio.Event()
    script: list[list[Line]] = [[TextChunk("Well"), Pause(go_on), TextChunk("."), Finished("stop")], ["Next."]]
    async with timed(tmp_path, Scripted(script)) as one:
        await one.add()
        one.clock.now = NOON + DAY
        await one.scheduler.look()
        [running] = await one.store.occurrences(DAILY.id)
        with pytest.raises(SessionBusy):
            await one.scheduler.run_now(DAILY.id, "local")
        one.clock.now = NOON + 2 * DAY
        await one.scheduler.look()
        [skipped, _] = await one.store.occurrences(DAILY.id)
        assert (skipped.outcome, skipped.run) == ("skipped", None) and running.run and running.run in skipped.reason
        go_on.set()
        await one.services.runs.ended(running.run)
        [third, *_] = await one.at(NOON + 3 * DAY)
        assert third.outcome == "started"


async def test_the_rights_and_budget_of_the_owner_are_those_of_now(tmp_path: Path) -> None:
    async with timed(tmp_path, schedules_per_guest="0") as one:
        token = TokenRow("a" * 64, "ann", "user", 1.0)
        await one.store.write([token])
        await one.add(principal="ann", policy='{"tools": ["list_files"]}')
        [first] = await one.at(NOON + DAY)
        assert first.outcome == "started"
        steps: list[tuple[list[Change], str]] = [
            ([TokenRevoked("a" * 64, 1.0)], "ann no longer has a valid token"),
            ([replace(token, sha256="d" * 64, role="guest")], "Guests have no schedules, and ann is a guest"),
            (
                [TokenRevoked("d" * 64, 1.0), replace(token, sha256="b" * 64, disabled='["list_files"]')],
                "there is no 'list_files'",
            ),
            (
                [TokenRevoked("b" * 64, 1.0), replace(token, sha256="c" * 64, budget='{"tokens_per_month": 1}')],
                "ann may use 1 tokens a month",
            ),
        ]
        for number, (change, words) in enumerate(steps, start=2):
            await one.store.write(change)
            [last, *_] = await one.at(NOON + number * DAY)
            assert (last.outcome, last.run) == ("refused", None) and words in last.reason
        audited = [row for _, row in await one.store.audit(1 << 40, 100) if row.action == "schedule"]
        assert [row.decision for row in audited] == ["refused", "refused", "refused", "refused", "made"]
        await one.at(NOON + 6 * DAY)
        again = [row for _, row in await one.store.audit(1 << 40, 100) if row.decision == "refused"]
        assert len(again) == 4, "the same reason is audited once"


async def test_a_time_waits_while_its_owner_has_the_most_active_runs(tmp_path: Path) -> None:
    go_on = asyncio.Event()
    script: list[list[Line]] = [[TextChunk("Well"), Pause(go_on), TextChunk("."), Finished("stop")], ["Next."]]
    async with timed(tmp_path, Scripted(script), max_runs="1") as one:
        await one.add()
        await one.add(replace(DAILY, id="sch_0"))
        one.clock.now = NOON + DAY
        await one.scheduler.look()
        [other] = [row for row in one.scheduler.of("local") if row.next == NOON + DAY]
        assert await one.store.occurrences(other.id) == [] and one.scheduler.delay_s() == MOST_WAIT_S
        go_on.set()
        [running] = await one.services.runs.of("local")
        await one.services.runs.ended(running.id)
        one.clock.now = NOON + DAY + MOST_WAIT_S
        await one.scheduler.look()
        [begun] = await one.store.occurrences(other.id)
        assert (begun.outcome, begun.reason) == ("started", "")


async def test_nothing_begins_while_the_server_is_paused(tmp_path: Path) -> None:
    async with timed(tmp_path) as one:
        await one.add(missed="skip")
        await one.services.switch.set(paused=True)
        one.clock.now = NOON + DAY
        with pytest.raises(Paused):
            await one.scheduler.look()
        assert one.scheduler.delay_s() is None and await one.store.occurrences(DAILY.id) == []
        await one.services.switch.set(paused=False)
        [done] = await one.at(NOON + DAY + 60)
        assert done.outcome == "started"


async def test_a_clock_that_was_far_ahead_does_not_hold_a_schedule_for_years(tmp_path: Path) -> None:
    async with timed(tmp_path) as one:
        await one.add()
        assert len(await one.at(NOON + 4000 * DAY + 3600)) == 1, "for the time of the first day, which it missed"
        assert len(await one.at(NOON + 3600)) == 1
        assert one.scheduler.get(DAILY.id, "local").next == NOON + DAY
        assert len(await one.at(NOON + DAY)) == 1, "that time has had its run"
        assert len(await one.at(NOON + 2 * DAY)) == 2
        assert len(await one.at(NOON + 2 * DAY - 600)) == 2, "a little back changes nothing"
        assert len(await one.at(NOON + 2 * DAY)) == 2
        assert len(await one.at(NOON + 3 * DAY)) == 3


async def test_one_timer_for_the_nearest_time_and_none_without_one(tmp_path: Path) -> None:
    async with timed(tmp_path) as one:
        assert one.scheduler.delay_s() is None
        await one.add(kind="once", expression="2070-01-01T00:00")
        assert one.scheduler.delay_s() == MOST_WAIT_S
        await one.add(replace(DAILY, id="sch_2", kind="every", expression="1m", created=NOON))
        one.clock.now = NOON + 50
        assert one.scheduler.delay_s() == 10
        one.clock.now = NOON + 500
        assert one.scheduler.delay_s() == 0
        for schedule in one.scheduler.of("local"):
            await one.add(schedule, enabled=False)
        assert one.scheduler.delay_s() is None
        with pytest.raises(NotFound):
            one.scheduler.get("sch_2", "ann")


async def test_a_store_that_failed_is_tried_again_in_seconds(tmp_path: Path) -> None:
    """A database that restarts must not hold up a reminder for a minute."""
    async with timed(tmp_path) as one:
        await one.add()
        one.store.refuses, one.clock.now = True, NOON + DAY
        await one.scheduler.begin()
        assert one.scheduler._task
        await one.scheduler._task
        assert one.scheduler._timer
        assert one.scheduler._timer.when() - asyncio.get_running_loop().time() <= STORE_RETRY_S
        await one.scheduler.rest()


async def test_a_session_that_is_kept_goes_on_and_is_begun_anew_once_deleted(tmp_path: Path) -> None:
    async with timed(tmp_path) as one:
        await one.add(place="one")
        await one.at(NOON + DAY)
        [second, first] = await one.at(NOON + 2 * DAY)
        session = (await one.run(first)).session
        assert (await one.run(second)).session == session
        await one.store.delete_session(session)
        [third, *_] = await one.at(NOON + 3 * DAY)
        assert (await one.run(third)).session != session


async def test_single_times_end_and_old_occurrences_go(tmp_path: Path) -> None:
    async with timed(tmp_path, Scripted([["Well."]] * 30)) as one:
        await one.add(kind="once", expression="2026-03-21T12:00", jitter_s=600.0)
        row = one.scheduler.get(DAILY.id, "local")
        fires_at = one.scheduler.fires_at(row)
        assert fires_at and NOON + DAY < fires_at < NOON + DAY + 600
        assert await one.at(fires_at - 0.001) == []
        assert len(await one.at(fires_at)) == 1
        assert one.scheduler.get(DAILY.id, "local").next is None
        for _ in range(KEPT + 3):
            run = await one.scheduler.run_now(DAILY.id, "local")
            await one.services.runs.ended(run.id)
        assert len(await one.store.occurrences(DAILY.id)) == KEPT
        await one.scheduler.remove(row, "local")
        assert await one.store.occurrences(DAILY.id) == [] and await one.store.schedules() == []


async def test_a_time_that_comes_between_the_check_of_a_schedule_and_its_storing_begins_its_run(tmp_path: Path) -> None:
    async with timed(tmp_path) as one:
        one.clock.now = NOON + 1
        await one.add(kind="once", expression="2026-03-20T12:00", reckoned=NOON - 1)
        assert len(await one.at(NOON + 2)) == 1
        row = one.scheduler.get(DAILY.id, "local")
        assert row.next is None
        await one.add(row, text="Changed before it came", reckoned=NOON - 1)
        assert len(await one.at(NOON + 3)) == 1 and one.scheduler.get(DAILY.id, "local").next is None


async def test_a_schedule_that_becomes_a_single_time_runs_though_its_old_times_were_handled_meanwhile(
    tmp_path: Path,
) -> None:
    async with timed(tmp_path) as one:
        row = await one.add(kind="every", expression="1m", created=NOON - 59)
        assert len(await one.at(NOON + 2)) == 1
        await one.add(row, kind="once", expression="2026-03-20T12:00", created=NOON - 1, reckoned=NOON - 1)
        assert len(await one.at(NOON + 3)) == 2


async def test_a_time_that_is_held_up_stays_due_when_its_schedule_is_renamed(tmp_path: Path) -> None:
    async with timed(tmp_path) as one:
        row = await one.add(kind="once", expression="2026-03-20T12:01")
        one.clock.now = NOON + 61  # it is due, and the server is paused
        row = await one.add(row, name="later", reckoned=None)
        assert row.next == NOON + 60 and len(await one.at(NOON + 62)) == 1
        row = await one.add(one.scheduler.get(DAILY.id, "local"), name="over", reckoned=None)
        assert row.next is None


async def test_a_time_that_came_while_its_schedule_was_off_is_not_due(tmp_path: Path) -> None:
    async with timed(tmp_path) as one:
        row = await one.add(enabled=False)
        one.clock.now = NOON + DAY
        row = await one.add(row, enabled=True, reckoned=None)
        assert row.next == NOON + 2 * DAY


async def test_zero_schedules_hold_those_that_there_are(tmp_path: Path) -> None:
    async with timed(tmp_path, max_schedules="0") as one:
        await one.add()
        assert one.scheduler.delay_s() is None and await one.at(NOON + DAY) == []


async def test_a_time_zone_that_has_gone_stops_its_schedule_alone(tmp_path: Path) -> None:
    async with timed(tmp_path) as one:
        await one.add(replace(DAILY, id="sch_0"))
        await one.add()
        one.scheduler._rows["sch_0"] = replace(one.scheduler._rows["sch_0"], zone="Nowhere/Gone")
        [done] = await one.at(NOON + DAY)
        assert done.outcome == "started", "the schedule behind it"
        [refused] = await one.store.occurrences("sch_0")
        assert refused.outcome == "refused" and "is not a time zone" in refused.reason
        assert one.scheduler.get("sch_0", "local").next is None


async def test_a_deleted_session_does_not_let_a_time_run_again_when_the_clock_is_set_back(tmp_path: Path) -> None:
    model = Scripted([["Nothing."]] * 3)
    async with timed(tmp_path, model) as one:
        row = await one.add()
        [first] = await one.at(NOON + DAY)
        await one.store.delete_session((await one.run(first)).session)
        one.clock.now = NOON + DAY - 60
        await one.add(row)
        await one.at(NOON + DAY)
        assert len(model.requests) == 1 and one.scheduler.get(DAILY.id, "local").next == NOON + 2 * DAY


async def in_conversation(one: Timed, **changes: Any) -> str:
    """A conversation of the local user, with a schedule that answers in it."""
    principal = await principal_named(one.store, "local")
    options = RunOptions(model="scripted", max_rounds=3, time_zone="Europe/Berlin")
    agent = await one.services.factory.agent(principal, options)
    turn = RunRequest("My bins are green.", policy=options.policy())
    run = await one.services.runs.start(agent, principal, turn)
    await one.services.runs.ended(run.id)
    await one.add(place="here", session=run.session, **changes)
    return run.session


async def test_a_schedule_answers_in_its_conversation_and_says_what_it_is(tmp_path: Path) -> None:
    model = Scripted([["Noted."], ["Take out the green bin."], ["And again."]])
    async with timed(tmp_path, model) as one:
        session = await in_conversation(one, text="Take out the bin.")
        again = Scheduler(one.scheduler._starts, one.clock)  # as after a restart
        await again.begin()
        one.scheduler = again
        [done] = await one.at(NOON + DAY)
        row = await one.run(done)
        assert (row.session, row.model, done.state) == (session, "scripted", "answered")
        texts = [message.text for message in await one.store.messages(session)]
        assert texts[0] == "My bins are green." and texts[3] == "Take out the green bin."
        assert texts[2].startswith('The reminder "noon" is due: it is Saturday 21 March 2026 at 12:00 (UTC).')
        assert texts[2].endswith("reads your answer here. It says:\n\nTake out the bin.")
        policy = json.loads(row.policy)
        assert (policy["unasked"], policy["approval"], policy["time_zone"]) == (True, "deny", "Europe/Berlin")
        assert "bash" not in policy["tools"] and "manage_schedules" not in policy["tools"]
        assert sender_of(row) == "result", "its words are not the person's own"
        await one.at(NOON + 2 * DAY + 3600)
        late = (await one.store.messages(session))[4].text
        assert "it is Sunday 22 March 2026 at 13:00 (UTC).\n\nIt was due at 2026-03-22 12:00 UTC, when" in late


async def test_a_schedule_waits_while_its_conversation_is_busy(tmp_path: Path) -> None:
    over = asyncio.Event()
    async with timed(tmp_path, Scripted([["Noted."], [Pause(over), "Late."], ["The bin."]])) as one:
        session = await in_conversation(one)
        principal = await principal_named(one.store, "local")
        agent = await one.services.factory.agent(principal, RunOptions(), session)
        busy = await one.services.runs.start(agent, principal, RunRequest("And?", session))
        one.clock.now = NOON + DAY
        await one.scheduler.look()
        [begun] = await one.store.occurrences(DAILY.id)
        assert begun.outcome == "started" and (await one.run(begun)).state == "queued"
        over.set()
        await one.services.runs.ended(busy.id)
        [done] = await one.at(NOON + DAY + 1)
        assert done.state == "answered"


async def test_a_schedule_ends_with_its_conversation(tmp_path: Path) -> None:
    async with timed(tmp_path) as one:
        session = await in_conversation(one)
        await one.services.automation.scheduler.load()
        await delete_conversation(one.services, await principal_named(one.store, "local"), session)
        assert await one.store.schedules() == [] and one.services.automation.scheduler.of("local") == []
        [refused] = await one.at(NOON + DAY)  # by a server that has not read it yet
        assert refused.outcome == "refused" and f"{session} was deleted" in refused.reason
        [left] = await one.store.schedules()
        assert (left.enabled, left.next) == (False, None) and await one.at(NOON + 2 * DAY) == [refused]


async def test_housekeeping_keeps_a_conversation_with_a_time_to_come(tmp_path: Path) -> None:
    async with timed(tmp_path) as one:
        session = await in_conversation(one, kind="once", expression="2026-03-20T12:01")
        later = NOON + 10**9
        assert await one.store.forget_before(later, 0) == 0
        await one.at(NOON + 61)
        assert await one.store.forget_before(later, 0) == 1
        assert await one.store.session(session) is None and await one.store.schedules() == []


async def test_runs_that_calls_have_begun_are_no_background_runs(tmp_path: Path) -> None:
    over = asyncio.Event()
    async with timed(tmp_path, Scripted([[Pause(over), "Yes."]] * 3), max_background_runs="1") as one:
        principal = await principal_named(one.store, "local")
        helper = RunRequest("Help.", asked=False, helper_of=ParentRun("ses_1", "run_1", "call_1", 1))
        for turn in (helper, RunRequest("Hello.", asked=False, sent_by="ses_1")):
            agent = await one.services.factory.agent(principal, RunOptions())
            await one.services.runs.start(agent, principal, turn)
        await one.add()
        one.clock.now = NOON + DAY
        await one.scheduler.look()
        over.set()
        [done] = await one.store.occurrences(DAILY.id)
        assert done.outcome == "started"


async def test_background_runs_have_a_limit_of_their_own(tmp_path: Path) -> None:
    over = asyncio.Event()
    async with timed(tmp_path, Scripted([[Pause(over), "One."], ["Two."]]), max_background_runs="1") as one:
        await one.add(replace(DAILY, id="sch_0"))
        await one.add()
        one.clock.now = NOON + DAY
        await one.scheduler.look()
        assert await one.store.occurrences(DAILY.id) == [], "it stays due"
        principal = await principal_named(one.store, "local")
        agent = await one.services.factory.agent(principal, RunOptions())
        await one.services.runs.start(agent, principal, RunRequest("A person's.", asked=True))
        over.set()
        for row in await one.services.runs.of("local"):
            await one.services.runs.ended(row.id)
        [done] = await one.at(NOON + DAY + 61)
        assert (done.outcome, done.due) == ("started", NOON + DAY)
