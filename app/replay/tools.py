"""The tools of a replay: the definitions of now, and the results of then. None of them does anything."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any, get_args

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

from app.core.events import AgentEvent
from app.policy.classification import Classification
from app.replay.recording import ResultPart
from app.runs.recording import parts
from app.runs.recording.stand_ins import MadeUp
from parsing import Arguments
from tools.base.outcome import Progress, Result
from tools.base.permit import canonical
from tools.base.rights import Hints, Origin
from tools.builtin.outbound_effects import call_sent
from tools.builtin.submit_plan import NAME as SUBMIT_PLAN
from tools.catalogue import CATALOGUE
from tools.tool import Context, Tool, ToolList, binds_nothing, no_outbound_effect

EVENTS = {kind.type: kind for kind in get_args(AgentEvent)}
BUILT_IN = {tool.name: tool for tool in CATALOGUE}


class Results(Struct):
    """The results of then, each given once: by the id of its call, else by its name and arguments.

    `log` adds an event to the replay's log, `stop` stops it as the run was stopped, `end` ends it where nothing is
    recorded: what the tool would have answered is not known.
    """

    by_call: dict[str, ResultPart]
    started: Mapping[str, str]  # calls that ran then, each with its name and arguments
    asked: Collection[str]  # calls that were asked about, each as name and arguments
    shown: MadeUp
    log: Callable[[AgentEvent], None] = lambda _: None
    stop: Callable[[str], None] = lambda _: None
    end: Callable[[str, Arguments], None] = lambda _, __: None
    on_result: Callable[[], None] = lambda: None
    changes: Mapping[str, int] = field(default_factory=dict)  # of the targets of calls, while a person decided
    stopped: set[str] = field(default_factory=set)  # calls that were stopped and are not reached yet
    _given: set[str] = field(default_factory=set)
    _bound: Counter[str] = field(default_factory=Counter)

    def of(self, call: str, name: str, arguments: Arguments) -> ResultPart | None:
        """Return the result of a call, or None if there is none."""
        same = key_of(name, arguments)
        if self.started.get(call) != same:
            call = next((one for one, key in self.started.items() if key == same and one not in self._given), call)
        if call in self._given or self.started.get(call) != same:
            return None
        self._given.add(call)
        return self.by_call.get(call)

    @property
    def all_given(self) -> bool:
        """Return True if no further call was run."""
        return self.started.keys() <= self._given

    def end_at(self, call: str, name: str, arguments: Arguments) -> None:
        """End the replay at a call without a result: where the run was stopped, or because nothing is known of it."""
        if call not in self.stopped:
            self.end(name, arguments)
            return
        self.stopped.remove(call)
        if not self.stopped:  # all that ran side by side have got as far as they did
            self.stop("cancelled")

    def loses_nothing(self, name: str, arguments: Arguments) -> bool:
        """Return what the workspace of then said of a call: if it was not asked for, nothing was lost."""
        return key_of(name, arguments) not in self.asked

    def binding(self, name: str, arguments: Arguments) -> str:
        """Return what an approval of a call is bound to: another thing each time that it was asked for again."""
        same = key_of(name, arguments)
        self._bound[same] += 1
        return str(min(self._bound[same] // 2, self.changes.get(same, 0)))


def key_of(name: str, arguments: Arguments) -> str:
    return canonical({name: arguments})


def replayed(tool: Tool, results: Results) -> Tool:
    """Return the tool with its results of then, which looks at no file."""

    async def run(arguments: Arguments, context: Context) -> AsyncGenerator[Progress | Result, None]:
        found = results.of(context.call, tool.name, arguments)
        for event in found.before if found else ():
            results.log(event_of(results.shown.shown_in(event)))
        if found is None or found.stopped:
            results.end_at(context.call, tool.name, arguments)
            await asyncio.Event().wait()
            return
        results.on_result()
        if tool.name == SUBMIT_PLAN and found.ok and context.accept_plan:
            context.accept_plan()
        yield Result(
            found.ok,
            results.shown.shown(found.text),
            found.exit_code,
            untrusted=found.untrusted,
            labels=tuple(found.labels),
        )

    def loses_nothing(arguments: Arguments, _: object) -> bool:
        return results.loses_nothing(tool.name, arguments)

    def binds(arguments: Arguments, _: object) -> str:
        return results.binding(tool.name, arguments)

    changed = binds if results.changes else binds_nothing
    return replace(tool, run=run, paths={}, binds=changed, loses_nothing=loses_nothing)


def event_of(fields: dict[str, Any]) -> AgentEvent:
    """Return the event of its JSON. Raises ValueError for one that this version does not know."""
    kind = EVENTS.get(str(fields.get("type")))
    if kind is None:
        raise ValueError(f"This version knows no event {fields.get('type')!a}.")
    event: AgentEvent = msgspec.convert({name: one for name, one in fields.items() if name != "type"}, kind)
    return event


def tools_of(begin: parts.Begin, results: Results, rules: Sequence[Any]) -> ToolList:
    """Return all tools that the run could have called, in their order: ours are those of now."""
    ours = [BUILT_IN[name] for name in begin.built_in if name in BUILT_IN]
    classified = Classification(tuple(rules))
    others = map(foreign_tool, begin.tools)
    found = (replayed(tool, results) for tool in (*map(classified.of, ours), *others))
    places = {name: place for place, name in enumerate(begin.listed)}
    return ToolList(sorted(found, key=lambda tool: places.get(tool.name, len(places))))


def foreign_tool(part: parts.ToolPart) -> Tool:
    """Return a tool that is none of our own, as it was classified."""
    hints = Hints(destructive=True) if part.destructive else Hints()
    origin = Origin(*part.origin, hints) if part.origin else None
    return Tool(
        part.name,
        part.description,
        part.parameters,
        part.risk,
        BUILT_IN["read_file"].run,
        role=part.role,
        approval=part.approval,
        confined=part.confined,
        untrusted=part.untrusted,
        through=part.through,
        leaves=partial(call_sent, origin.server, origin.tool) if origin else no_outbound_effect,
        origin=origin,
        columns=part.columns,
        visibility=part.visibility,
    )
