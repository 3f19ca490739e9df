"""The figures of one server. Recording costs a dictionary look-up; text is made of them when it is asked for.

All is recorded in the event loop's thread, so that nothing has to be locked.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections.abc import Callable, Iterable

from msgspec import Struct, field

from app.metrics.table import METRICS, MOST_SERIES, Metric

OTHER = "other"
LabelValues = tuple[str, ...]
Observe = Callable[[float], None]
Reading = tuple[Metric, LabelValues, float]
"""A value of a gauge that was read now."""


class Histogram(Struct):
    """Counts by bucket (the last one has no upper bound), and the sum of the values."""

    bounds: tuple[float, ...]
    counts: list[int]
    sum: float = 0.0

    def observe(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value


class Metrics(Struct):
    """Series of every counter and histogram, by the values of its labels; `gauges` are functions that read gauges."""

    counters: dict[str, dict[LabelValues, float]] = field(
        default_factory=lambda: {one.name: {} for one in METRICS if one.kind == "counter"}
    )
    histograms: dict[str, dict[LabelValues, Histogram]] = field(
        default_factory=lambda: {one.name: {} for one in METRICS if one.kind == "histogram"}
    )

    gauges: list[Callable[[], Iterable[Reading]]] = field(default_factory=list)
    reading: asyncio.Lock = field(default_factory=asyncio.Lock)  # held while text is made: by one client at a time

    def __post_init__(self) -> None:
        """Begin those without labels at zero: a counter that appears with its first event has no rate of that event."""
        for metric in METRICS:
            if metric.labels or metric.of_replicas:
                continue
            if metric.kind == "histogram":
                self.histogram(metric)
            elif metric.kind == "counter":
                self.add(metric, amount=0)

    def add(self, metric: Metric, *labels: str, amount: float = 1) -> None:
        """Add to a counter."""
        series = self.counters[metric.name]
        known = _bounded(series, labels)
        series[known] = series.get(known, 0.0) + amount

    def observe(self, metric: Metric, value: float, *labels: str) -> None:
        self.histogram(metric, *labels).observe(value)

    def histogram(self, metric: Metric, *labels: str) -> Histogram:
        """Return one series of a histogram."""
        series = self.histograms[metric.name]
        known = _bounded(series, labels)
        if (found := series.get(known)) is None:
            found = series[known] = Histogram(metric.buckets, [0] * (len(metric.buckets) + 1))
        return found


def _bounded(series: dict[LabelValues, float] | dict[LabelValues, Histogram], labels: LabelValues) -> LabelValues:
    """Return the labels, or OTHER for each of them if there are too many series."""
    if labels in series or len(series) < MOST_SERIES:
        return labels
    return (OTHER,) * len(labels)
