"""Usage: what counts against budgets, and what each model was used for."""

from __future__ import annotations

from typing import Protocol

from msgspec import Struct

from app.storage.changes import Change, ChangeWriter


class UsageAdded(Change, frozen=True):
    """An amount to add to a principal's usage of `kind` (`tokens`, `tool_seconds`) in `period` (`2026-11`)."""

    principal: str
    kind: str
    period: str
    amount: float


class Settled(UsageAdded, frozen=True):
    """The same, and the end of a reservation in a shared database: `released` was reserved by `replica`."""

    replica: str
    released: float


class Shared(Struct, frozen=True):
    """The use and the reservations of all servers; `granted` was reserved just now, None if that was refused."""

    used: float
    reserved: float
    granted: float | None = None


class ModelUsage(Change, frozen=True):
    """Usage of one model by one run, to add to what is stored; or the sum of many runs.

    `model` is `endpoint/model`, `cost` in billionths, None without a price. `estimated_tokens` and `estimated_cost`
    are the parts of tokens and cost that the model's server did not count.
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


class UsageStore(ChangeWriter, Protocol):
    async def usage(self, principal: str, kind: str, period: str) -> float: ...

    async def spent(self, *, principal: str | None = None, month: str | None = None) -> list[ModelUsage]:
        """Sums per principal, month and model, newest first; only those of `principal` and `month`, if given."""

    async def spent_by_runs(self, session: str) -> list[ModelUsage]:
        """Usage of a session per run and model."""


class SharedUsage(Protocol):
    """Usage in a database that several servers share. Every method raises StoreFailed."""

    @property
    def replica(self) -> str:
        """The server that reserves."""

    async def shared_usage(self, principal: str, kind: str, period: str) -> Shared: ...

    async def reserve(
        self, principal: str, kind: str, period: str, *, least: float, most: float, limit: float
    ) -> Shared:
        """Reserve up to `most` within the limit, durably, or nothing if less than `least` is left."""
