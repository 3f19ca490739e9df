"""Rules tried on the past: each stored decision on a call is made again by the gate, under the rules given here.

A decision is made in the world of its moment. Its audit row has the facts that it rested on
(`app.policy.decision_facts`); rows of earlier versions have none and cannot be tried. No call is run, no model asked
and nothing written. The verdicts of guards, hooks and provenance, and the refusals of calls that
name no tool or do not fit its schema, are facts: they stay as they were.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from functools import partial
from time import monotonic, time

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace
from pydantic import ValidationError

from app.config.settings import Settings
from app.core import events
from app.core.messages import AskedCall
from app.core.rules import OperatorRule, ToolRule, classified
from app.policy.call_rows import PROVENANCE_ROW, CallRequest, decide_call
from app.policy.decision_facts import Facts, InForce, gate_of
from app.policy.decisions import DECISIONS, POLICY
from app.policy.gate import Gate
from app.policy.grants import narrowed, reaches_hosts
from app.policy.guards import CANARY, JUDGE, SCREEN
from app.policy.permits.permissions import OF_RULES
from app.policy.rules.compiling import compiled_rules
from app.policy.rules.operator_rules import OperatorRules
from app.replay.derived import ANYTHING
from app.replay.tools import BUILT_IN, foreign_tool
from app.runs.client_tools import tool_of
from app.runs.composition.profiled_options import narrowing_of
from app.runs.recording.parts import ToolPart
from app.runs.run_options import ClientTool, RunOptions
from app.storage.audit import AuditRow
from app.storage.runs import RunRow
from app.storage.store import Store
from app.transcript.client_calls import fitted_for_client
from parsing import Arguments
from tools.base.permit import canonical, fingerprint
from tools.base.schemas import argument_error
from tools.base.texts import shortened
from tools.builtin.web_search import SearchBackend, with_backend
from tools.catalogue import WEB_SEARCH
from tools.tool import Tool, nothing_known
from tools.toolbox import ARGUMENTS, UNKNOWN_TOOL, Allow, Ask, Decision, Refuse

DAY_S = 86_400.0
DAYS, LONGEST_DAYS = 90.0, 36_500
PAGE = 500  # sessions
SLICE_S = 0.01  # that other work waits for
MOST_CHANGES = 10_000  # that are kept; all are counted
MOST_EXAMPLES = 5  # of a group
SHORT = 200  # characters of a call, and of a reason
OF_UNKNOWN = frozenset({UNKNOWN_TOOL, CANARY, SCREEN, JUDGE, PROVENANCE_ROW.name})  # also refuse what is no tool
RULE_ROWS = frozenset({"rule", "rule_asks"})
HOOKS = {"ask": Ask, "refuse": Refuse}
NO_RULES = InForce(OperatorRules())
THERE = "a text that the model had read"
NOT_KEPT = "their conversation is not kept any more"
NO_TOOL = "their tool is gone"
NO_FACTS = "an earlier version decided on them, which did not store the facts that it rested on"
NO_ARGUMENTS = "their arguments were not stored as they were decided on"
UNREADABLE = "the facts, options or recording that were stored with them cannot be read by this version"


class Untried(Exception):
    """A call cannot be tried. The message is the reason, of many calls."""


class PastSession(Struct, frozen=True):
    """One session. `calls` are the model's, by their ids."""

    id: str
    runs: Mapping[str, RunRow]
    calls: Mapping[str, AskedCall]


class Changed(Struct, frozen=True, kw_only=True):
    """A call that would be decided otherwise. `by` and `then_by` are rows of the table of decisions."""

    at: float
    principal: str
    session: str
    run: str
    call: str
    tool: str
    arguments: str
    then: str
    then_by: str
    now: str
    by: str
    rule: str
    why: str


class Group(Struct, kw_only=True):
    """Calls of a tool that change in the same way."""

    tool: str
    then: str
    then_by: str
    now: str
    by: str
    rule: str
    calls: int = 0
    examples: list[Changed] = []


class Report(Struct, kw_only=True):
    """`then` and `now` count decisions, `asked_a_day` are questions then and now, `rules` the calls that each decides.

    `calls` are those that were tried. `untried` counts others by the reason why they cannot be. It is not `complete` if
    its time was over first.
    """

    days: float
    sessions: int = 0
    calls: int = 0
    changed: int = 0
    then: dict[str, int] = field(default_factory=lambda: dict.fromkeys(DECISIONS.values(), 0))
    now: dict[str, int] = field(default_factory=lambda: dict.fromkeys(DECISIONS.values(), 0))
    asked_a_day: tuple[float, float] = (0.0, 0.0)
    rules: dict[str, int] = {}
    untried: dict[str, int] = {}
    complete: bool = True
    groups: list[Group] = []
    changes: list[Changed] = []


class Tried(Struct, frozen=True):
    """Rules that are tried, with the settings that hold besides them."""

    settings: Settings
    tools: Sequence[ToolRule]
    in_force: InForce

    @classmethod
    def of(
        cls,
        settings: Settings,
        rules: Sequence[OperatorRule] | None = None,
        tools: Sequence[ToolRule] | None = None,
    ) -> Tried:
        """Rules in place of those of the settings, None for these. Raises SettingsError."""
        compiled = compiled_rules(settings.rules if rules is None else rules)
        in_force = InForce(compiled, settings.allowed_commands, settings.label_policy)
        return cls(settings, settings.tools if tools is None else tools, in_force)


class Backtest(Struct, kw_only=True):
    """One trial over the calls of so many days. `redact` is applied to what is shown, `until` ends it (monotonic)."""

    store: Store
    tried: Tried
    days: float
    principal: str = ""
    redact: Callable[[str], str] = str
    until: float | None = None
    _report: Report = field(default_factory=lambda: Report(days=0))
    _groups: dict[tuple[str, ...], Group] = field(default_factory=dict)
    _untried: Counter[str] = field(default_factory=Counter)
    _rules: Counter[str] = field(default_factory=Counter)

    async def report(self) -> Report:
        """Raises StoreFailed."""
        began, since, first = monotonic(), time() - self.days * DAY_S, time()
        self._report = report = Report(days=self.days)
        if lost := await self.store.decided_elsewhere(since, self.principal):
            self._untried[NOT_KEPT] = lost
        async with aclosing(self._sessions(since)) as sessions:
            async for past, rows in sessions:
                report.sessions += 1
                decided = dict[tuple[str | None, str | None], AuditRow]()
                for row in rows:  # the first of each call: after a restart a call is decided on again
                    decided.setdefault((row.run, row.call), row)
                for row in decided.values():
                    first = min(first, row.at)
                    await self._try(past, row)
                    if monotonic() - began > SLICE_S:
                        await asyncio.sleep(0)
                        began = monotonic()
                if self.until is not None and monotonic() > self.until:
                    report.complete = False
                    break
        span = max(1.0, (time() - first) / DAY_S)
        report.asked_a_day = round(report.then["ask"] / span, 2), round(report.now["ask"] / span, 2)
        report.groups = sorted(self._groups.values(), key=lambda one: -one.calls)
        report.untried, report.rules = dict(self._untried), dict(self._rules)
        return report

    async def _sessions(self, since: float) -> AsyncGenerator[tuple[PastSession, list[AuditRow]], None]:
        """Yield each session with decisions on its calls: one is held at a time."""
        after = ""
        while names := await self.store.decided_sessions(since, after, PAGE):
            for name in names:
                if rows := await self.store.decided_calls(name, since, self.principal):
                    yield await self._session(name), rows
            after = names[-1]

    async def _session(self, name: str) -> PastSession:
        calls = (call for message in await self.store.messages(name) for call in message.calls)
        runs = {row.id: row for row in await self.store.runs(name)}
        return PastSession(name, runs, {call.id: call for call in calls})

    async def _try(self, past: PastSession, row: AuditRow) -> None:
        report = self._report
        try:
            call = await self._past_call(past, row)
        except Untried as untried:
            self._untried[str(untried)] += 1
            return
        report.calls += 1
        report.then[row.decision] += 1
        decision = call.decide(self.tried.in_force)
        now = DECISIONS[type(decision)]
        report.now[now] += 1
        by = decision.by or POLICY
        rule = call.rule(self.tried.in_force) if by in RULE_ROWS else ""
        if isinstance(decision, Allow) and decision.counted.startswith(OF_RULES):
            rule = decision.counted.removeprefix(OF_RULES)
        if rule:
            self._rules[rule] += 1
        if now != row.decision:
            self._note(past, call, decision, by=by, rule=rule)

    def _note(self, past: PastSession, call: PastCall, decision: Decision, *, by: str, rule: str) -> None:
        row, now = call.row, DECISIONS[type(decision)]
        why = "" if isinstance(decision, Allow) else decision.reason
        self._report.changed += 1
        changed = Changed(
            at=row.at,
            principal=row.principal,
            session=past.id,
            run=row.run or "",
            call=row.call or "",
            tool=row.action,
            arguments=shortened(self.redact(canonical(call.arguments)), SHORT),
            then=row.decision,
            then_by=row.by,
            now=now,
            by=by,
            rule=rule,
            why=shortened(self.redact(why), SHORT),
        )
        key = (row.action, row.decision, row.by, now, by, rule)
        if (group := self._groups.get(key)) is None:
            group = self._groups[key] = Group(
                tool=row.action, then=row.decision, then_by=row.by, now=now, by=by, rule=rule
            )
        group.calls += 1
        if len(group.examples) < MOST_EXAMPLES:
            group.examples = [*group.examples, changed]
        if len(self._report.changes) < MOST_CHANGES:
            self._report.changes.append(changed)

    async def _past_call(self, past: PastSession, row: AuditRow) -> PastCall:
        """Raises Untried, StoreFailed."""
        if (run := past.runs.get(row.run or "")) is None:
            raise Untried(NOT_KEPT)  # it was deleted meanwhile
        if not row.facts:
            raise Untried(NO_FACTS)
        try:
            options = RunOptions.of_policy(run.policy)
            facts = msgspec.json.decode(row.facts, type=Facts)
        except (ValidationError, msgspec.MsgspecError, ValueError) as error:
            raise Untried(UNREADABLE) from error
        tool = tool_then(row.action, facts, self.tried.tools)
        call = PastCall(row=row, facts=facts, options=options, tool=tool)
        if tool is None:
            if row.by in OF_UNKNOWN:
                return call
            raise Untried(NO_TOOL)
        return replace(call, arguments=await self._arguments(past, call, tool))

    async def _arguments(self, past: PastSession, call: PastCall, tool: Tool) -> Arguments:
        """Return the arguments that were decided on, known by their fingerprint. Raises Untried, StoreFailed."""
        row, asked = call.row, past.calls.get(call.row.call or "")
        if asked:
            whole = tool.normalise(asked.arguments)
            yet = narrowed(call.gate(NO_RULES).policy.holding, whole) if reaches_hosts(tool) else whole
            declared = {one.name: one.parameters for one in call.options.client_tools or ()}
            fitted = fitted_for_client(row.action, asked.arguments, declared)[1] if call.facts.handed else whole
            for one in (yet, whole, fitted, asked.arguments):
                if call.has(one):
                    return one
        for event in await self.store.call_events(row.run or "", row.call or ""):
            if event.type == events.ToolStarted.type and call.has(one := json.loads(event.data)["arguments"]):
                return one
        approval = await self.store.approval(row.run or "", row.call or "")
        if approval and call.has(one := json.loads(approval.arguments)):
            return one
        raise Untried(NO_ARGUMENTS)


class PastCall(Struct, frozen=True, kw_only=True):
    """A call in the world of its decision."""

    row: AuditRow
    facts: Facts
    options: RunOptions
    tool: Tool | None
    arguments: Arguments = {}

    def has(self, arguments: Arguments) -> bool:
        return fingerprint(self.row.principal, self.row.action, arguments) == self.row.fingerprint

    def gate(self, in_force: InForce) -> Gate:
        """Return its gate. What the gate is to know of the conversation besides is one more argument here."""
        return gate_of(self.facts, self.row.principal, in_force, narrowing_of(self.options), at=self.row.at)

    def decide(self, in_force: InForce) -> Decision:
        """Decide on it by the whole table, under these rules."""
        facts, gate = self.facts, self.gate(in_force)
        hook = facts.hook and HOOKS[facts.hook[0]](self.row.why, by=facts.hook[1])
        return decide_call(
            CallRequest(
                name=self.row.action,
                policy=gate.policy,
                dispatch=partial(self._dispatch, gate),
                objection=Refuse(self.row.why, by=facts.objection) if facts.objection else None,
                hook=hook or None,
                quoted_in=THERE if facts.quoted else "",
                is_handed=facts.handed,
            )
        )

    def _dispatch(self, gate: Gate) -> Decision:
        """Decide as the dispatcher does, without its advice to the model."""
        row, tool = self.row, self.tool
        if tool is None or row.by == UNKNOWN_TOOL:
            return Refuse(row.why, by=UNKNOWN_TOOL)
        decision = gate.decide(tool, self.arguments)
        if isinstance(decision, Refuse) and not decision.only_so:
            return decision
        own = row.decision == "refuse" and tool.name in BUILT_IN and not tool.handed
        unfit = row.by == ARGUMENTS or (own and argument_error(tool.name, tool.parameters, self.arguments))
        return Refuse(row.why, by=ARGUMENTS) if unfit else decision

    def rule(self, in_force: InForce) -> str:
        """Return the name of the rule that decides, if one does."""
        if self.tool is None:
            return ""
        finding = in_force.rules.find(self.tool, self.arguments, self.facts.folder)
        return finding.rule if finding else ""


def tool_then(name: str, facts: Facts, rules: Sequence[ToolRule]) -> Tool | None:
    """Return the tool of a call as these rules classify it; None if there is none of this name now."""
    if facts.handed:
        return tool_of(ClientTool.model_construct(name=name))
    if other := facts.other:
        part = ToolPart(
            name,
            "",
            ANYTHING,
            role=other.role,
            risk=other.risk,
            approval=other.approval,
            confined=other.confined,
            untrusted=other.untrusted,
            through=facts.through,
            origin=(other.server, other.tool) if other.server else None,
        )
        return classified(foreign_tool(part), rules)
    if (own := BUILT_IN.get(name)) is None:
        return None
    own = replace(classified(own, rules), through=facts.through)
    if own.name == WEB_SEARCH.name:
        own = with_backend(own, SearchBackend(own.run, "The search engine", facts.through))
    is_looked_at = own.loses_nothing is not nothing_known
    return replace(own, loses_nothing=lambda *_: facts.harmless) if is_looked_at else own
