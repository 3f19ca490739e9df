"""The SDK of OpenTelemetry, set up for one server: exporters over OTLP/HTTP in threads of their own.

Nothing global is changed but the loggers of the SDK, so that an unreachable collector is reported once, not with each
batch. A full queue drops the oldest spans; no run waits for an export.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version
from typing import TypeVar

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import MetricExportResult, MetricsData, PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExportResult

from app.telemetry.content import ContentWriter
from app.telemetry.tracing import Telemetry

SDK = "opentelemetry"  # the root of its loggers
EXPORTERS = f"{SDK}.exporter."
SCOPE = "dragoman"
CLOSE_S = 2.0

_log = logging.getLogger(__name__)


class SdkLog(logging.Handler):
    """Reports what the SDK logs: each message once, and of exports only that they begin to fail or work again."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._reported: set[str] = set()
        self._reason = ""
        self._failing: set[str] = set()

    def emit(self, record: logging.LogRecord) -> None:
        if record.name.startswith(EXPORTERS):
            self._reason = record.getMessage()
        elif record.msg not in self._reported:
            self._reported.add(str(record.msg))
            _log.warning("OpenTelemetry: %s This is reported once.", record.getMessage())

    def exported(self, signal: str, *, ok: bool) -> None:
        """Take the outcome of one export; called by the exporter's thread."""
        if not ok and signal not in self._failing:
            self._failing.add(signal)
            _log.warning(
                "%s are not exported: %s Check OTEL_EXPORTER_OTLP_ENDPOINT and the collector. Runs go on; further "
                "failures are not reported until an export succeeds.",
                signal,
                self._reason,
            )
        elif ok and signal in self._failing:
            self._failing.discard(signal)
            _log.warning("%s are exported again.", signal)


class WatchedSpanExporter(OTLPSpanExporter):
    """Reports the outcome of each export."""

    on_export: Callable[[bool], None]

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        result = super().export(spans)
        self.on_export(result is SpanExportResult.SUCCESS)
        return result


class WatchedMetricExporter(OTLPMetricExporter):
    """Reports the outcome of each export."""

    on_export: Callable[[bool], None]

    def export(
        self, metrics_data: MetricsData, timeout_millis: float | None = 10_000, **more: object
    ) -> MetricExportResult:
        result = super().export(metrics_data, timeout_millis, **more)
        self.on_export(result is MetricExportResult.SUCCESS)
        return result


_Watched = TypeVar("_Watched", WatchedSpanExporter, WatchedMetricExporter)


class Exports:
    """The providers of spans and metrics, and `telemetry`, which makes them."""

    def __init__(self, environ: Mapping[str, str], content: ContentWriter | None, *, propagates: bool) -> None:
        """Raises ValueError for a variable that the SDK cannot use."""
        self._exporters: list[OTLPSpanExporter | OTLPMetricExporter] = []
        self._log = SdkLog()
        self._logger = logging.getLogger(SDK)
        self._before = self._logger.propagate
        self._logger.addHandler(self._log)
        self._logger.propagate = False
        try:
            readers, processors = list[PeriodicExportingMetricReader](), list[BatchSpanProcessor]()
            if _is_exported(environ, "OTEL_METRICS_EXPORTER"):
                readers.append(PeriodicExportingMetricReader(self._watched(WatchedMetricExporter(), "Metrics")))
            if _is_exported(environ, "OTEL_TRACES_EXPORTER"):
                processors.append(BatchSpanProcessor(self._watched(WatchedSpanExporter(), "Traces")))
            resource = _resource(environ)
            self.spans = TracerProvider(resource=resource, shutdown_on_exit=False)
            self._metrics = MeterProvider(readers, resource, shutdown_on_exit=False)
        except ValueError:
            self._leave_logs()
            raise
        for processor in processors:
            self.spans.add_span_processor(processor)
        built = version("dragoman")
        tracer, meter = self.spans.get_tracer(SCOPE, built), self._metrics.get_meter(SCOPE, built)
        self.telemetry = Telemetry(tracer, meter, content=content, propagates=propagates)

    def _watched(self, exporter: _Watched, signal: str) -> _Watched:
        exporter.on_export = lambda ok: self._log.exported(signal, ok=ok)
        self._exporters.append(exporter)
        return exporter

    def _leave_logs(self) -> None:
        self._logger.removeHandler(self._log)
        self._logger.propagate = self._before

    async def close(self, limit_s: float = CLOSE_S) -> None:
        """Export what is left, for so long at most."""
        self.telemetry.close()
        loop = asyncio.get_running_loop()
        done = asyncio.Event()

        def shut_down() -> None:
            providers = [threading.Thread(target=one.shutdown, daemon=True) for one in (self.spans, self._metrics)]
            for thread in providers:
                thread.start()
            for thread in providers:
                thread.join()
            loop.call_soon_threadsafe(done.set)

        # Not a pool: the interpreter would wait for its threads.
        threading.Thread(target=shut_down, name="telemetry", daemon=True).start()
        try:
            async with asyncio.timeout(limit_s):
                await done.wait()
        except TimeoutError:
            _log.warning("The last traces and metrics were not exported within %g s.", limit_s)
            for exporter in self._exporters:
                exporter.shutdown()  # it waits no longer for the next try
        finally:
            self._leave_logs()


def _is_exported(environ: Mapping[str, str], name: str) -> bool:
    return environ.get(name, "").strip().lower() != "none"


def _resource(environ: Mapping[str, str]) -> Resource:
    """Return the attributes of this server; those of the environment come first."""
    there = Resource.create()
    named = "OTEL_SERVICE_NAME" in environ or "service.name=" in environ.get("OTEL_RESOURCE_ATTRIBUTES", "")
    own = {"service.version": version("dragoman"), "service.instance.id": f"{os.uname().nodename}-{os.getpid()}"}
    missing = {name: value for name, value in own.items() if name not in there.attributes}
    return there.merge(Resource(missing if named else missing | {"service.name": SCOPE}))
