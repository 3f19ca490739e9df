"""Play a recording: the run again, by the code of now, with the model, the results and the people of then.

Nothing is reached: the model answers from the recording, tools return what they returned, approvals are decided as they
were. What the run does is logged as any run's, and recorded again, so that two recordings can be compared.
"""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from itertools import count, dropwhile, takewhile
from pathlib import Path
from typing import cast

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

from app.budget.kinds import TOOL_SECONDS, BudgetKind
from app.budget.run_budget import RunBudget
from app.config.sources import SettingsError
from app.core.events import (
    AgentEvent,
    ApprovalRequired,
    Notice,
    RoundStarted,
    RunFailed,
    RunStarted,
    ToolStarted,
    Usage,
)
from app.core.helper_events import HelperFinished
from app.core.messages import Message
from app.core.provider import ProviderFailed, TokenUsage
from app.log.event_writer import NO_LISTENERS
from app.models.endpoints.failover import ModelRoute
from app.policy.canary import LENGTH, LETTERS, Canary
from app.policy.grants import Grant
from app.policy.guards import CANARY, guards_of
from app.policy.label_limits import NO_LIMITS, LabelLimits
from app.policy.permits.permissions import Permission
from app.redaction.redactor import Redactor
from app.replay.approvals import ReplayedApprovals
from app.replay.calls import calls_in, calls_of, changes_of_targets, events_of, stopped_calls
from app.replay.events import AROUND, Event
from app.replay.model import ReplayedModel, costs_in
from app.replay.recording import Recording, UnusableRecording
from app.replay.task import ReplayTask, ReplayWriter
from app.replay.tools import Results, event_of, tools_of
from app.replay.words import call_in_words
from app.replay.world import LONGEST_S, ReplayedLedger, Stage, messages_of, options_of, principal_of, settings_of
from app.runs.agent import Agent
from app.runs.delegation.shared_limits import SharedLimits
from app.runs.direct_call import direct_agent
from app.runs.recording import parts
from app.runs.recording.recorder import RunRecorder
from app.runs.recording.stand_ins import MadeUp, StandIns
from app.runs.recording.values import grant_in, permissions_in
from app.runs.session_queue import SessionQueue
from app.storage.runs import RunRow
from app.storage.store import Store
from app.transcript.inbox import InboxClosed, InboxFull
from app.transcript.recent_histories import RecentHistories
from app.transcript.run_request import direct_call_of
from parsing import Arguments

CODE = (LETTERS * 2)[:LENGTH]  # of the canary
STOPS = frozenset({"cancelled", "paused", "deadline", "budget", "server_stopped", "storage_failed"})  # from outside
NO_BUDGET, NO_STORE = cast("RunBudget", None), cast("Store", None)
LIMIT_S = 60.0  # of one replay: it waits for nothing
ENDED_HERE = "cancelled"  # why a run is stopped of which no more is recorded
NOWHERE = Path("/nonexistent")
NOT_OURS = "The recording has what this version does not know"


class Played(Struct):
    """The run as it goes now. `unknown`: the call that it makes and that has no recorded result."""

    events: list[Event] = field(default_factory=list)
    requests: list[parts.RequestPart] = field(default_factory=list)
    rest: parts.Since = field(default_factory=parts.Since)
    unknown: str = ""

    @property
    def decided(self) -> list[parts.Decided]:
        return [*(one for part in self.requests for one in part.since.decided), *self.rest.decided]


class Replay:
    """One replay of a recording. With `exact` the model's pieces keep all their borders. Raises UnusableRecording."""

    def __init__(self, recording: Recording, *, exact: bool = False) -> None:
        if recording.begin is None:
            raise UnusableRecording("The recording has no world to play in.")
        self._recording = recording
        self._begin = recording.begin
        self._redactor = Redactor()
        self._shown = MadeUp(self._redactor.add, CODE)
        self._steering = deque(recording.steering)
        self._requests = 0, 0  # the round, and its requests so far
        self._played = Played()
        try:
            self._limits = deque(limits_in(recording))
            self._task = self._made(exact=exact)
        except (KeyError, TypeError, ValueError, RecursionError, SettingsError) as error:
            raise UnusableRecording(f"{NOT_OURS}: {error}. Record the run again.") from error

    async def play(self) -> Played:
        """Raises UnusableRecording."""
        task = self._task
        task.task = asyncio.create_task(task.drive(), name="replay")
        done, _ = await asyncio.wait([task.task], timeout=LIMIT_S)
        if not done:
            task.stop(ENDED_HERE)
            await asyncio.wait([task.task])
        self._take_events()
        return self._played

    def _take_events(self) -> None:
        """Keep what was logged so far, unless the replay has come to its end before."""
        self._played.events = self._played.events or [json.loads(row.data) for row in self._task.log.take_events()]

    def _made(self, *, exact: bool) -> ReplayTask:
        recording, begin = self._recording, self._begin
        settings, principal = settings_of(begin, NOWHERE), principal_of(begin)
        self._model = model = ReplayedModel(begin.model, recording.requests, self._shown, stop=self._stop, exact=exact)
        model.costs = costs_in(recording.events)
        model.is_whole = recording.is_whole
        model.on_request = self._on_request
        model.ending = self._ending()
        guards = guards_of(settings, principal.name, cast("ModelRoute", model), NO_BUDGET)
        if guards.canary:
            guards.canary = Canary(CODE)
        redactors = [self._redactor, *guards.redactors]
        recorder = RunRecorder(StandIns(redactors), self._world, partial(next, self._ids()))
        recorder.enter(self._keep)
        results = self._results()
        stage = Stage(
            begin=begin,
            options=options_of(recording.run.policy),
            settings=settings,
            principal=principal,
            model=model,
            tools=tools_of(begin, results, settings.tools),
            approvals=ReplayedApprovals(
                {one.call: one for one in recording.answers},
                [event["call"] for event in events_of(self._recording, ApprovalRequired.type)],
                self._grants(),
                self._permissions(),
                stop=self._stop,
                time_limit_s=settings.approval_time_limit_s,
            ),
            recorder=recorder,
            guards=guards,
            decided=recording.decided,
            ledger=ReplayedLedger(partial(self._spent, model, results)),
            session=recording.run.session,
            history=messages_of(recording.history),
            compacted=recording.compacted,
        )
        return self._task_of(stage)

    def _task_of(self, stage: Stage) -> ReplayTask:
        run = self._recording.run
        row = RunRow(
            run.id,
            session=run.session,
            principal=run.principal,
            model=run.model,
            state="running",
            created=run.created,
            policy=json.dumps(run.policy),
        )
        task = ReplayTask(
            row=row,
            agent=direct_agent(stage.agent(), call) if (call := direct_call_of(row)) else stage.agent(),
            store=NO_STORE,
            histories=RecentHistories(NO_STORE, self._redactor),
            journal=ReplayWriter(self._redactor, documents=stage.settings.documents),
            line=SessionQueue(),
            approvals=stage.approvals,
            time_limit_s=LONGEST_S,
            listeners=NO_LISTENERS,
        )
        task.history, task.said = list(stage.history), messages_of(self._recording.said)
        task.agent.notices = list(self._beginning(task.agent, stage.model))
        return task

    def _beginning(self, agent: Agent, model: ReplayedModel) -> Iterator[AgentEvent]:
        """Yield what was said of the run before its first round: what its files and what came with it gave rise to."""
        started = dropwhile(lambda one: one["type"] != RunStarted.type, self._recording.events)
        for fields in takewhile(lambda one: one["type"] != RoundStarted.type, started):
            is_own = fields["type"] == Notice.type and fields["code"] in AROUND | {CANARY}
            if fields["type"] in (Notice.type, Usage.type) and not is_own:
                yield _queried(event_of(self._shown.shown_in(fields)), agent, model)

    def _spent(self, model: ReplayedModel, results: Results, kind: BudgetKind) -> str:
        """Return the words in which the run's budget was spent, once there; else an empty text."""
        is_there = results.all_given if kind is TOOL_SECONDS else True
        if model.upcoming or not is_there or self._recording.run.state != "budget":
            return ""
        notices = [one for one in events_of(self._recording, Notice.type) if one["code"] == "budget"]
        return str(notices[-1]["message"]) if notices else ""

    def _results(self) -> Results:
        recording, hidden = self._recording, dict[str, str]()
        for since in self._all_since():
            hidden |= since.results
        results = [replace(one, text=hidden.get(one.call, one.text)) for one in recording.results]
        for event in (event for one in results for event in one.before):
            event_of(event)  # raises for one that is not known, before anything is played
        return Results(
            by_call={one.call: one for one in results},
            started=dict(calls_of(self._recording, ToolStarted.type)),
            asked={key for _, key in calls_of(self._recording, ApprovalRequired.type)},
            shown=self._shown,
            log=self._log,
            stop=self._stop,
            end=self._end,
            changes=changes_of_targets(self._recording),
            stopped=stopped_calls(self._recording, results),
            on_result=self._on_result,
        )

    def _log(self, event: AgentEvent) -> None:
        """Log what came with a call; what a helper has taken counts for the limits of its run."""
        agent = self._task.agent
        self._task.log.add(_queried(event, agent, self._model))
        if isinstance(event, HelperFinished) and isinstance(limits := agent.discipline.limits, SharedLimits):
            limits.family.count(event.rounds, event.calls, event.usage)

    def _ending(self) -> Callable[[], None] | None:
        """Return what ends a run that makes a request that is not recorded, as it ended then; None if it answered."""
        failed = next(events_of(self._recording, RunFailed.type), None)

        def end() -> None:
            if failed:
                code, message = failed["code"], failed["message"]
                raise ProviderFailed(code, message, retryable=failed["retryable"])
            self._stop("")

        is_stopped = self._recording.run.state in STOPS - {"budget"}
        return end if failed or is_stopped or not self._recording.is_whole else None

    def _all_since(self) -> Iterator[parts.Since]:
        yield from (one.since for one in self._recording.requests)
        yield self._recording.rest

    def _permissions(self) -> Iterator[tuple[Permission, ...]]:
        return (permissions_in(one) for since in self._all_since() for one in since.permissions)

    def _grants(self) -> Iterator[list[Grant]]:
        return ([*map(grant_in, grants)] for since in self._all_since() for grants in since.grants)

    def _ids(self) -> Iterator[str]:
        """Yield the ids that were drawn then, and further ones after those."""
        yield from (drawn := [id for since in self._all_since() for id in since.ids])
        if not self._recording.is_whole:  # then the last ones are only in the log
            yield from (call for call in calls_in(self._recording.events) if call not in drawn)
        yield from (f"replayed{number:03}" for number in count(1))

    async def _world(self) -> parts.Begin:
        return self._begin

    def _keep(self, kind: str, part: object) -> None:
        if isinstance(part, parts.RequestPart):
            self._played.requests.append(part)
        elif isinstance(part, parts.Since):
            self._played.rest = part

    def _on_request(self, is_side: bool) -> None:
        """Post the messages that came while this request of the round was under way, and set the limits of labels."""
        number, count = self._requests
        at = self._task.agent.totals.rounds
        self._requests = now = at, count + 1 if at == number else 1
        while self._steering and (self._steering[0].round, self._steering[0].requests) <= now:
            part = self._steering.popleft()
            message = messages_of([part.message])[0] if part.message else Message("user", part.text)
            with suppress(InboxClosed, InboxFull):
                self._task.inbox.post(part.text, message.attachments, untrusted=message.untrusted)
        if not is_side:
            self._on_result()

    def _on_result(self) -> None:
        """Set the limits that labels have set to the next call."""
        if self._limits:
            self._task.gate.limit_by_labels(self._limits.popleft())

    def _stop(self, why: str) -> None:
        """Stop as the run was stopped then: where it ended with a reason, for that one."""
        if not self._recording.is_whole:  # how the run went on from here is not known
            self._take_events()
        state = self._recording.run.state
        self._task.stop(state if state in STOPS else why or ENDED_HERE)

    def _end(self, name: str, arguments: Arguments) -> None:
        """End the replay at a call whose result is not known."""
        if not self._recording.is_whole:
            self._stop("")
            return
        self._played.unknown = call_in_words(name, arguments)
        self._task.stop(ENDED_HERE)


def _queried(event: AgentEvent, agent: Agent, model: ReplayedModel) -> AgentEvent:
    """Return the event; if it is the use of a side query, which is not made again, count it."""
    if not isinstance(event, Usage):
        return event
    model.skip_side()
    used = TokenUsage(event.prompt_tokens, event.completion_tokens)
    return agent.totals.add(used, measured=event.measured, cost=event.cost)


def limits_in(recording: Recording) -> Iterator[LabelLimits]:
    """Yield the limits of labels that held for each decision, if labels are used."""
    if any(one.limits for one in recording.decided):
        for one in recording.decided:
            yield msgspec.convert(one.limits, LabelLimits) if one.limits else NO_LIMITS
