"""Runs and model requests in the metrics: an observer of both."""

from __future__ import annotations

import time

from msgspec import Struct

from app.core.events import (
    AgentEvent,
    ApprovalResolved,
    Notice,
    RoundStarted,
    RunFailed,
    RunFinished,
    RunStarted,
    ToolFinished,
    ToolRejected,
)
from app.core.observers import ObservedRequest, ObservedRun
from app.metrics.labels import KnownNames, code_label
from app.metrics.recorder import Metrics
from app.metrics.table import (
    APPROVALS,
    BUDGET_REFUSALS,
    COST,
    FIRST_TOKEN_SECONDS,
    MODEL_REQUESTS,
    MODEL_SECONDS,
    NOTICES,
    ROUNDS,
    RUN_QUEUE_SECONDS,
    RUN_SECONDS,
    RUNS_FAILED,
    RUNS_FINISHED,
    RUNS_STARTED,
    TOKENS,
    TOOL_SECONDS,
    TOOLS_REJECTED,
)


class RunMetrics(Struct, frozen=True):
    """Counts what it observes."""

    metrics: Metrics
    names: KnownNames

    def observe_event(self, run: ObservedRun, event: AgentEvent) -> None:
        metrics = self.metrics
        match event:
            case RunStarted():
                metrics.add(RUNS_STARTED)
                metrics.observe(RUN_QUEUE_SECONDS, self._age(run))
            case RoundStarted():
                metrics.add(ROUNDS)
            case ToolFinished():
                outcome = "ok" if event.ok else "failed"
                metrics.observe(TOOL_SECONDS, event.duration_s, self.names.tool(event.name), outcome)
            case ToolRejected():
                metrics.add(TOOLS_REJECTED, self.names.tool(event.name))
            case ApprovalResolved():
                metrics.add(APPROVALS, code_label(event.decision))
            case Notice():
                metrics.add(NOTICES, code_label(event.code))
                if event.code == "budget":
                    metrics.add(BUDGET_REFUSALS, "run")
            case RunFinished():
                metrics.add(RUNS_FINISHED, code_label(event.reason))
                metrics.observe(RUN_SECONDS, self._age(run))
            case RunFailed():
                metrics.add(RUNS_FAILED, code_label(event.code))
                metrics.observe(RUN_SECONDS, self._age(run))

    def observe_request(self, request: ObservedRequest) -> None:
        metrics, model = self.metrics, self.names.model(request.answered_by)
        kind = "round" if request.in_round else "side_query"
        metrics.add(MODEL_REQUESTS, model, kind, code_label(request.error or "ok"))
        metrics.observe(MODEL_SECONDS, request.ended - request.sent, model)
        if request.in_round and request.first is not None:
            metrics.observe(FIRST_TOKEN_SECONDS, request.first - request.sent, model)
        counts = {
            "prompt": request.prompt_tokens,
            "cached": request.cached_tokens or 0,
            "completion": request.completion_tokens,
        }
        for direction, count in counts.items():
            metrics.add(TOKENS, model, direction, amount=count)
        if request.cost is not None:
            metrics.add(COST, model, amount=request.cost)

    def _age(self, run: ObservedRun) -> float:
        return max(0.0, time.time() - run.created)
