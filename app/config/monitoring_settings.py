"""Settings of metrics and logs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from pydantic import BaseModel, SecretStr

from app.core.settings_fields import setting, switch

SHORTEST_TOKEN = 16  # characters


class MonitoringSettings(BaseModel, defer_build=True):
    """Metrics and logs."""

    metrics_token: SecretStr | None = setting(
        None,
        "bearer token that opens GET /metrics and nothing else, for Prometheus; prefer the environment",
        f"printable ASCII without spaces, at least {SHORTEST_TOKEN} characters",
    )
    metrics_public: bool = switch(False, "let every client that can reach the port read GET /metrics, without a token")
    loop_watchdog: bool = switch(
        True, "count and log callbacks that hold the event loop for 50 ms of CPU, with their stack"
    )
    log_format: Literal["text", "json"] = setting(
        "text", "text, or json: an object on each line, with the ids of run, session and request", "text or json"
    )


class TelemetrySettings(BaseModel, defer_build=True):
    """OpenTelemetry."""

    otel: bool | None = switch(
        None, "export traces and metrics with OpenTelemetry (default: if OTEL_EXPORTER_OTLP_ENDPOINT is set)"
    )
    otel_propagate: bool = switch(False, "send the traceparent of a run with its requests to model servers")


def monitoring_problems(settings: MonitoringSettings) -> Iterator[str]:
    """Settings that would let in more than they should, a sentence each."""
    token = settings.metrics_token
    if token and len(token.get_secret_value()) < SHORTEST_TOKEN:
        yield f"metrics_token is too short to be a secret: use at least {SHORTEST_TOKEN} random characters."
