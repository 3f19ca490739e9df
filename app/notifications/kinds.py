"""Kinds of events that notify."""

from __future__ import annotations

APPROVAL, RUN, JOB = "approval.required", "run.ended", "job.ended"
BUDGET, CANARY, TARGET = "budget.low", "canary.fired", "endpoint.disabled"

KINDS = {
    APPROVAL: "A call waits for approval",
    RUN: "A run has ended",
    JOB: "A background job has ended",
    BUDGET: "A budget is nearly spent",
    CANARY: "The system prompt has leaked",
    TARGET: "A webhook was disabled",
}
URGENT = frozenset({APPROVAL, CANARY})
TEST = "test"  # not to be chosen: its target gets it
