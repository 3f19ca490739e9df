"""Runs and model requests in the metrics: an observer of both."""

from __future__ import annotations

import time

from msgspec import Struct

from app.core import events
from app.core.observers import ObservedRequest, ObservedRun
from app.metrics import table
from app.metrics.labels import KnownNames, code_label
from app.metrics.recorder import Metrics


class RunMetrics(Struct, frozen=True):
    """Counts what it observes."""

    metrics: Metrics
    names: KnownNames

    def observe_event(self, run: ObservedRun, event: events.AgentEvent) -> None:
        metrics = self.metrics
        match event:
            case events.RunStarted():
                metrics.add(table.RUNS_STARTED)
                metrics.observe(table.RUN_QUEUE_SECONDS, self._age(run))
            case events.RoundStarted():
                metrics.add(table.ROUNDS)
            case events.ToolFinished():
                outcome = "ok" if event.ok else "failed"
                metrics.observe(table.TOOL_SECONDS, event.duration_s, self.names.tool(event.name), outcome)
            case events.ToolRejected():
                metrics.add(table.TOOLS_REJECTED, self.names.tool(event.name))
            case events.ApprovalResolved():
                metrics.add(table.APPROVALS, code_label(event.decision))
            case events.Notice():
                metrics.add(table.NOTICES, code_label(event.code))
                if event.code == "budget":
                    metrics.add(table.BUDGET_REFUSALS, "run")
            case events.RunFinished():
                metrics.add(table.RUNS_FINISHED, code_label(event.reason))
                metrics.observe(table.RUN_SECONDS, self._age(run))
            case events.RunFailed():
                metrics.add(table.RUNS_FAILED, code_label(event.code))
                metrics.observe(table.RUN_SECONDS, self._age(run))

    def observe_request(self, request: ObservedRequest) -> None:
        metrics, model = self.metrics, self.names.model(request.answered_by)
        kind = "round" if request.in_round else "side_query"
        metrics.add(table.MODEL_REQUESTS, model, kind, code_label(request.error or "ok"))
        metrics.observe(table.MODEL_SECONDS, request.ended - request.sent, model)
        if request.in_round and request.first is not None:
            metrics.observe(table.FIRST_TOKEN_SECONDS, request.first - request.sent, model)
        counts = {
            "prompt": request.prompt_tokens,
            "cached": request.cached_tokens or 0,
            "completion": request.completion_tokens,
        }
        for direction, count in counts.items():
            metrics.add(table.TOKENS, model, direction, amount=count)
        if request.cost is not None:
            metrics.add(table.COST, model, amount=request.cost)

    def _age(self, run: ObservedRun) -> float:
        return max(0.0, time.time() - run.created)
