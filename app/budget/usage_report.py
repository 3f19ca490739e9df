"""Usage reports: requests, tokens and cost of models, summed by month, principal, model or run."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from itertools import groupby
from operator import attrgetter
from typing import Any

from app.budget.kinds import COST
from app.models.endpoints.prices import total
from app.storage.usage import ModelUsage

COUNTS = ("requests", "prompt_tokens", "completion_tokens", "cached_tokens", "estimated_tokens")
COSTS = ("cost", "estimated_cost")


def sums(rows: Iterable[ModelUsage]) -> dict[str, Any]:
    """Return the sums of all rows, with the cost of models that have a price."""
    rows = list(rows)
    counted: dict[str, Any] = {name: sum(getattr(row, name) for row in rows) for name in COUNTS}
    costs = {name: total(*(_money(getattr(row, name)) for row in rows)) for name in COSTS}
    return counted | {name: cost for name, cost in costs.items() if cost is not None}


def of_runs(rows: Iterable[ModelUsage]) -> dict[str, dict[str, Any]]:
    """Return the sums of each run."""
    runs = defaultdict[str, list[ModelUsage]](list)
    for row in rows:
        runs[row.run].append(row)
    return {run: sums(spent) for run, spent in runs.items()}


def by(
    name: str, rows: Iterable[ModelUsage], inner: Callable[[list[ModelUsage]], dict[str, Any]]
) -> list[dict[str, Any]]:
    """Return the sums of each `name` (`month`, `principal`, `model`; rows sorted by it) and those of `inner`."""
    groups = ((key, list(group)) for key, group in groupby(rows, attrgetter(name)))
    return [{name: key, **sums(group), **inner(group)} for key, group in groups]


def models(rows: list[ModelUsage]) -> dict[str, Any]:
    return {"models": by("model", sorted(rows, key=attrgetter("model")), lambda _: {})}


def _money(parts: float | None) -> float | None:
    return None if parts is None else COST.display(parts)
