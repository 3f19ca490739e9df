"""The agent of a replay: made by the code of now, of the settings, rights and texts of then."""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path, PosixPath
from typing import Any, Self, cast
from weakref import WeakSet

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace
from pydantic import ValidationError

from app.budget.budgets import Ledger, Reservation
from app.budget.kinds import BudgetKind, BudgetSpent
from app.budget.run_budget import RunBudget
from app.budget.side_query import SideQuery
from app.budget.tallies import Record
from app.config.settings import Settings
from app.context.compaction.replay import CompactedHistory, CompactedState, HistoryCache
from app.context.compaction.summarise import Summariser
from app.context.view import RelayView, View
from app.core.messages import Message, load
from app.hooks.hooks import Hooks
from app.hooks.run_hooks import HOOK, RunHooks
from app.hooks.verdicts import ALLOWED, Verdict
from app.models.endpoints.failover import ModelRoute
from app.models.wire.structured_output import is_structured
from app.policy.classification import KnownTools
from app.policy.gate import Gate
from app.policy.guards import Guards
from app.policy.policy_context import PolicyContext, Writes
from app.policy.rules.compiling import compiled_rules
from app.policy.rules.operator_rules import IN_DOUBT
from app.policy.rules.path_globs import Links
from app.policy.secret_rights import SecretRights
from app.provenance.origins import Origins
from app.provenance.quotation import Provenance
from app.provenance.read_texts import Source
from app.replay.approvals import ReplayedApprovals
from app.replay.model import ReplayedModel
from app.replay.recording import UnusableRecording
from app.runs.agent import Agent
from app.runs.client_tools import ClientToolLists
from app.runs.composition.profiled_options import narrowing_of
from app.runs.delegation.shared_limits import SharedLimits
from app.runs.discipline.end_judge import judge_of
from app.runs.discipline.limit_enforcer import LimitEnforcer
from app.runs.recording.parts import Begin, Decided
from app.runs.recording.recorder import RunRecorder
from app.runs.recording.values import grant_in, permissions_in
from app.runs.relay.json_answer import JSONAnswer
from app.runs.relay.relay_agent import RelayAgent
from app.runs.run_factory import limits_of
from app.runs.run_options import RunOptions
from app.runs.run_scope import RunScope
from app.runs.tool_executor import ToolExecutor
from app.runs.tool_results import Results
from app.storage.principals import Principal
from app.storage.usage import UsageStore
from tools.mcp.tool_search import SearchedToolbox, ToolChoices
from tools.sandbox.sandbox import NoSandbox
from tools.tool import Context, Tool, ToolList
from tools.toolbox import Ask, Refuse, Toolbox

NO_HOOKS = cast("Hooks", None)
LONGEST_S = 1e9  # a replay ends where the run was stopped, not by a clock


class RecordedFolder(PosixPath):
    """The workspace of then, which is not looked at: it is taken for a folder without links."""

    def resolve(self, strict: bool = False) -> Self:
        return self


class NoUsage:
    """The figures of budgets: none."""

    async def usage(self, principal: str, kind: str, period: str) -> float:
        return 0.0


class ReplayedLedger(Ledger):
    """No limits; a run whose budget was spent then ends there, in the words that `spent` returns for a kind."""

    def __init__(self, spent: Callable[[BudgetKind], str]) -> None:
        super().__init__(cast("UsageStore", NoUsage()))
        self._spent = spent

    async def reserve(
        self, principal: Principal, kind: BudgetKind, record: Record, most: float, least: float | None = None
    ) -> Reservation:
        if words := self._spent(kind):
            raise BudgetSpent("recorded", words, 0.0)
        return await super().reserve(principal, kind, record, most, least)


class ReplayedHooks(RunHooks):
    """The hooks of then, as far as their decisions are recorded. No program is asked."""

    asks_about_calls = False
    judges_results = False
    _decided: dict[str, Ask | Refuse] = field(default_factory=dict)

    @classmethod
    def of(cls, decided: Iterable[Decided]) -> ReplayedHooks | None:
        by_hooks = [one for one in decided if one.by.startswith(f"{HOOK} ")]
        kinds = {"ask": Ask, "refuse": Refuse}
        found = {one.call: kinds[one.decision](one.why, by=one.by) for one in by_hooks if one.decision in kinds}
        return cls(NO_HOOKS, "", _decided=found) if found else None

    def decision(self, call: str, *, is_handed: bool = False) -> Ask | Refuse | None:
        return self._decided.get(call)

    async def _call(self, *_: object, **__: object) -> Verdict:
        return ALLOWED


class ReplayedChoices(ToolChoices):
    """The searched tools that the session was shown then."""

    def __init__(self, listed: frozenset[str]) -> None:
        super().__init__()
        self._listed = listed

    async def choose(self, *_: object) -> frozenset[str]:
        return self._listed


@dataclass(slots=True)
class ReplayedWrites(Writes):
    """Writes by the clock of then: each is later than the grants that were given by then."""

    gate: Gate | None = None

    def note(self) -> None:
        given = [one.created for one in self.gate.policy.grants if one.created < math.inf] if self.gate else []
        self.last = max([self.last, self.started, *given])


class Stage(Struct, kw_only=True):
    """The parts that an agent of a replay is made of."""

    begin: Begin
    options: RunOptions
    settings: Settings
    principal: Principal
    model: ReplayedModel
    tools: ToolList
    approvals: ReplayedApprovals
    recorder: RunRecorder
    guards: Guards
    decided: Sequence[Decided]
    ledger: Ledger
    session: str
    history: Sequence[Message]
    compacted: CompactedState | None = None

    @property
    def route(self) -> ModelRoute:
        """The model in place of a route, of which it has all that a run asks."""
        return cast("ModelRoute", self.model)

    def agent(self) -> Agent:
        gate = self._gate()
        limits = limits_of(self.settings, self.options)
        discipline = LimitEnforcer(
            SharedLimits(limits.rounds, limits.calls, limits.tokens, limits.seconds),
            verify=self.settings.verify,
            clock=lambda: self.model.clock_s,
        )
        budget = RunBudget(self.ledger, self.principal)
        if self.guards.judge:
            self.guards.judge.run_budget = budget
        notes = SideQuery(self.model.apart(), budget, self.route, self.settings.summary_time_limit_s)
        scope = RunScope(
            toolbox=self._toolbox(gate),
            gate=gate,
            tool_context=Context(
                gate.policy.workspace, LONGEST_S, NoSandbox("A replay runs nothing."), principal=self.principal.name
            ),
            approvals=self.approvals,
            run_budget=budget,
            check_not_paused=lambda: None,
            guards=self.guards,
            results=Results(self.settings.result_characters),
            parallel_reads=self.settings.parallel_reads,
            provenance=Provenance(self._sources),
            origins=Origins(self._sources),
            given=self.begin.given,
            waiting=discipline.waiting,
            call_form=lambda: self.model.call_form,
            hooks=ReplayedHooks.of(self.decided),
            recorder=self.recorder,
        )
        if self.begin.relay is not None:
            return self._relay(scope, discipline)
        return Agent(
            self.model,
            scope,
            ToolExecutor(scope),
            self._view(notes),
            discipline,
            new_id=self.recorder.draw_id,
            end_judge=judge_of(notes if self.settings.utility else None),
        )

    def _relay(self, scope: RunScope, discipline: LimitEnforcer) -> RelayAgent:
        parameters = self.begin.relay or {}
        wanted = parameters.get("response_format", {})
        return RelayAgent(
            self.model,
            scope,
            ToolExecutor(scope),
            RelayView(self.route, parameters),
            discipline,
            new_id=self.recorder.draw_id,
            parameters=parameters,
            repairs=self.settings.relay_repair,
            json_answer=JSONAnswer(wanted) if is_structured(wanted) else None,
        )

    def _view(self, notes: SideQuery) -> View:
        histories = HistoryCache()
        if self.compacted:
            last = self.history[self.compacted.position - 1] if self.compacted.position else None
            histories.keep(self.session, CompactedHistory.of_state(self.compacted, last))
        return View(
            self.model,
            self._opening,
            summariser=Summariser(notes, WeakSet([] if self.model.asked_behind else [self.route.counter])),
            summarise_at=self.settings.summarise_at,
            histories=histories,
            parameters=self.options.parameters,
        )

    def _opening(self, tools: Sequence[Tool]) -> Sequence[Message]:
        """Return the beginning of a request as it was then: the prompt is given, as the model is."""
        return self.model.opening(taught=bool(tools))

    async def _sources(self, _: str) -> Sequence[Source]:
        return [Source(place, text) for place, text in self.begin.sources]

    def _gate(self) -> Gate:
        begin, options = self.begin, self.options
        writes = ReplayedWrites(begin.wrote or sys.float_info.min, math.inf if begin.wrote is None else 0.0)
        policy = PolicyContext(
            options.approval or self.settings.mode_of(self.principal.role),
            begin.boxed,
            begin.networked,
            begin.way_out,
            RecordedFolder(begin.workspace),
            commands=self.settings.allowed_commands,
            when_absent=options.when_absent,
            planning=options.plans,
            narrowing=narrowing_of(options),
            rules=replace(compiled_rules(self.settings.rules), links=self._links()),
            weighs=True,
            clock=lambda: self.begin.at,
            writes=writes,
            secrets=SecretRights(tuple(begin.secrets)),
        )
        gate = Gate(self.principal, policy, self.settings.taint, KnownTools())
        writes.gate = gate
        if policy.unattended:  # else the executor reads them with the first call that could use one
            gate.permit(permissions_in(begin.permissions))
        gate.enter(begin.disabled, map(grant_in, begin.grants), tainted=begin.tainted)
        return gate

    def _links(self) -> Links:
        """Return what is known of the files of then: no links, and folders if a rule was in doubt about some."""
        asked = any(IN_DOUBT in one.why for one in self.decided)
        return Links(os.path.normpath, lambda _: asked)

    def _toolbox(self, gate: Gate) -> Toolbox:
        tools = ClientToolLists().joined(self.tools, self.options.client_tools or ())
        whole = Toolbox(tools, gate.decide, gate.principal.name, gate.offer, gate.classification.current)
        whole.lacking = self.begin.lacking
        if not self.begin.hidden:
            return whole
        hidden = frozenset(self.begin.hidden)
        return SearchedToolbox(whole, hidden, choices=ReplayedChoices(hidden & frozenset(self.begin.listed)))


def settings_of(begin: Begin, folder: Path) -> Settings:
    """Return the settings that were in force, as far as there are any of these names now. Raises UnusableRecording."""
    known = {name: value for name, value in begin.settings.items() if name in Settings.model_fields}
    try:
        return Settings.model_validate({"data_dir": folder, **known})
    except ValidationError as invalid:
        names = ", ".join(str(error["loc"][0]) for error in invalid.errors())
        raise UnusableRecording(f"Settings of the recording are not valid any more: {names}.") from invalid


def principal_of(begin: Begin) -> Principal:
    part = begin.principal
    return Principal(part.name, part.role, tuple(part.tools), tuple(part.disabled), profile=part.profile)


def options_of(policy: dict[str, Any]) -> RunOptions:
    """Raises UnusableRecording."""
    try:
        return RunOptions.of_policy(json.dumps(policy))
    except (ValidationError, msgspec.ValidationError) as invalid:
        raise UnusableRecording(f"The options of the run are not valid any more: {invalid}") from invalid


def messages_of(stored: Sequence[dict[str, Any]]) -> list[Message]:
    """Raises UnusableRecording."""
    try:
        return [load(json.dumps(one)) for one in stored]
    except (TypeError, KeyError, ValueError) as error:
        raise UnusableRecording(f"A message of the recording cannot be read: {error}") from error
