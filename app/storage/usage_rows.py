"""Rows of what was used: of budgets, and of models."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class UsageAdded:
    """What a principal has used of `kind` (`tokens`, `tool_seconds`) in `period` (`2026-11`, `2026-11-22`), more."""

    principal: str
    kind: str
    period: str
    amount: float


@dataclass(frozen=True, slots=True)
class Spent:
    """What requests of one run to one model have used, more; or the sum of many runs.

    `model` is `endpoint/model`, `cost` in billionths, None without a price. Of tokens and cost, `estimated_tokens` and
    `estimated_cost` are not what the model's server has counted.
    """

    principal: str
    month: str
    model: str
    run: str
    session: str
    requests: int
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int
    estimated_tokens: int
    cost: float | None
    estimated_cost: float | None


UsageChange = UsageAdded | Spent
