"""Replicas in the metrics. A server that has its database for itself has none of this."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from app.metrics.recorder import Metrics, Reading
from app.metrics.table import FENCED, LEASE_LEFT_SECONDS, TAKEOVERS


class ReplicaMetrics:
    """Counts takeovers and fenced writes, and reads the lease. `left_s`: the seconds that the lease has left."""

    def __init__(self, metrics: Metrics, left_s: Callable[[], float]) -> None:
        self._metrics = metrics
        self._left_s = left_s
        self.count_takeovers(0)
        self.count_fenced(0)
        metrics.gauges.append(self._readings)

    def count_takeovers(self, runs: int = 1) -> None:
        """Count runs that this replica goes on with instead of another one."""
        self._metrics.add(TAKEOVERS, amount=runs)

    def count_fenced(self, writes: int = 1) -> None:
        """Count writes of this replica that were refused, because another one has the run."""
        self._metrics.add(FENCED, amount=writes)

    def _readings(self) -> Iterator[Reading]:
        yield LEASE_LEFT_SECONDS, (), max(0.0, self._left_s())
