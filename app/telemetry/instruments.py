"""The metrics, with the attributes and the buckets of the conventions."""

from __future__ import annotations

from collections.abc import Sequence

from opentelemetry.metrics import Counter, Histogram, Meter

from app.core.observers import ObservedRequest
from app.telemetry import conventions as names
from app.telemetry.conventions import BUCKETS_S, MCP_BUCKETS_S, Convention

Attributes = dict[str, str | bool | int | float | Sequence[str]]


class Instruments:
    """Histograms and counters. Nothing unbounded is among their attributes: no session, no run, no call."""

    def __init__(self, meter: Meter) -> None:
        def histogram(row: Convention, buckets: Sequence[float] = BUCKETS_S) -> Histogram:
            limits = list(buckets)
            return meter.create_histogram(row.name, row.unit, row.meaning, explicit_bucket_boundaries_advisory=limits)

        def counter(row: Convention) -> Counter:
            return meter.create_counter(row.name, row.unit, row.meaning)

        self.run = histogram(names.AGENT_DURATION)
        self._request = histogram(names.CHAT_DURATION)
        self._first = histogram(names.CHAT_FIRST)
        self._input = counter(names.CHAT_INPUT)
        self._output = counter(names.CHAT_OUTPUT)
        self.call = histogram(names.TOOL_DURATION)
        self.operation = histogram(names.MCP_DURATION, MCP_BUCKETS_S)

    def request(self, request: ObservedRequest, seconds: float, first_s: float | None, shared: Attributes) -> None:
        """Record a model request. Tokens that its server did not report count as none, as the conventions want it."""
        failed: Attributes = {names.ERROR.name: request.error} if request.error else {}
        self._request.record(seconds, shared | failed)
        if first_s is not None:
            self._first.record(first_s, shared)
        counted = request.measured and bool(request.prompt_tokens)
        modality = shared | {names.MODALITY.name: "text" if counted and not _has_files(request) else "unknown"}
        self._input.add(request.prompt_tokens if counted else 0, modality)
        self._output.add(request.completion_tokens if counted else 0, modality)


def _has_files(request: ObservedRequest) -> bool:
    return request.request is not None and any(message.attachments for message in request.request.messages)
