"""Trials: a stored run again with another model, prompt or profile, which is asked for real.

Results come from the recording where a call is the one that was made then, and the run ends at a call that was not.
With `live`, tools that act only in the workspace do work, in a scratch copy of it as it was then: nothing leaves it.
Nothing of a trial is kept but what it has used: it is an unlisted run of the same principal, in its budget.
"""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict, deque
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import aclosing
from pathlib import Path
from time import monotonic
from typing import Literal, Self

from msgspec import Struct, field
from msgspec.structs import replace

from app.checkpoints.call_changes import CallChanges
from app.checkpoints.scratch import Moment, own_session
from app.core import events
from app.core.events import Notice
from app.policy.gate import Gate
from app.replay.approvals import StorelessApprovals
from app.replay.checks import BASH, Checked
from app.replay.events import Event
from app.replay.recording import Recording, ResultPart
from app.replay.tools import key_of
from app.replay.words import call_in_words
from app.replay.world import messages_of
from app.runs.agent import Agent
from app.runs.run_factory import RunFactory
from app.runs.run_options import RunOptions
from app.storage.approvals import ApprovalRow
from app.storage.principals import Principal
from app.transcript.run_request import RunRequest
from parsing import Arguments
from tools.base.outcome import Progress, Result
from tools.base.rights import Risk
from tools.tool import Context, Tool, ToolList
from tools.toolbox import Refuse, Toolbox
from tools.web.egress import hosts_wanted

Match = Literal["exact", "name"]
STOPPED_AT = "trial_ended"  # why a run is stopped that makes a call without a recorded result
NOT_ASKED = "nobody is asked in a trial"
NEEDS_BOX = "commands of checks run only in a sandbox without network"


class Summary(Struct, omit_defaults=True):
    """One way that a run went. `calls` are words: the name and the arguments, and if it failed."""

    model: str
    reason: str
    text: str
    calls: list[str]
    rounds: int
    tokens: int
    seconds: float | None = None
    cost: float | None = None


class Trial(Struct, omit_defaults=True):
    """Both ways. `stopped_at`: the call at which the trial ended, because nothing is recorded of it."""

    run: str
    then: Summary
    now: Summary
    stopped_at: str = ""
    checks: list[Checked] = []


class RecordedResults(Struct):
    """The results of then, by their calls: each is given once. With `match` name, the next one of the same tool is."""

    by_key: dict[str, deque[ResultPart]]
    by_name: dict[str, deque[ResultPart]]
    match: Match = "exact"
    _given: set[str] = field(default_factory=set)

    @classmethod
    def of(cls, recording: Recording, match: Match) -> RecordedResults:
        started = {one["call"]: one for one in recording.events if one["type"] == events.ToolStarted.type}
        by_key, by_name = defaultdict[str, deque[ResultPart]](deque), defaultdict[str, deque[ResultPart]](deque)
        for result in recording.results:
            if event := started.get(result.call):
                by_key[key_of(event["name"], event["arguments"])].append(result)
            by_name[result.name].append(result)
        return cls(by_key, by_name, match)

    def take(self, name: str, arguments: Arguments) -> ResultPart | None:
        places = [self.by_key.get(key_of(name, arguments))]
        if self.match == "name":
            places.append(self.by_name.get(name))
        for place in places:
            while place:
                if (one := place.popleft()).call not in self._given:
                    self._given.add(one.call)
                    return one
        return None

    def has(self, name: str, arguments: Arguments) -> bool:
        """Return True if a call like this one was made then."""
        return bool(self.by_key.get(key_of(name, arguments)))


class TrialApprovals(StorelessApprovals):
    """Approvals of a trial: a call that was made then may be given its result, any other is denied."""

    def __init__(self, recorded: RecordedResults) -> None:
        super().__init__()
        self._recorded = recorded

    async def wait(self, row: ApprovalRow) -> ApprovalRow:
        self._waiting.pop(row.run, None)
        known = self._recorded.has(row.name, json.loads(row.arguments))
        return replace(row, state="approved" if known else "denied", by=NOT_ASKED, scope="once")


class TrialRun(Struct):
    """Runs one trial. With `live` it may go on by real tools, in a scratch copy of the workspace as it was then.

    Use as `async with TrialRun(...) as trial`: the scratch copy is deleted at the end.
    """

    factory: RunFactory
    principal: Principal
    recording: Recording
    match: Match = "exact"
    live: bool = False
    folder: Path | None = None
    context: Context | None = None  # of its calls
    _session: str = ""
    _run: str = ""
    _gate: Gate | None = None
    _stopped_at: str = ""
    _stopping: list[asyncio.Task[None]] = field(default_factory=list)

    async def __aenter__(self) -> Self:
        """Raises NoSuchState, StoreFailed where there can be no scratch copy."""
        if self.live:
            run, scratch = self.recording.run, self.factory.scratch
            workspace = await self.factory.workspace_of(self.principal, run.session)
            self._session = own_session()
            try:
                await scratch.begin(self._session, self.principal.name, workspace, Moment(run.id, (), ()))
                await scratch.fill(self._session, _tell_nobody)
            except BaseException:
                await scratch.forget(self._session)
                raise
            self.folder = scratch.of(self._session)
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._session:
            await self.factory.scratch.forget(self._session)

    def refusal(self, command: str) -> str:
        """Return why a command of a check must not be run: it has the rights of the run's own, in the same box."""
        if self._gate is None or not self._gate.policy.boxed:
            return NEEDS_BOX
        decision = self._gate.decide(BASH, {"command": command})
        return decision.reason if isinstance(decision, Refuse) else ""

    async def go(self, options: RunOptions) -> Trial:
        """Raises what making an agent and starting a run raise."""
        agent = await self.factory.agent(self.principal, options, self._session or None)
        self._stage(agent)
        history = [*messages_of(self.recording.history), *messages_of(self.recording.said)]
        turn = RunRequest(
            "", history=history, unlisted=True, policy=options.policy(), labels=await self._labels(), tied=True
        )
        began = monotonic()
        row = await self.factory.runs.start(agent, self.principal, turn)
        self._run = row.id
        log = list[Event]()
        try:
            async with aclosing(self.factory.runs.watch(row.id, 0)) as pages:
                async for rows in pages:
                    log += (json.loads(one.data) for one in rows)
        finally:
            await self.factory.runs.cancel(row.id)
        now = summary_of(log, agent.provider.answers or row.model, seconds=round(monotonic() - began, 2))
        run = self.recording.run
        seconds = None if run.ended is None else round(run.ended - run.created, 2)
        then = summary_of(self.recording.events, run.model, seconds=seconds)
        return Trial(run.id, then, now, self._stopped_at)

    def _stage(self, agent: Agent) -> None:
        """Put recorded results in place of tools, and leave out what keeps something."""
        scope, recorded = agent.scope, RecordedResults.of(self.recording, self.match)
        gate = scope.gate
        tools = ToolList(self._tried(tool, recorded) for tool in scope.toolbox.known)
        lacking = scope.toolbox.lacking
        scope.toolbox = Toolbox(tools, gate.decide, gate.principal.name, gate.offer, gate.classification.current)
        scope.toolbox.lacking = lacking
        scope.approvals = TrialApprovals(recorded)
        scope.memory = scope.documents = scope.checkpoints = scope.delegation = scope.recorder = scope.marks = None
        scope.changes = CallChanges()
        if scope.hooks:
            scope.hooks.hooks = scope.hooks.hooks.of_trials()
        agent.first_contact, self._gate = None, gate
        self.context = scope.tool_context = replace(scope.tool_context, jobs=None)

    def _tried(self, tool: Tool, recorded: RecordedResults) -> Tool:
        async def run(arguments: Arguments, context: Context) -> AsyncGenerator[Progress | Result, None]:
            is_real = self._is_real(tool, arguments)  # also a call of then: what it did is to be there for the next one
            found = None if is_real else recorded.take(tool.name, arguments)
            if found:
                yield Result(found.ok, found.text, found.exit_code, untrusted=found.untrusted)
                return
            if not is_real:
                self._stopped_at = call_in_words(tool.name, arguments)
                await self._stop()
            async with aclosing(tool.run(tool.with_paths(arguments, context.workspace), context)) as updates:
                async for update in updates:
                    yield update

        return replace(tool, run=run, paths={})

    def _is_real(self, tool: Tool, arguments: Arguments) -> bool:
        """Return True for a call that can reach nothing but the scratch copy."""
        if not (self.live and tool.confined and self._gate):
            return False
        return tool.risk is not Risk.EXECUTE or (self._gate.policy.boxed and not hosts_wanted(arguments))

    async def _stop(self) -> None:
        """End the run from beside it: a call cannot wait for the end of its own run."""
        self._stopping.append(asyncio.create_task(self.factory.runs.cancel(self._run, STOPPED_AT)))
        await asyncio.Event().wait()

    async def _labels(self) -> list[str]:
        """Return the labels of the session: the requests of a trial may go only where those of the run might."""
        if self.factory.labels is None:
            return []
        return sorted(await self.factory.labels.of_session(self.recording.run.session))


async def _tell_nobody(_: Notice) -> None:
    """The copying is not watched."""


def summary_of(log: Sequence[Event], model: str, seconds: float | None = None) -> Summary:
    """Return what a log says in the end."""
    last = log[-1] if log else {"type": ""}
    used = [one for one in log if one["type"] == events.Usage.type]
    costs = [one["cost"] for one in used if one.get("cost") is not None]
    return Summary(
        model,
        reason=str(last.get("reason") or last.get("code") or "unknown"),
        text=_answer(log) or str(last.get("text", last.get("message", ""))),
        calls=list(_calls(log)),
        rounds=sum(one["type"] == events.RoundStarted.type for one in log),
        tokens=sum(one["prompt_tokens"] + one["completion_tokens"] for one in used),
        seconds=seconds,
        cost=sum(costs) if costs else None,
    )


def _answer(log: Sequence[Event]) -> str:
    """Return the text of the last round, without calls that are blocks of code; empty where a part was taken back."""
    start = max((at for at, one in enumerate(log) if one["type"] == events.RoundStarted.type), default=0)
    if any(one["type"] == events.TextReclassified.type for one in log[start:]):
        return ""
    pieces = (one for one in log[start:] if one["type"] == events.TextDelta.type and "call" not in one)
    return "".join(one["text"] for one in pieces).strip()


def _calls(log: Sequence[Event]) -> Iterator[str]:
    failed = {one["call"] for one in log if one["type"] == events.ToolFinished.type and not one["ok"]}
    for one in log:
        match one["type"]:
            case events.ToolStarted.type:
                words = call_in_words(one["name"], one["arguments"])
                yield f"{words} (failed)" if one["call"] in failed else words
            case events.ToolRejected.type if one.get("name"):
                yield f"{one['name']} (refused)"
