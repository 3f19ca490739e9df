"""The figures as text: Prometheus' own format or OpenMetrics, as the client asks for.

The library is loaded with the first request for it: most servers are never asked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import accumulate, chain

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector

from app.metrics.recorder import Histogram, LabelValues, Metrics, Reading
from app.metrics.table import METRICS, Metric

EOF = "# EOF"  # of OpenMetrics


class Exposition:
    """The figures of one moment, with these values of gauges. `text` may be called in another thread.

    It has a registry of its own: the library's would mix the figures of several servers in one process.
    """

    def __init__(self, metrics: Metrics, readings: Iterable[Reading] = ()) -> None:
        gauges: dict[str, dict[LabelValues, float]] = {}
        for metric, labels, value in chain(readings, *(read() for read in metrics.gauges)):
            gauges.setdefault(metric.name, {})[labels] = value
        self._numbers = gauges | {name: dict(series) for name, series in metrics.counters.items()}
        self._histograms = {
            name: {labels: Histogram(one.bounds, [*one.counts], one.sum) for labels, one in series.items()}
            for name, series in metrics.histograms.items()
        }

    def text(self, accept: str = "") -> tuple[bytes, str]:
        """Return the text in the format that a client asks for, and its content type."""
        registry = CollectorRegistry(auto_describe=False)  # nothing is collected to learn names: the table has them
        registry.register(self)
        ProcessCollector(registry=registry)
        encoder, content_type = encoder_for(accept)
        return encoder(registry), content_type

    def collect(self) -> Iterator[Family]:
        for metric in METRICS:
            if metric.kind == "histogram":
                yield histogram_family(metric, self._histograms[metric.name])
                continue
            series = self._numbers.get(metric.name, {})
            if series or not metric.of_replicas:
                yield number_family(metric, series)


def merged(texts: Mapping[int, str]) -> str:
    """Return the texts of several workers as one, in which each sample has the number of its worker as a label."""
    families: dict[str, list[str]] = {}
    for number, text in texts.items():
        lines, is_known = list[str](), False
        for line in text.splitlines():
            if line.startswith("# HELP "):
                name = line.split(" ", 3)[2]
                is_known = name in families
                lines = families.setdefault(name, [])
            if not line.startswith("# "):
                name, brace, labels = line.partition("{")
                alone, _, value = line.partition(" ")
                own = f'worker="{number}"'
                lines.append(f"{name}{{{own},{labels}" if brace else f"{alone}{{{own}}} {value}")
            elif not is_known and line != EOF:
                lines.append(line)
    ends = [EOF] if any(text.endswith(f"{EOF}\n") for text in texts.values()) else []
    return "\n".join([*chain.from_iterable(families.values()), *ends, ""])


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
