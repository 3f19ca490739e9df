"""Kinds of events that notify."""

from __future__ import annotations

APPROVAL, RUN, JOB = "approval.required", "run.ended", "job.ended"
BUDGET, CANARY, TARGET = "budget.low", "canary.fired", "endpoint.disabled"

# Ends of responses in the background, as OpenAI's API names and describes them: for programs that choose them.
COMPLETED, FAILED = "response.completed", "response.failed"
CANCELLED, INCOMPLETE = "response.cancelled", "response.incomplete"
RESPONSES = (COMPLETED, FAILED, CANCELLED, INCOMPLETE)

USUAL = {
    APPROVAL: "A call waits for approval",
    RUN: "A run has ended",
    JOB: "A background job has ended",
    BUDGET: "A budget is nearly spent",
    CANARY: "The system prompt has leaked",
    TARGET: "A webhook was disabled",
}
KINDS = USUAL | {kind: f"A background response is {kind.partition('.')[2]}" for kind in RESPONSES}
URGENT = frozenset({APPROVAL, CANARY})
TEST = "test"  # not to be chosen: its target gets it
