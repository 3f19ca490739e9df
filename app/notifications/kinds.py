"""Kinds of events that notify."""

from __future__ import annotations

APPROVAL, RUN, JOB = "approval.required", "run.ended", "job.ended"
BUDGET, CANARY, TARGET = "budget.low", "canary.fired", "endpoint.disabled"

# Ends of responses in the background, as OpenAI's API names and describes them: for programs that choose them.
COMPLETED, INCOMPLETE, FAILED = "response.completed", "response.incomplete", "response.failed"
RESPONSES = (COMPLETED, INCOMPLETE, FAILED, "response.cancelled")
# By the reason of a run's end; any other is a limit, and `run.failed` has none.
ENDS: dict[str | None, str] = {"answered": COMPLETED, "client_tools": COMPLETED, "cancelled": "response.cancelled"}
ENDS |= dict.fromkeys((None, "server_stopped", "paused", "revoked"), FAILED)

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
