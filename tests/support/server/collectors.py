"""A collector of OpenTelemetry on this machine: it decodes what is exported over OTLP/HTTP."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest
from msgspec import Struct
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests.support.server.receivers import Receiver, receiver

Attributes = dict[str, Any]


class ReceivedSpan(Struct):
    """A span; ids are hexadecimal, `parent` is empty for a root. `events` are names and attributes."""

    name: str
    trace: str
    id: str
    parent: str
    seconds: float
    failed: bool
    attributes: Attributes
    events: list[tuple[str, Attributes]]


class Collector(Struct):
    """What a receiver has got, decoded."""

    receiver: Receiver

    @property
    def raw(self) -> bytes:
        return b"".join(request.body for request in self.receiver.requests)

    def spans(self) -> list[ReceivedSpan]:
        """Every span, in the order of their starts."""
        found = []
        for request in self._requests("/v1/traces"):
            for resource in ExportTraceServiceRequest.FromString(request).resource_spans:
                found += [span for scope in resource.scope_spans for span in scope.spans]
        return [_span(one) for one in sorted(found, key=lambda span: int(span.start_time_unix_nano))]

    def span(self, name: str) -> ReceivedSpan:
        [found] = [one for one in self.spans() if one.name == name]
        return found

    def resource(self) -> Attributes:
        request = next(iter(self._requests("/v1/traces")))
        return _attributes(ExportTraceServiceRequest.FromString(request).resource_spans[0].resource.attributes)

    def metrics(self) -> Mapping[str, list[tuple[float, int, Attributes]]]:
        """The last state of each metric: sum, count (of a counter 0) and attributes of each series."""
        found: dict[str, list[tuple[float, int, Attributes]]] = {}
        for request in self._requests("/v1/metrics"):
            for resource in ExportMetricsServiceRequest.FromString(request).resource_metrics:
                for metric in (metric for scope in resource.scope_metrics for metric in scope.metrics):
                    points = metric.histogram.data_points or metric.sum.data_points
                    found[metric.name] = [
                        (one.sum, one.count, _attributes(one.attributes))
                        if metric.histogram.data_points
                        else (one.as_int or one.as_double, 0, _attributes(one.attributes))
                        for one in points
                    ]
        return found

    def _requests(self, path: str) -> Iterator[bytes]:
        return (request.body for request in self.receiver.requests if request.path == path)


@asynccontextmanager
async def collector(
    monkeypatch: pytest.MonkeyPatch, *, status: int = 200, **environ: str
) -> AsyncGenerator[Collector, None]:
    """A collector that the environment names; `status` is that of its answers."""
    async with receiver(status) as there:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{there.port}")
        for name, value in environ.items():
            monkeypatch.setenv(name, value)
        yield Collector(there)


def _span(span: Any) -> ReceivedSpan:
    return ReceivedSpan(
        span.name,
        span.trace_id.hex(),
        span.span_id.hex(),
        span.parent_span_id.hex(),
        (span.end_time_unix_nano - span.start_time_unix_nano) / 1e9,
        span.status.code == 2,
        _attributes(span.attributes),
        [(event.name, _attributes(event.attributes)) for event in span.events],
    )


def _attributes(pairs: Any) -> Attributes:
    return {one.key: _value(one.value) for one in pairs}


def _value(value: Any) -> Any:
    kind = value.WhichOneof("value")
    found = getattr(value, kind)
    return [_value(one) for one in found.values] if kind == "array_value" else found
