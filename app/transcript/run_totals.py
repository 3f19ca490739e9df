"""Totals of a run so far; its terminal event reports them, however the run ends."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any, Literal

from msgspec import Struct, field

from app.core.events import (
    AgentEvent,
    Notice,
    RoundStarted,
    RunFinished,
    ToolFinished,
    ToolHanded,
    ToolRejected,
    ToolStarted,
    Usage,
    fields_of,
)
from app.core.messages import AskedCall
from app.core.provider import TokenUsage
from app.models.endpoints.prices import total
from app.storage.runs import EventRow
from app.transcript.conversation import INTERRUPTED
from app.transcript.prompt_prefixes import PromptPrefix
from app.transcript.reply import NEVER_MADE
from app.transcript.reply_calls import THOUGHT
from app.transcript.timings import RunTimes
from tools.builtin.submit_plan import NAME as SUBMIT_PLAN

MAX_TEXT = 200_000  # characters of an answer that the terminal event repeats
MAX_ARGUMENTS = 500  # characters of a call's arguments that are remembered

FAILING = "Calls failed again and again: the model was instructed to say what is wrong, and to change the way."

Outcome = Literal["ok", "failed", "refused", "unknown"]


class Action(Struct):
    """A call that was made, and what became of it."""

    name: str
    arguments: str = ""
    outcome: Outcome = "unknown"


class RunTotals(Struct):
    """Counted in rounds, calls, tokens and money; `measured` until something had to be estimated.

    `calls` are those that the model has made, which limits count, also if they were refused. `dearest` is the most
    tokens that one request has taken, `cost` None until a model with a price has answered. `actions` are by call,
    `notices` counts the notices by code and words. `failures` are the calls in a row that failed, or were refused;
    `warned`: the notice FAILING was sent about them.
    """

    rounds: int = 0
    calls: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    measured: bool = True
    text: str = ""
    dearest: int = 0
    cost: float | None = None
    times: RunTimes = field(default_factory=RunTimes)
    actions: dict[str, Action] = field(default_factory=dict)
    notices: dict[tuple[str, str], int] = field(default_factory=dict)
    failures: int = 0
    warned: bool = False

    @property
    def tokens(self) -> int:
        return self.prompt_tokens + self.completion_tokens

    @property
    def calls_run(self) -> int:
        """Return how many calls were run, or handed to the client."""
        return sum(action.outcome != "refused" for action in self.actions.values())

    @property
    def has_accepted_plan(self) -> bool:
        """Return True if a person has accepted the run's plan."""
        return any(one.name == SUBMIT_PLAN and one.outcome == "ok" for one in self.actions.values())

    def add(
        self,
        used: TokenUsage,
        *,
        measured: bool,
        cost: float | None = None,
        timing: dict[str, float] | None = None,
        prompt: PromptPrefix | None = None,
    ) -> Usage:
        self.prompt_tokens += used.prompt_tokens
        self.completion_tokens += used.completion_tokens
        self.measured = self.measured and measured
        self.dearest = max(self.dearest, used.prompt_tokens + used.completion_tokens)
        self.cost = total(self.cost, cost)
        if timing:
            self.times.add(timing, used.completion_tokens)
            timing = {**timing, **self.times.take_steps()}
        return Usage(
            used.prompt_tokens,
            used.completion_tokens,
            total_prompt_tokens=self.prompt_tokens,
            total_completion_tokens=self.completion_tokens,
            measured=measured,
            cached_tokens=used.cached,
            cost=cost,
            total_cost=self.cost,
            timing=timing,
            prompt_bytes=prompt.size if prompt else None,
            prefix_bytes=prompt.same if prompt else None,
            prefix_break=prompt.ends if prompt else None,
        )

    def record(self, event: AgentEvent) -> None:
        """Remember a call's outcome and count a notice."""
        if event.type in REMEMBERED:
            self.remember(event.type, fields_of(event))

    def remember(self, kind: str, fields: dict[str, Any]) -> None:
        if kind == Notice.type:
            notice = fields["code"], fields["message"]
            self.notices[notice] = self.notices.get(notice, 0) + 1
            self.warned |= fields["message"] == FAILING
            return
        if kind == ToolRejected.type and fields["reason"] in NEVER_MADE:  # of two twins, the other is the action
            if fields["reason"] == THOUGHT:
                self.actions.pop(fields.get("call", ""), None)
            return
        action = self.actions.setdefault(fields.get("call", ""), Action(fields.get("name", "")))
        match kind:
            case ToolStarted.type:
                action.arguments = json.dumps(fields["arguments"])[:MAX_ARGUMENTS]
            case ToolFinished.type:
                action.outcome = "ok" if fields["ok"] else "unknown" if fields["text"] == INTERRUPTED else "failed"
                self._count(failed=not fields["ok"])
            case ToolRejected.type:
                action.outcome = "refused"
                self._count(failed=True)

    def _count(self, *, failed: bool) -> None:
        self.failures = self.failures + 1 if failed else 0
        self.warned &= failed

    def finished(self, reason: str, code: Sequence[str] = ()) -> RunFinished:
        """Return the terminal event. `code`: the blocks of code that the run called, which its text repeats."""
        usage: dict[str, Any] = {
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": self.completion_tokens,
            "measured": self.measured,
        }
        if self.cost is not None:
            usage["cost"] = self.cost
        if timing := self.times.timing():
            usage["timing"] = timing
        return RunFinished(reason, with_code(self.text, code), self.rounds, self.calls_run, usage)


def with_code(text: str, code: Sequence[str]) -> str:
    """Return the text behind those of the blocks that it does not hold, as many of the last ones as there is room."""
    parts, room = [text], MAX_TEXT - len(text)
    for block in reversed(tuple(dict.fromkeys(code))):
        if block in text:
            continue
        room -= len(block) + len("\n\n")
        if room < 0:
            break
        parts.insert(0, block)
    return "\n\n".join(filter(None, parts))[:MAX_TEXT]


REMEMBERED = frozenset({ToolStarted.type, ToolFinished.type, ToolHanded.type, ToolRejected.type, Notice.type})
COUNTED = frozenset({RoundStarted.type, Usage.type})


def logged(events: Iterable[EventRow], types: Collection[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the type and the fields of each event of these types."""
    return ((row.type, json.loads(row.data)) for row in events if row.type in types)


def totals_of(events: Sequence[EventRow], unanswered: Sequence[AskedCall]) -> RunTotals:
    """The account of a run that goes on, from its log; `unanswered` calls are counted when they are answered."""
    totals = RunTotals()
    for kind, fields in logged(events, REMEMBERED | COUNTED):
        match kind:
            case RoundStarted.type:
                totals.rounds = fields["round"]
            case Usage.type:
                used = TokenUsage(fields["prompt_tokens"], fields["completion_tokens"])
                totals.add(used, measured=fields["measured"], cost=fields.get("cost"), timing=fields.get("timing"))
            case _:
                totals.remember(kind, fields)
    totals.calls = len(totals.actions.keys() - {call.id for call in unanswered})
    return totals
