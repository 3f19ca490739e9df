"""The figures as text: Prometheus' own format or OpenMetrics, as the client asks for.

The library is loaded with the first request for it: most servers are never asked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, chain

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector

from app.metrics.recorder import Histogram, LabelValues, Metrics, Reading
from app.metrics.table import METRICS, Metric


class Exposition:
    """A registry of its own: a global one would mix the figures of several servers in one process."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._readings: Mapping[str, Mapping[LabelValues, float]] = {}
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self)
        ProcessCollector(registry=self._registry)

    def text(self, readings: Iterable[Reading], accept: str = "") -> tuple[bytes, str]:
        """Return the text with these values of gauges, and its content type."""
        found: dict[str, dict[LabelValues, float]] = {}
        for metric, labels, value in chain(readings, *(read() for read in self._metrics.gauges)):
            found.setdefault(metric.name, {})[labels] = value
        self._readings = found
        encoder, content_type = encoder_for(accept)
        return encoder(self._registry), content_type

    def describe(self) -> Sequence[Family]:
        """Nothing is collected to learn names: the table has them."""
        return ()

    def collect(self) -> Iterator[Family]:
        for metric in METRICS:
            if metric.kind == "histogram":
                yield histogram_family(metric, self._metrics.histograms[metric.name])
                continue
            figures = self._metrics.counters if metric.kind == "counter" else self._readings
            series = figures.get(metric.name, {})
            if series or not metric.of_replicas:
                yield number_family(metric, series)


def encoder_for(accept: str) -> tuple[Callable[[Collector], bytes], str]:
    """Return the format that a client asks for; the plain one if its header cannot be read."""
    try:
        return choose_encoder(accept)
    except (TypeError, ValueError):  # of a version that is no number
        return choose_encoder("")


def number_family(metric: Metric, series: Mapping[LabelValues, float]) -> Family:
    kind = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
    family = kind(metric.family, metric.help, labels=metric.labels, unit=metric.unit)
    for labels, value in series.items():
        family.add_metric(labels, value)
    return family


def histogram_family(metric: Metric, series: Mapping[LabelValues, Histogram]) -> Family:
    family = HistogramMetricFamily(metric.family, metric.help, labels=metric.labels, unit=metric.unit)
    bounds = [*map(str, metric.buckets), "+Inf"]
    for labels, histogram in series.items():
        counts = accumulate(histogram.counts)
        family.add_metric(labels, [*zip(bounds, counts, strict=True)], sum_value=histogram.sum)
    return family
